// Blocks that outlive hot memory and the process: what comes back from cold memory or a drive, whatever happens to
// that, gives the tokens that were given without it; and every frame is accounted for.

#include <gtest/gtest.h>

#include "engine/engine_testutil.h"
#include "kv/tier/sim_disk.h"

namespace kvist::engine {
namespace {

/// What a request gets where nothing is ever kept.
std::vector<TokenId> Expected(const GenerationRequest& request) {
  return Bench({.reuse = false}).Solo(request).tokens;
}

GenerationRequest After(const GenerationRequest& first, const std::vector<TokenId>& answer, uint32_t more,
                        uint64_t seed) {
  GenerationRequest next = first;
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  const GenerationRequest added = Greedy(more, seed);
  next.prompt.insert(next.prompt.end(), added.prompt.begin(), added.prompt.end());
  return next;
}

TEST(EngineTier, WhatWasComputedBeforeARestartIsReadNotComputed) {
  for (const std::string_view admission : {"through", "all", "a5"}) {
    kv::SimDrive drive(1);
    const GenerationRequest request = Greedy(400, 1);
    const std::vector<TokenId> expected = Expected(request);
    EXPECT_EQ(Bench({.disk = drive.Open(), .admission = admission}).Solo(request).tokens, expected);
    Bench bench({.disk = drive.Open(), .admission = admission});
    const Answer answer = bench.Solo(request);
    EXPECT_EQ(answer.tokens, expected) << admission;
    EXPECT_EQ(answer.usage.cached_tokens, 384u) << admission;  // All full blocks before the last token.
    EXPECT_EQ(answer.trace->restored_tokens, 384u);
    ASSERT_EQ(answer.trace->reused.size(), 1u);
    EXPECT_EQ(answer.trace->reused[0].source, kv::BlockSource::kDrive);
    EXPECT_EQ(bench.engine().Stats().computed_tokens, 16u + 5u);
    EXPECT_EQ(bench.engine().Stats().tiers.fetches, 1u);
    EXPECT_EQ(bench.Solo(request).trace->restored_tokens, 0u);  // It is in memory now.
    bench.ExpectNoLeak();
  }
}

TEST(EngineTier, OnlyWrittenThroughSurvivesAKill) {
  for (const std::string_view admission : {"through", "a5"}) {
    kv::SimDrive drive(2);
    const GenerationRequest request = Greedy(200, 2);
    {
      Bench bench({.disk = drive.Open(), .admission = admission});
      bench.Solo(request);
      drive.faults.crash_after = drive.operations();  // Nothing that the engine does at its end counts.
    }
    drive.Crash(/*power=*/false);
    Bench bench({.disk = drive.Open(), .admission = admission});
    EXPECT_EQ(bench.Solo(request).usage.cached_tokens, admission == "through" ? 192u : 0u);
  }
}

TEST(EngineTier, AnotherModelsBlocksAndOtherNamespacesAreMisses) {
  kv::SimDrive drive(3);
  GenerationRequest request = Greedy(200, 3);
  request.cache_namespace = 5;
  Bench({.disk = drive.Open()}).Solo(request);
  EXPECT_EQ(Bench({.disk = drive.Open(), .fingerprint = 8}).Solo(request).usage.cached_tokens, 0u);
  EXPECT_EQ(Bench({.kv_type = KvType::kQ8, .disk = drive.Open()}).Solo(request).usage.cached_tokens, 0u);
  GenerationRequest other = request;
  other.cache_namespace = 6;
  Bench bench({.disk = drive.Open()});
  EXPECT_EQ(bench.Solo(other).usage.cached_tokens, 0u);
  EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 192u);
}

TEST(EngineTier, BlocksAreStoredUnderTheirTenant) {
  kv::SimDrive drive(4);
  GenerationRequest request = Greedy(100, 4);
  request.tenant_key = 3;
  Bench bench({.disk = drive.Open()});
  bench.Solo(request);
  for (const auto& block : bench.drive().store().List()) EXPECT_EQ(block.facts.origin.tenant, TenantId{3});
  const auto purged = bench.drive().store().Purge({.tenant = TenantId{3}});
  ASSERT_TRUE(purged.ok());
  EXPECT_EQ(*purged, 6u);
}

TEST(EngineTier, WhatMemoryHadToGiveUpComesBackFromTheDrive) {
  kv::SimDrive drive(5);
  Bench bench({.frames = 48, .disk = drive.Open(), .admission = "all"});  // 768 tokens.
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<TokenId>> expected;
  for (uint64_t i = 0; i < 4; ++i) {
    requests.push_back(Greedy(400, 10 + i));
    expected.push_back(Expected(requests.back()));
    EXPECT_EQ(bench.Solo(requests.back()).tokens, expected.back());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer answer = bench.Solo(requests[i]);
    EXPECT_EQ(answer.tokens, expected[i]) << i;
    EXPECT_GE(answer.usage.cached_tokens, 384u) << i;
  }
  EXPECT_GT(bench.engine().Stats().tiers.restored_blocks, 60u);
  bench.ExpectNoLeak();
}

TEST(EngineTier, WhoWaitsAndLooksAgainCountsOnce) {
  kv::SimDrive drive(16);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back(Greedy(400, 40 + i));
  {
    Bench bench({.disk = drive.Open()});
    for (const GenerationRequest& request : requests) bench.Solo(request);
  }
  Bench bench({.frames = 64, .disk = drive.Open()});  // One is read at a time: the next one looks again and again.
  std::vector<RequestId> ids;
  for (const GenerationRequest& request : requests) ids.push_back(bench.Submit(request));
  bench.Finish();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(bench.Of(ids[i]).tokens, Expected(requests[i]));
  const kv::TierFigures tier = bench.drive().Figures().front();
  EXPECT_EQ(tier.hit_blocks, 4u * 24);  // Nobody computed what is stored because others were first.
  EXPECT_EQ(tier.hit_blocks, bench.engine().Stats().tiers.restored_blocks);
  EXPECT_EQ(tier.lookup_blocks, tier.hit_blocks);
}

TEST(EngineTier, WhatIsReadForOneIsNotTakenByOthersBeforeItBegins) {
  kv::SimDrive drive(17);
  std::vector<GenerationRequest> texts;
  for (uint64_t i = 0; i < 3; ++i) texts.push_back(Greedy(480, 50 + i));  // 31 blocks each.
  {
    Bench bench({.disk = drive.Open()});
    for (const GenerationRequest& text : texts) bench.Solo(text);
  }
  Bench bench({.frames = 128, .disk = drive.Open()});
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 4; ++i) ids.push_back(bench.Submit(Greedy(10, 60 + i, 100)));  // Grow to 28 blocks.
  for (int turn = 0; turn < 3; ++turn) bench.Turn();
  for (const GenerationRequest& text : texts) ids.push_back(bench.Submit(text));
  for (uint64_t i = 0; i < 4; ++i) ids.push_back(bench.Submit(Greedy(300, 70 + i)));
  bench.Finish();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(bench.Of(ids[4 + i]).tokens, Expected(texts[i])) << i;
    EXPECT_EQ(bench.Of(ids[4 + i]).usage.cached_tokens, 464u) << i;
  }
  EXPECT_EQ(bench.engine().Stats().tiers.restored_blocks, 3u * 29);
  bench.ExpectNoLeak();
}

