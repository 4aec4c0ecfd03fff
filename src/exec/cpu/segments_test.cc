// Views of segments, in whole models: cut, shifted, shared, with copied blocks.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/prng.h"
#include "exec/cpu/golden_testutil.h"
#include "exec/cpu/graph_reference_testutil.h"
#include "exec/cpu/segments_testutil.h"

namespace kvist::exec {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// The same sequence in double: which of its tokens it sees, and how far they were moved.
class ReferenceSequence {
 public:
  ReferenceSequence(const model::Model& model, uint32_t context_tokens) : reference_(model, context_tokens) {}

  /// @param moved  false: keys stay where they were, as if nobody had turned anything.
  std::vector<double> Append(std::span<const TokenId> tokens, bool moved = true) {
    std::vector<double> logits;
    for (TokenId token : tokens) {
      std::vector<GraphReference::Seen> view = view_;
      for (GraphReference::Seen& seen : view) seen.position_shift *= moved;
      const std::vector<double> row = reference_.Next(token, position_++, view);
      logits.insert(logits.end(), row.begin(), row.end());
      view_.push_back({count_++, 0});
    }
    return logits;
  }

  void Drop(uint32_t begin, uint32_t end) {
    view_.erase(view_.begin() + begin, view_.begin() + end);
    for (uint32_t i = begin; i < view_.size(); ++i) view_[i].position_shift -= static_cast<int32_t>(end - begin);
    position_ -= static_cast<int32_t>(end - begin);
  }

