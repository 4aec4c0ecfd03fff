// What requests use adds up to the engine's own totals, and tenants keep to their quotas, on the real small model.

#include <gtest/gtest.h>

#include <deque>

#include "base/prng.h"
#include "engine/engine_testutil.h"
#include "kv/tier/sim_disk.h"

namespace kvist::engine {
namespace {

/// Keeps every meter.
class Book final : public MeterBook {
 public:
  Meter* Open(RequestId /*id*/, const GenerationRequest& request) override {
    if (meters_.size() == places_) return nullptr;
    tenants_.push_back(request.tenant);
    return &meters_.emplace_back();
  }
  void Close(Meter* /*meter*/, FinishReason reason) override {
    ++closed_;
    cancelled_ += reason == FinishReason::kCancelled ? 1 : 0;
  }

  void TakeHoldings(std::span<const kv::TierHolding> holdings) override {
    holdings_.assign(holdings.begin(), holdings.end());
    ++told_;
  }

  size_t places_ = SIZE_MAX;
  std::deque<Meter> meters_;
  std::vector<TenantId> tenants_;
  size_t closed_ = 0, cancelled_ = 0, told_ = 0;
  std::vector<kv::TierHolding> holdings_;
};

void ExpectSums(Bench& bench, const Book& book) {
  const EngineStats stats = bench.engine().Stats();
  Meter sum;
  for (const Meter& meter : book.meters_) {
    sum.prompt_tokens += meter.prompt_tokens;
    sum.cached_tokens += meter.cached_tokens;
    sum.computed_tokens += meter.computed_tokens;
    sum.generated_tokens += meter.generated_tokens;
    sum.preemptions += meter.preemptions;
    sum.step_share_ns += meter.step_share_ns;
    sum.kv_hot_block_ns += meter.kv_hot_block_ns;
    EXPECT_GE(meter.total_ns, meter.first_token_ns);
    EXPECT_GE(meter.kv_hot_block_ns, 0);
  }
  EXPECT_EQ(sum.prompt_tokens, stats.prompt_tokens);
  EXPECT_EQ(sum.cached_tokens, stats.cached_tokens);
  EXPECT_EQ(sum.computed_tokens, stats.computed_tokens);
  EXPECT_EQ(sum.generated_tokens, stats.generated_tokens);
  EXPECT_EQ(sum.preemptions, stats.preemptions);
  EXPECT_EQ(static_cast<uint64_t>(sum.step_share_ns), stats.step_ns) << "to the nanosecond";
  const kv::HeldTotals held = bench.memory().held();
  EXPECT_GT(held.referenced, 0);
  EXPECT_GT(held.cached, 0);
  EXPECT_NEAR(sum.kv_hot_block_ns, held.referenced, 1e-9 * held.referenced);
}

TEST(EngineMetering, SumsAreTheEnginesTotalsUnderLoadCancelsAndPreemption) {
  Prng prng(11);
  Bench bench({.frames = 48, .chunk = 40});
  Book book;
  bench.engine().SetMeterBook(&book);
  std::vector<RequestId> ids;
  for (int i = 0; i < 60; ++i) {
    // Texts of three families, so that blocks are shared, copied in part, and given way.
    GenerationRequest request =
        Greedy(20 + static_cast<uint32_t>(prng.Below(120)), i % 3, 1 + static_cast<uint32_t>(prng.Below(60)));
    if (i % 5 == 0) request.retain = {{.begin = 0, .end = kv::kToTheEnd, .retention = kv::Retention::kHigh}};
    ids.push_back(bench.Submit(std::move(request)));
    for (uint64_t turns = prng.Below(8); turns > 0; --turns) bench.Turn();
    if (i % 4 == 3) bench.engine().Cancel(ids[prng.Below(ids.size())]);
  }
  bench.Finish();
  EXPECT_EQ(book.closed_, 60u);
  EXPECT_GT(book.cancelled_, 0u);
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  ExpectSums(bench, book);
  bench.ExpectNoLeak();
}

TEST(EngineMetering, SharedBlocksAreSplitEvenly) {
  Bench bench({.chunk = 512});
  Book book;
  bench.engine().SetMeterBook(&book);
  bench.Solo(Greedy(320, 5, 1));
  const double before = bench.memory().held().referenced;
  for (int i = 0; i < 4; ++i) bench.Submit(Greedy(320, 5, 40));  // Twenty blocks are shared by all four.
  bench.Finish();
  const double whole = bench.memory().held().referenced - before;
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GT(book.meters_[i].kv_hot_block_ns, whole * 0.15) << i;
    EXPECT_LT(book.meters_[i].kv_hot_block_ns, whole * 0.35) << i;
  }
  ExpectSums(bench, book);
}

TEST(EngineMetering, WhatTiersHoldIsToldByTenantAlsoWhileNothingRunsAndAtTheEnd) {
  constexpr int64_t kSecond = 1'000'000'000;
  VirtualClock clock;
  kv::SimDrive drive(1);
  Book book;
  double drive_byte_ns = 0;
  {
    Bench bench({.frames = 48, .clock = &clock, .disk = drive.Open(), .cold_blocks = 128});
    bench.engine().SetMeterBook(&book);
    EXPECT_LE(bench.engine().NextDeadline(), clock.Now());
    for (uint32_t tenant = 1; tenant <= 2; ++tenant) {
      GenerationRequest request = Greedy(320 * tenant, tenant, 1);
      request.tenant_key = request.cache_namespace = tenant;
      bench.Solo(request);
    }
    const kv::StoreIndex& index = bench.drive().store().index();
    const double record_bytes = static_cast<double>(index.live_bytes()) / static_cast<double>(index.size());
    ASSERT_EQ(index.size(), 60u);
    EXPECT_EQ(bench.engine().NextDeadline(), TimeNs{10 * kSecond});
    clock.AdvanceTo(TimeNs{10 * kSecond});
    EXPECT_FALSE(bench.engine().RunOnce());
    const auto told = [&](std::string_view tier, uint32_t owner) {
      double byte_ns = 0;
      for (const kv::TierHolding& holding : book.holdings_) {
        if (holding.tier == tier && holding.owner == TenantId{owner}) byte_ns += holding.byte_ns;
      }
      return byte_ns;
    };
    EXPECT_DOUBLE_EQ(told("drive", 1), 20 * record_bytes * 10 * kSecond);
    EXPECT_DOUBLE_EQ(told("drive", 2), 40 * record_bytes * 10 * kSecond);
    const double cold = told("cold_memory", 1) + told("cold_memory", 2);
    EXPECT_DOUBLE_EQ(cold, static_cast<double>(bench.engine().Stats().tier_figures.front().bytes) * 10 * kSecond);
    EXPECT_GT(cold, 0);
    const size_t times = book.told_;
    clock.AdvanceTo(TimeNs{13 * kSecond});
    bench.engine().RunOnce();
    EXPECT_EQ(book.told_, times);
    drive_byte_ns = 60 * record_bytes * 13 * kSecond;
  }
  double told = 0;
  for (const kv::TierHolding& holding : book.holdings_) told += holding.tier == "drive" ? holding.byte_ns : 0;
  EXPECT_DOUBLE_EQ(told, drive_byte_ns) << "the rest at the end";
}

TEST(EngineMetering, NobodyIsServedWithoutAMeter) {
  Bench bench({});
  Book book;
  book.places_ = 1;
  bench.engine().SetMeterBook(&book);
  EXPECT_EQ(bench.Solo(Greedy(20, 1, 3)).finish, FinishReason::kLength);
  EXPECT_EQ(bench.Solo(Greedy(20, 1, 3)).status.code(), absl::StatusCode::kResourceExhausted);
  ExpectSums(bench, book);
}

TEST(EngineQuota, ATenantKeepsToItsBlocksAndAnswersStayTheSame) {
  constexpr uint32_t kQuota = 14, kMax = 60;
  Bench roomy({});
  std::vector<Answer> expected;
  for (uint64_t i = 0; i < 5; ++i) expected.push_back(roomy.Solo(Greedy(50, 100 + i, kMax)));
  Bench bench({});
  std::vector<RequestId> bounded, others;
  for (uint64_t i = 0; i < 5; ++i) {
    GenerationRequest request = Greedy(50, 100 + i, kMax);
    request.tenant = TenantId{1};
    request.tenant_blocks_max = kQuota;
    bounded.push_back(bench.Submit(request));
    request.tenant = TenantId{2};
    request.tenant_blocks_max = 0;
    request.cache_namespace = 2;
    others.push_back(bench.Submit(request));
  }
  uint32_t most = 0, most_others = 0;
  const auto blocks_of = [](const MemorySnapshot& snapshot, uint32_t tenant) {
    uint32_t blocks = 0;
    for (const RequestMemory& request : snapshot.requests)
      blocks += request.tenant.value == tenant ? request.blocks_own : 0;
    return blocks;
  };
  while (bench.engine().Stats().waiting + bench.engine().Stats().running > 0 || most_others == 0) {
    bench.engine().Inspect(SnapshotDetail::kRequests, [&](const MemorySnapshot& snapshot) {
      most = std::max(most, blocks_of(snapshot, 1));
      most_others = std::max(most_others, blocks_of(snapshot, 2));
    });
    bench.Turn();
  }
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(bench.Of(bounded[i]).tokens, expected[i].tokens) << i;
    EXPECT_EQ(bench.Of(others[i]).tokens, expected[i].tokens) << i;
  }
  EXPECT_GT(most, kQuota / 2) << "several at once where they fit";
  EXPECT_LE(most, kQuota + 5) << "no more than a step's growth beyond it";
  EXPECT_GT(most_others, kQuota + 5) << "others are not bounded by it";
  bench.ExpectNoLeak();
}