TEST(EngineTier, WhatIsReadIsUsedWhoeverElseWaits) {
  for (const std::string_view policy : {"fair-deadline", "sjf", "chunked"}) {
    for (const bool priorities : {false, true}) {
      kv::SimDrive drive(20);
      std::vector<GenerationRequest> texts;
      for (uint64_t i = 0; i < 4; ++i) {
        texts.push_back(Greedy(i % 3 == 0 ? 700 : 460, 80 + i));  // 45 and 30 blocks: not both fit.
        if (priorities) texts.back().priority = std::array<uint8_t, 3>{0, 128, 200}[i % 3];
      }
      {
        Bench bench({.disk = drive.Open()});
        for (const GenerationRequest& text : texts) bench.Solo(text);
      }
      Bench bench({.frames = 64, .policy = policy, .disk = drive.Open()});
      std::vector<RequestId> ids{bench.Submit(Greedy(40, 90, 20))};
      for (int turn = 0; turn < 3; ++turn) bench.Turn();
      for (const GenerationRequest& text : texts) ids.push_back(bench.Submit(text));
      bench.Finish();
      for (size_t i = 0; i < texts.size(); ++i) {
        const uint32_t blocks = static_cast<uint32_t>(texts[i].prompt.size() - 1) / kv::kBlockTokens;
        EXPECT_EQ(bench.Of(ids[1 + i]).usage.cached_tokens, blocks * kv::kBlockTokens) << policy << " " << i;
      }
      if (!priorities) {
        EXPECT_EQ(bench.engine().Stats().tiers.holds_given_up, 0u) << policy;
      }
      bench.ExpectNoLeak();
    }
  }
}