 private:
  GraphReference reference_;
  std::vector<GraphReference::Seen> view_;
  uint32_t count_ = 0;
  int32_t position_ = 0;
};

/// RMS of the differences, relative to the deviation of the exact ones.
double RelativeError(const std::vector<float>& logits, const std::vector<double>& exact) {
  EXPECT_EQ(logits.size(), exact.size());
  double mean = 0, squares = 0, errors = 0;
  for (double x : exact) mean += x / static_cast<double>(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    squares += (exact[i] - mean) * (exact[i] - mean);
    errors += (double{logits[i]} - exact[i]) * (double{logits[i]} - exact[i]);
  }
  return std::sqrt(errors / squares);
}

/// Works on a SegmentSequence (with `append` through an executor) and on a ReferenceSequence alike: three stretches of
/// tokens, before the second and third of which ranges go.
template <class Sequence, class Append>
auto ThreeTurns(Sequence& sequence, const std::vector<TokenId>& tokens, const Append& append) {
  append(std::span(tokens).first(40));
  sequence.Drop(7, 22);
  auto logits = append(std::span(tokens).subspan(40, 15));
  sequence.Drop(30, 33);
  sequence.Drop(2, 5);
  for (auto x : append(std::span(tokens).subspan(55))) logits.push_back(x);
  return logits;
}

class ShiftedModel : public testing::TestWithParam<std::string> {};

// Every rotary variant: adjacent pairs, halves, some dimensions only, scaled, two kinds and windows.
TEST_P(ShiftedModel, DroppedRangesGiveWhatRotatingTheKeysWouldGive) {
  const boost::json::object golden = ReadJson(GoldenFolder() / (GetParam() + ".json"));
  const std::vector<TokenId> tokens = TokensOf(golden.at("tokens"));
  const auto number = [&](const char* key) { return golden.at(key).to_number<double>(); };
  const uint32_t context = golden.contains("context") ? golden.at("context").to_number<uint32_t>() : 0;
  std::vector<double> exact, unmoved;
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    for (KvType kv_type : {KvType::kF16, KvType::kQ8}) {
      SegmentWorld world(PathOf(GetParam()), {.threads = 2, .isa = isa, .kv_type = kv_type, .context_tokens = context});
      if (exact.empty()) {
        ReferenceSequence reference(world.model(), world.context_tokens()),
            still(world.model(), world.context_tokens());
        exact = ThreeTurns(reference, tokens, [&](auto part) { return reference.Append(part); });
        unmoved = ThreeTurns(still, tokens, [&](auto part) { return still.Append(part, /*moved=*/false); });
      }
      SegmentSequence sequence;
      world.NewTail(sequence, 8);
      const std::vector<float> logits =
          ThreeTurns(sequence, tokens, [&](auto part) { return world.Append(sequence, part, 11); });
      // As much as keys and values of these types cost without any shift (golden_test.cc).
      const double tolerance =
          kv_type == KvType::kF16 ? 1.5 * number("error_f16_kv") : number("error_int8_activations");
      const double error = RelativeError(logits, exact);
      EXPECT_LT(error, tolerance) << kernels::IsaName(isa) << " " << KvTypeName(kv_type);
      EXPECT_GT(RelativeError(logits, unmoved), 4 * tolerance);
      RecordProperty(std::string(kernels::IsaName(isa)) + "_" + std::string(KvTypeName(kv_type)),
                     std::to_string(error));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShiftedModel,
                         testing::Values("f32", "bf16", "llama", "llama_head_dim", "llama_linear", "llama_llama3",
                                         "llama_yarn", "gemma3", "phi3", "phi3_long", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

/// Logits of the last stretch of a sequence with several shifts, two of them in one block.
std::vector<float> ShiftedLogits(SegmentWorld& world, uint32_t chunk, bool beside_others) {
  const std::vector<TokenId> tokens = RandomTokens(760, 7);
  SegmentSequence sequence, other, third;
  world.NewTail(sequence, 60);
  world.NewTail(other, 60);
  world.NewTail(third, 60);
  world.Append(sequence, std::span(tokens).first(700), chunk);
  sequence.Drop(10, 23);
  sequence.Drop(27, 300);
  sequence.Drop(29, 30);
  const std::vector<TokenId> last(tokens.begin() + 700, tokens.end());
  if (!beside_others) return world.Append(sequence, last, chunk);
  const std::vector<TokenId> noise = RandomTokens(60, 8);
  world.Append(other, std::span(tokens).first(100));
  other.Drop(3, 50);
  std::vector<float> logits;
  for (uint32_t done = 0; done < last.size(); done += 4) {
    const auto of = [&](const std::vector<TokenId>& all) {
      return std::vector<TokenId>(all.begin() + done, all.begin() + done + 4);
    };
    std::vector<TokenId> one = of(noise);
    one.resize(1);
    const auto rows = world.Step({{&other, of(noise)}, {&sequence, of(last)}, {&third, one}});
    logits.insert(logits.end(), rows[1].begin(), rows[1].end());
  }
  return logits;
}

TEST(Segments, ShiftsGiveTheSameBitsForEveryChunkBatchThreadCountAndInstructionSet) {
  for (const char* name : {"llama", "gemma3"}) {
    for (KvType kv_type : {KvType::kF16, KvType::kQ8}) {
      std::map<kernels::Isa, std::vector<float>> expected;
      for (kernels::Isa isa : kernels::SupportedIsas()) {
        if (isa == kernels::Isa::kReference && kv_type == KvType::kQ8) continue;  // Slow, and the kernels' own test.
        for (uint32_t threads : {1u, 3u}) {
          SCOPED_TRACE(testing::Message() << name << " " << kernels::IsaName(isa) << " " << threads);
          SegmentWorld world(PathOf(name), {.threads = threads, .isa = isa, .kv_type = kv_type});
          std::vector<float>& alone = expected[kernels::BitsOf(isa)];
          if (alone.empty()) alone = ShiftedLogits(world, 512, false);
          EXPECT_TRUE(SameBits(ShiftedLogits(world, threads == 1 ? 1 : 37, false), alone));
          EXPECT_TRUE(SameBits(ShiftedLogits(world, 100, true), alone));
        }
      }
    }
  }
}

TEST(Segments, HowAStretchOfTokensIsCutIntoSegmentsChangesNothing) {
  for (const char* name : {"llama", "gemma3"}) {
    for (kernels::Isa isa : kernels::SupportedIsas()) {
      SegmentWorld world(PathOf(name), {.threads = 2, .isa = isa});
      const std::vector<TokenId> tokens = RandomTokens(120, 1), more = RandomTokens(20, 2);
      std::vector<float> whole;
      for (uint32_t piece : {1000u, 1u, 5u, 16u, 40u}) {
        SegmentSequence sequence;
        world.NewTail(sequence, 10);
        world.Append(sequence, tokens);
        sequence.Drop(20, 31);
        sequence.Cut(piece);
        const std::vector<float> logits = world.Append(sequence, more, 7);
        if (whole.empty()) whole = logits;
        EXPECT_TRUE(SameBits(logits, whole)) << name << " " << kernels::IsaName(isa) << " pieces of " << piece;
      }
    }
  }
}

TEST(Segments, SpansOneAfterAnotherAreOneView) {
  SegmentWorld world(PathOf("llama"), {.threads = 2});
  const std::vector<TokenId> tokens = RandomTokens(90, 3);
  SegmentSequence whole, parts;
  world.NewTail(whole, 8);
  const std::vector<float> expected = world.Append(whole, tokens);
  std::vector<float> logits;
  for (uint32_t done = 0; done < tokens.size(); done += 32) {
    world.NewTail(parts, 2);
    const auto part = std::span(tokens).subspan(done, std::min<size_t>(32, tokens.size() - done));
    const std::vector<float> rows = world.Append(parts, part, 9);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  EXPECT_TRUE(SameBits(logits, expected));
}

// A fork inside a block, through a copy of a copy in one plan.
TEST(Segments, CopiedBlocksAreReadLikeTheirSources) {
  for (uint32_t threads : {1u, 3u}) {
    for (KvType kv_type : {KvType::kF16, KvType::kQ8}) {
      SegmentWorld world(PathOf("gemma3"), {.threads = threads, .kv_type = kv_type});
      const std::vector<TokenId> tokens = RandomTokens(50, 4), other = RandomTokens(20, 5);
      SegmentSequence plain, origin;
      world.NewTail(plain, 4);
      const std::vector<float> all = world.Append(plain, tokens);
      const std::vector<float> expected(all.begin() + static_cast<std::ptrdiff_t>(size_t{21} * world.vocab()),
                                        all.end());
      world.NewTail(origin, 4);
      world.Append(origin, std::span(tokens).first(21));
      SegmentSequence fork = origin;
      fork.Drop(16, 21);
      fork.position += 5;
      world.NewTail(fork, 3, /*first=*/5);
      fork.view.push_back({fork.tail, 0, 5});
      const SpanId between = world.NewSpan(1);
      const std::vector<TokenId> rest(tokens.begin() + 21, tokens.end());
      // The source goes on in the same step: what it writes comes after the copy.
      const auto rows = world.Step({{&origin, other}, {&fork, rest}},
                                   {{.source = origin.tail, .source_block = 1, .target = between, .target_block = 0},
                                    {.source = between, .source_block = 0, .target = fork.tail, .target_block = 0}});
      EXPECT_TRUE(SameBits(rows[1], expected)) << threads << " threads";
    }
  }
}

/// Sixteen sequences over one long beginning, some with more in common: decoded for some steps.
struct SharedRun {
  std::vector<std::vector<float>> logits;  ///< Of each sequence's steps.
  std::vector<uint64_t> kv_bytes_read;     ///< Of each step.
};

SharedRun DecodeShared(SegmentWorld& world, uint32_t sequences, uint32_t steps) {
  const std::vector<TokenId> beginning = RandomTokens(1300, 10), middle = RandomTokens(600, 11);
  SegmentSequence all, some;
  world.NewTail(all, 84);
  world.Append(all, beginning);
  all.Drop(300, 420);  // Shared turns.
  some = all;
  world.NewTail(some, 40);
  world.Append(some, middle);
  std::vector<SegmentSequence> each;
  for (uint32_t i = 0; i < sequences; ++i) {
    each.push_back(i % 3 == 1 ? some : all);
    world.NewTail(each.back(), 12);
    world.Append(each.back(), RandomTokens(1 + 17 * (i % 5), 20 + i));
  }
  SegmentSequence stranger;
  world.NewTail(stranger, 40);
  world.Append(stranger, middle);
  SharedRun run;
  run.logits.resize(sequences + 1);
  for (uint32_t step = 0; step < steps; ++step) {
    std::vector<SegmentWorld::Turn> turns;
    for (uint32_t i = 0; i < sequences; ++i) turns.push_back({&each[i], RandomTokens(1, 100 * step + i)});
    turns.push_back({&stranger, RandomTokens(step % 2 == 0 ? 1 : 3, step)});
    const auto rows = world.Step(turns);
    run.kv_bytes_read.push_back(world.kv_bytes_read());
    for (uint32_t i = 0; i <= sequences; ++i) {
      run.logits[i].insert(run.logits[i].end(), rows[i].begin(), rows[i].end());
    }
  }
  return run;
}

TEST(Segments, ReadingTogetherGivesTheBitsOfReadingAlone) {
  for (const char* name : {"llama", "gemma3", "phi3"}) {
    for (kernels::Isa isa : kernels::SupportedIsas()) {
      if (isa == kernels::Isa::kReference) continue;  // Slow; its kernels are the others' definition.
      for (uint32_t sequences : {2u, 5u, 16u}) {
        const KvType kv_type = sequences == 5 ? KvType::kQ8 : KvType::kF16;
        SCOPED_TRACE(testing::Message() << name << " " << kernels::IsaName(isa) << " " << sequences);
        SegmentWorld apart(PathOf(name),
                           {.isa = isa, .kv_type = kv_type, .share_segments = false, .context_tokens = 2048});
        const SharedRun expected = DecodeShared(apart, sequences, 3);
        for (uint32_t threads : {1u, 2u, 3u}) {
          SegmentWorld world(PathOf(name),
                             {.threads = threads, .isa = isa, .kv_type = kv_type, .context_tokens = 2048});
          const SharedRun run = DecodeShared(world, sequences, 3);
          for (uint32_t i = 0; i <= sequences; ++i) EXPECT_TRUE(SameBits(run.logits[i], expected.logits[i])) << i;
          for (size_t s = 0; s < run.kv_bytes_read.size(); ++s) {
            EXPECT_LE(run.kv_bytes_read[s], expected.kv_bytes_read[s]);
          }
        }
      }
    }
  }
}

// Without windows, each sequence reads its own tokens, and all read the whole sections of the beginning once.
TEST(Segments, SharedTokensAreCountedOnce) {
  const auto bytes_of_step = [](uint32_t threads, bool share) {
    SegmentWorld world(PathOf("llama"), {.threads = threads, .share_segments = share, .context_tokens = 2048});
    SegmentSequence beginning;
    world.NewTail(beginning, 64);
    world.Append(beginning, RandomTokens(1024, 1));
    std::vector<SegmentSequence> each(10, beginning);
    std::vector<SegmentWorld::Turn> turns;
    for (SegmentSequence& sequence : each) {
      world.NewTail(sequence, 2);
      world.Append(sequence, RandomTokens(20, 2));
      turns.push_back({&sequence, RandomTokens(1, 3)});
    }
    world.Step(turns);
    const model::ModelSpec& spec = world.model().spec;
    return world.kv_bytes_read() / (spec.layers * LayoutOf(spec, KvType::kF16).layer_bytes() / kv::kBlockTokens);
  };
  for (uint32_t threads : {1u, 2u}) {
    EXPECT_EQ(bytes_of_step(threads, false), 10u * (1024 + 21));
    EXPECT_EQ(bytes_of_step(threads, true), 1024u + 10 * 21);
  }
}

}  // namespace
}  // namespace kvist::exec