TEST(EngineQuota, PinsCountForWhoPinned) {
  VirtualClock clock;
  Bench bench({.clock = &clock});
  constexpr uint32_t kQuota = 16;
  constexpr int64_t kMinute = 60'000'000'000;
  const auto of = [](uint32_t tenant, uint32_t tokens, uint64_t seed) {
    GenerationRequest request = Greedy(tokens, seed, 2);
    request.tenant = TenantId{tenant};
    request.tenant_blocks_max = kQuota;
    return request;
  };
  GenerationRequest pins = of(1, 190, 1);  // 12 blocks.
  pins.retain = {{.retention = kv::Retention::kPinned, .for_ns = kMinute}};
  const Answer pinned = bench.Solo(pins);
  EXPECT_EQ(pinned.usage.pinned_blocks, kQuota / 2) << "the other half is for requests";
  EXPECT_EQ(pinned.usage.not_pinned_blocks, 4u);
  EXPECT_EQ(bench.memory().PinnedBlocks(TenantId{1}), kQuota / 2);
  EXPECT_EQ(bench.memory().PinnedBlocks(TenantId{2}), 0u);
  // What they leave is for its requests; those of others have all of theirs, also where they pin the same text.
  const Answer refused = bench.Solo(of(1, 130, 2));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status.message().find("8 of the 16"), absl::string_view::npos) << refused.status;
  EXPECT_EQ(bench.Solo(of(1, 100, 3)).finish, FinishReason::kLength);
  EXPECT_EQ(bench.Solo(of(2, 130, 2)).finish, FinishReason::kLength);
  pins.tenant = TenantId{2};
  EXPECT_EQ(bench.Solo(pins).usage.pinned_blocks, 12u) << "eight that are pinned already, and four of its own";
  EXPECT_EQ(bench.memory().PinnedBlocks(TenantId{2}), 4u);
  clock.AdvanceTo(TimeNs{2 * kMinute});
  bench.Turn();
  EXPECT_EQ(bench.memory().PinnedBlocks(TenantId{1}), 0u);
  EXPECT_EQ(bench.Solo(of(1, 130, 2)).finish, FinishReason::kLength);
  bench.ExpectNoLeak();
}

TEST(EngineQuota, WhatCanNeverFitIsRefusedAndOutputsEndAtTheQuota) {
  Bench bench({});
  GenerationRequest request = Greedy(64, 1, 1000);
  request.tenant = TenantId{1};
  request.tenant_blocks_max = 4;
  const Answer refused = bench.Solo(request);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("4 blocks"), absl::string_view::npos);
  request.tenant_blocks_max = 6;
  const Answer bounded = bench.Solo(request);
  EXPECT_EQ(bounded.finish, FinishReason::kLength);
  EXPECT_EQ(bounded.usage.output_tokens, 32u);
  bench.ExpectNoLeak();
}

}  // namespace
}  // namespace kvist::engine