TEST(EngineTier, NobodyWaitsForeverForFramesThatArePinned) {
  for (const uint32_t cached : {0u, 200u}) {
    kv::SimDrive drive(19);
    const GenerationRequest stored = Greedy(700, 52);  // 44 blocks.
    const std::vector<TokenId> expected = Expected(stored);
    Bench({.disk = drive.Open()}).Solo(stored);
    Bench bench({.frames = 64, .disk = drive.Open()});
    GenerationRequest pinned = Greedy(450, 53), beginning = stored;
    pinned.retain = {{.retention = kv::Retention::kPinned, .for_ns = 600'000'000'000}};
    EXPECT_EQ(bench.Solo(pinned).usage.pinned_blocks, 29u);
    beginning.prompt.resize(cached);
    if (cached > 0) bench.Solo(beginning);
    EXPECT_EQ(bench.Solo(stored).tokens, expected);
    bench.ExpectNoLeak();
  }
}

TEST(EngineTier, WhoIsCancelledAfterItsTextWasReadGivesItBack) {
  kv::SimDrive drive(18);
  const GenerationRequest stored = Greedy(480, 51);
  Bench({.disk = drive.Open()}).Solo(stored);
  Bench bench({.frames = 96, .disk = drive.Open()});
  for (uint64_t i = 0; i < 4; ++i) bench.Submit(Greedy(10, 60 + i, 60));
  for (int turn = 0; turn < 3; ++turn) bench.Turn();
  const RequestId id = bench.Submit(stored);
  while (bench.engine().Stats().tiers.restored_blocks < 29) bench.Turn();
  bench.engine().Cancel(id);
  bench.Finish();
  EXPECT_EQ(bench.Of(id).finish, FinishReason::kCancelled);
  bench.ExpectNoLeak();
  EXPECT_EQ(bench.Solo(stored).usage.cached_tokens, 464u);
}

TEST(EngineTier, TextsWithPartsDroppedComeBackToo) {
  kv::SimDrive drive(6);
  GenerationRequest request = Greedy(300, 6);
  request.ops = {{.at = 150, .begin = 20, .end = 90}, {.at = 260, .begin = 100, .end = 200, .reposition = false}};
  const std::vector<TokenId> expected = Expected(request);
  Bench({.disk = drive.Open()}).Solo(request);
  Bench bench({.disk = drive.Open()});
  const Answer answer = bench.Solo(request);
  EXPECT_EQ(answer.tokens, expected);
  EXPECT_EQ(answer.usage.cached_tokens, 288u);
  GenerationRequest plain = request;  // The same tokens with another history are other blocks.
  plain.ops.clear();
  EXPECT_LE(bench.Solo(plain).usage.cached_tokens, 150u);
  EXPECT_EQ(bench.Solo(plain).tokens, Expected(plain));
  bench.ExpectNoLeak();
}

TEST(EngineTier, ADriveSlowerThanComputingIsNotAsked) {
  kv::SimDrive drive(7);
  const GenerationRequest request = Greedy(400, 7);
  Bench({.disk = drive.Open()}).Solo(request);
  Bench bench({.disk = drive.Open(), .read_bytes_per_s = 1e3});
  EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 0u);
  EXPECT_EQ(bench.engine().Stats().tiers.computed_instead, 1u);
}

TEST(EngineTier, WhoIsCancelledWhileItsTextIsReadLeavesItToOthers) {
  kv::SimDrive drive(8);
  const GenerationRequest request = Greedy(400, 8);
  const std::vector<TokenId> expected = Expected(request);
  Bench({.disk = drive.Open()}).Solo(request);
  for (int turns = 0; turns < 4; ++turns) {
    Bench bench({.disk = drive.Open()});
    const RequestId first = bench.Submit(request);
    for (int i = 0; i < turns; ++i) bench.Turn();
    bench.engine().Cancel(first);
    const RequestId second = bench.Submit(request);
    bench.Finish();
    EXPECT_EQ(bench.Of(first).finish, FinishReason::kCancelled);
    EXPECT_EQ(bench.Of(second).tokens, expected) << turns;
    EXPECT_GE(bench.Of(second).usage.cached_tokens, 384u) << turns;
    bench.ExpectNoLeak();
  }
}

TEST(EngineTier, AnEngineThatGoesWhileBlocksAreReadWaitsForThem) {
  kv::SimDrive drive(9);
  const GenerationRequest request = Greedy(400, 9);
  Bench({.disk = drive.Open()}).Solo(request);
  Bench bench({.disk = drive.Open()});
  bench.Submit(request);
  bench.Turn();
}

TEST(EngineTier, WhoIsPreemptedGetsItsBlocksBackInsteadOfComputingThemAgain) {
  kv::SimDrive drive(10);
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<TokenId>> expected;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(Greedy(250, 20 + i, 200));
    expected.push_back(Expected(requests.back()));
  }
  uint64_t recomputed[2] = {}, preemptions[2] = {};
  for (const bool with_drive : {false, true}) {
    Bench bench({.frames = 64, .disk = with_drive ? drive.Open() : nullptr, .admission = "a5"});  // 1024 tokens.
    std::vector<RequestId> ids;
    for (const GenerationRequest& request : requests) ids.push_back(bench.Submit(request));
    bench.Finish();
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(bench.Of(ids[i]).tokens, expected[i]);
      recomputed[with_drive ? 1 : 0] += bench.Of(ids[i]).trace->recomputed_tokens;
    }
    preemptions[with_drive ? 1 : 0] = bench.engine().Stats().preemptions;
    if (with_drive) {
      EXPECT_GT(bench.engine().Stats().tiers.swapped_blocks, 0u);
    }
    bench.ExpectNoLeak();
  }
  EXPECT_GT(preemptions[0], 0u);
  EXPECT_GT(preemptions[1], 0u);
  EXPECT_LT(recomputed[1], recomputed[0] / 2);
}

TEST(EngineTier, WhatMemoryHadToGiveUpComesBackFromColdMemory) {
  kv::SimDrive drive(11);
  for (const bool with_drive : {false, true}) {
    Bench bench({.frames = 48,  // 768 tokens.
                 .disk = with_drive ? drive.Open() : nullptr,
                 .cold_blocks = 128,
                 .admission = "all"});
    std::vector<GenerationRequest> requests;
    std::vector<std::vector<TokenId>> expected;
    for (uint64_t i = 0; i < 4; ++i) {
      requests.push_back(Greedy(400, 10 + i));
      expected.push_back(Expected(requests.back()));
      EXPECT_EQ(bench.Solo(requests.back()).tokens, expected.back());
    }
    for (size_t round = 0; round < 2; ++round) {
      for (size_t i = 0; i < requests.size(); ++i) {
        const Answer answer = bench.Solo(requests[i]);
        EXPECT_EQ(answer.tokens, expected[i]) << i;
        EXPECT_GE(answer.usage.cached_tokens, 384u) << i;
      }
    }
    const std::vector<kv::TierFigures> tiers = bench.engine().Stats().tier_figures;
    ASSERT_EQ(tiers.size(), with_drive ? 2u : 1u);
    EXPECT_EQ(tiers[0].name, "cold_memory");
    EXPECT_GT(tiers[0].read_blocks, 120u);
    if (with_drive) {
      EXPECT_EQ(tiers[1].read_blocks, 0u);  // Cold memory is asked first.
      EXPECT_GT(tiers[1].stored_blocks, 60u);
    }
    bench.ExpectNoLeak();
  }
}

TEST(EngineTier, NothingIsLostOnTheWayToColdMemory) {
  Bench bench({.frames = 384, .cold_blocks = 1024});  // In several buckets, whose oldest blocks differ.
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 5; ++i) bench.Solo(requests.emplace_back(Greedy(2000, 30 + i)));
  for (int round = 0; round < 2; ++round) {
    for (const GenerationRequest& request : requests) EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 1984u);
  }
}

TEST(EngineTier, WhatTheDriveGaveComesFromColdMemoryTheNextTime) {
  kv::SimDrive drive(12);
  const GenerationRequest request = Greedy(400, 12), other = Greedy(740, 13);
  const std::vector<TokenId> expected = Expected(request);
  Bench({.disk = drive.Open()}).Solo(request);
  Bench bench({.frames = 48, .disk = drive.Open(), .cold_blocks = 128});
  for (int round = 0; round < 3; ++round) {
    const Answer answer = bench.Solo(request);
    EXPECT_EQ(answer.tokens, expected);
    EXPECT_EQ(answer.usage.cached_tokens, 384u);
    EXPECT_GE(answer.trace->restored_tokens, 320u);
    EXPECT_EQ(bench.drive().Figures().front().read_blocks, 24u);
    bench.Solo(other);  // Takes nearly all of hot memory.
  }
}

TEST(EngineTier, ColdMemoryIsWrittenToTheDriveWhenTheEngineStops) {
  kv::SimDrive drive(13);
  const GenerationRequest request = Greedy(400, 14);
  {
    Bench bench({.frames = 48, .disk = drive.Open(), .cold_blocks = 128, .admission = "a5"});
    bench.Solo(request);
    bench.Solo(Greedy(700, 15));
    EXPECT_EQ(bench.drive().Figures().front().stored_blocks, 0u);  // Used once.
    bench.engine().Start();
    bench.engine().Stop(/*drain=*/true);
  }
  Bench bench({.frames = 48, .disk = drive.Open()});
  EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 384u);
}

TEST(EngineTier, WhoIsPreemptedGetsItsBlocksBackFromColdMemory) {
  std::vector<GenerationRequest> requests;
  Bench bench({.frames = 64, .cold_blocks = 128});  // 1024 tokens.
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(Greedy(250, 20 + i, 200));
    ids.push_back(bench.Submit(requests.back()));
  }
  bench.Finish();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(bench.Of(ids[i]).tokens, Expected(requests[i]));
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  EXPECT_GT(bench.engine().Stats().tiers.restored_blocks, 0u);
  bench.ExpectNoLeak();
}

TEST(EngineTier, Int8ColdMemoryIsNearAndItsFramesAddUp) {
  Bench bench({.frames = 48, .cold_blocks = 128, .codec = "int8"});
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) bench.Solo(requests.emplace_back(Greedy(400, 10 + i)));
  for (const GenerationRequest& request : requests) EXPECT_GE(bench.Solo(request).usage.cached_tokens, 384u);
  const kv::TierFigures tier = bench.engine().Stats().tier_figures.front();
  EXPECT_EQ(tier.codec, "int8");
  EXPECT_FALSE(tier.lossless);
  bench.ExpectNoLeak();
}

/// The real clock, which may be put forward.
class ShiftedClock final : public Clock {
 public:
  TimeNs Now() const override { return real_.Now() + shift_ns_; }
  void Pass(int64_t ns) { shift_ns_ += ns; }

 private:
  RealClock real_;
  int64_t shift_ns_ = 0;
};

constexpr int64_t kMinuteNs = 60'000'000'000;

GenerationRequest ForgottenIn(GenerationRequest request, int64_t ns, uint32_t begin = 0, uint32_t end = kv::kToTheEnd) {
  request.retain = {{.begin = begin, .end = end, .for_ns = ns, .forget = true}};
  return request;
}

TEST(EngineTier, WhatIsToBeForgottenNeverLeavesHotMemory) {
  for (const std::string_view admission : {"through", "all", "a5"}) {
    kv::SimDrive drive(14);
    ShiftedClock clock;
    const GenerationRequest request = Greedy(400, 16);
    {
      Bench bench({.frames = 48, .clock = &clock, .disk = drive.Open(), .cold_blocks = 128, .admission = admission});
      bench.Solo(ForgottenIn(request, kMinuteNs));
      EXPECT_EQ(bench.drive().Figures().front().stored_blocks, 0u) << admission;
      EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 399u) << "until then it is in memory";
      for (uint64_t i = 0; i < 3; ++i) bench.Solo(Greedy(700, 40 + i));  // It has to go.
      EXPECT_EQ(bench.Solo(request).trace->restored_tokens, 0u) << admission;
      bench.Solo(ForgottenIn(request, kMinuteNs));
      bench.engine().Start();
      bench.engine().Stop(/*drain=*/true);
    }
    Bench bench({.clock = &clock, .disk = drive.Open()});
    EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 0u) << "no restart brings it back: " << admission;
  }
}

TEST(EngineTier, WhatTiersHadOfATextThatIsToBeForgottenIsGone) {
  kv::SimDrive drive(15);
  ShiftedClock clock;
  const GenerationRequest request = Greedy(400, 17), other = Greedy(300, 18);
  const std::vector<TokenId> expected = Expected(request);
  {
    Bench bench({.frames = 48, .clock = &clock, .disk = drive.Open(), .cold_blocks = 128});
    bench.Solo(request);
    bench.Solo(other);
    bench.Solo(Greedy(740, 19));  // Now both are in cold memory as well.
    ASSERT_GE(bench.engine().Stats().tier_figures.front().blocks, 40u);
    const Answer again = bench.Solo(ForgottenIn(request, kMinuteNs));
    EXPECT_EQ(again.tokens, expected);
    EXPECT_EQ(again.usage.cached_tokens, 384u);
    bench.Finish();
    EXPECT_EQ(bench.drive().Figures().front().forgotten_blocks, 25u);  // With one of the answer.
    clock.Pass(kMinuteNs);
    bench.Finish();
    const Answer after = bench.Solo(request);
    EXPECT_EQ(after.tokens, expected);
    EXPECT_EQ(after.usage.cached_tokens, 0u);
    EXPECT_EQ(bench.Solo(other).usage.cached_tokens, 288u) << "others stay";
    bench.ExpectNoLeak();
    drive.faults.crash_after = drive.operations();
  }
  drive.Crash(/*power=*/true);
  Bench bench({.clock = &clock, .disk = drive.Open()});
  EXPECT_EQ(bench.Solo(other).usage.cached_tokens, 288u);
}

TEST(EngineTier, OfATextInPartForgottenTheBeginningAloneComesBack) {
  kv::SimDrive drive(16);
  ShiftedClock clock;
  const GenerationRequest request = Greedy(400, 20);
  Bench bench({.clock = &clock, .disk = drive.Open(), .cold_blocks = 128});
  bench.Solo(ForgottenIn(request, kMinuteNs, 160, 200));
  bench.Finish();
  clock.Pass(kMinuteNs);
  bench.Finish();
  const Answer answer = bench.Solo(request);
  EXPECT_EQ(answer.usage.cached_tokens, 160u);
  EXPECT_EQ(answer.tokens, Expected(request));
}

/// Two conversations of several turns and some single questions on a small pool, with restarts in between, on a drive
/// that does what it likes: answers are those of a server without any memory.
void Torment(uint64_t seed) {
  SCOPED_TRACE(seed);
  Prng prng(seed);
  kv::SimDrive drive(seed);
  const std::string_view admissions[] = {"through", "all", "a5"};
  std::vector<GenerationRequest> texts = {Greedy(150, seed), Greedy(90, seed + 1)};
  std::vector<std::vector<TokenId>> answers;
  for (const GenerationRequest& text : texts) answers.push_back(Expected(text));
  for (int life = 0; life < 3; ++life) {
    drive.faults = {};
    double* const chances[] = {&drive.faults.torn_write,  &drive.faults.misdirected_write, &drive.faults.lost_write,
                               &drive.faults.flipped_bit, &drive.faults.flipped_read,      &drive.faults.short_read,
                               &drive.faults.read_error,  &drive.faults.write_error,       &drive.faults.sync_error,
                               &drive.faults.name_error};
    for (double* chance : chances) {
      if (prng.Below(3) == 0) *chance = 0.3 * prng.Uniform();
    }
    if (prng.Below(4) == 0) drive.faults.room_bytes = prng.Below(8 << 20);
    if (prng.Below(3) == 0) drive.faults.crash_after = drive.operations() + prng.Below(60);
    {
      Bench bench({.frames = static_cast<uint32_t>(24 + prng.Below(30)),
                   .disk = drive.Open(),
                   .cold_blocks = static_cast<uint32_t>(prng.Below(2) * prng.Below(60)),
                   .admission = admissions[prng.Below(3)]});
      for (int round = 0; round < 3; ++round) {
        std::vector<RequestId> ids;
        std::vector<size_t> of;
        for (size_t i = 0; i < texts.size(); ++i) {
          if (prng.Below(3) == 0) continue;
          of.push_back(i);
          ids.push_back(bench.Submit(texts[i]));
          if (prng.Below(4) == 0) bench.Turn();
        }
        bench.engine().Cancel(bench.Submit(Greedy(200, prng.Next())));
        bench.Submit(Greedy(static_cast<uint32_t>(20 + prng.Below(200)), prng.Next()));
        bench.Finish();
        for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(bench.Of(ids[i]).tokens, answers[of[i]]);
        const size_t grown = prng.Below(texts.size());
        if (texts[grown].prompt.size() < 300) {
          texts[grown] = After(texts[grown], answers[grown], 20, prng.Next());
          answers[grown] = Expected(texts[grown]);
        }
      }
      bench.ExpectNoLeak();
      if (prng.Below(2) == 0) drive.faults.crash_after = drive.operations();
    }
    drive.Crash(/*power=*/prng.Below(2) == 0);
  }
}

TEST(EngineTier, WhateverTheDriveDoesAnswersAreRightAndFramesAddUp) {
  for (uint64_t seed = 1; seed <= 12; ++seed) Torment(seed);
}

}  // namespace
}  // namespace kvist::engine
