// Blocks that are split, moved page by page and put together again while sequences go on: whole models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/prng.h"
#include "exec/cpu/executor_testutil.h"
#include "exec/cpu/golden_testutil.h"

namespace kvist::exec {
namespace {

/// Sequences whose texts are known beforehand, one executor and its memory.
class World {
 public:
  World(const std::string& name, const TestExecutor::Options& options)
      : executor_(GoldenFolder() / (name + ".gguf"), options) {}

  kv::KvMemory& memory() { return executor_.memory(); }
  uint32_t vocab() const { return executor_.vocab(); }

  RequestId Begin(const std::vector<TokenId>& text) {
    const RequestId id{texts_.size() + 1};
    memory().Begin(id, 0, text);
    texts_.push_back(text);
    return id;
  }

  /// The next `count` tokens of each sequence in one step. @return  their logits, sequence by sequence.
  std::vector<float> Step(const std::vector<RequestId>& ids, uint32_t count,
                          const std::vector<kv::BlockCopy>& moves = {}) {
    const step::StepResult result = executor_.Execute(Plan(ids, count, moves));
    for (const RequestId id : ids) {
      memory().Commit(id, std::span(TextOf(id)).subspan(memory().CommittedTokens(id), count));
    }
    for (const kv::BlockCopy& move : moves) memory().FinishMove(move);
    memory().CheckInvariants();
    return result.logits;
  }

  /// What the executor says to a step that cannot run.
  absl::Status Refusal(RequestId id) { return executor_.executor().Submit(Plan({id}, 1, {})); }

 private:
  const std::vector<TokenId>& TextOf(RequestId id) const { return texts_[id.value - 1]; }

  step::StepPlan Plan(const std::vector<RequestId>& ids, uint32_t count, const std::vector<kv::BlockCopy>& moves) {
    step::StepPlan plan;
    for (const RequestId id : ids) {
      const uint32_t done = memory().CommittedTokens(id);
      EXPECT_TRUE(memory().Reserve(id, done + count));
      if (const auto copy = memory().TakeCopy(id)) plan.block_copies.push_back(*copy);
      const auto segments_begin = static_cast<uint32_t>(plan.segments.size());
      memory().AppendView(id, count, plan.segments);
      plan.slices.push_back({.request = id,
                             .position = done,
                             .tokens_begin = static_cast<uint32_t>(plan.tokens.size()),
                             .tokens_count = count,
                             .segments_begin = segments_begin,
                             .segments_count = static_cast<uint32_t>(plan.segments.size()) - segments_begin,
                             .tail = memory().SpanOf(id),
                             .tail_begin = memory().TailTokens(id),
                             .commit_count = count,
                             .logits_rows = count});
      for (uint32_t t = 0; t < count; ++t) plan.tokens.push_back({TextOf(id)[done + t]});
    }
    plan.block_copies.insert(plan.block_copies.end(), moves.begin(), moves.end());
    return plan;
  }

  TestExecutor executor_;
  std::vector<std::vector<TokenId>> texts_;
};

/// Two sequences with a long common beginning decode side by side. With `splits`, every full block that the first one
/// sees is split; then, step by step, every page of each is moved elsewhere; then they are put together again.
std::vector<float> DecodeTwo(World& world, bool splits) {
  std::vector<TokenId> text = RandomTokens(620, 1), other = text;
  for (size_t i = 560; i < other.size(); ++i) other[i] = TokenId{(other[i].value + 1) % 288};
  const RequestId first = world.Begin(text);
  std::vector<float> logits = world.Step({first}, 500);
  world.Step({first}, 90);
  const RequestId second = world.Begin(other);
  EXPECT_EQ(world.memory().CommittedTokens(second), 560u);
  const auto decode = [&](const std::vector<kv::BlockCopy>& moves) {
    const std::vector<float> rows = world.Step({first, second}, 1, moves);
    logits.insert(logits.end(), rows.begin(), rows.end());
  };
  kv::KvMemory& memory = world.memory();
  const SpanId span = memory.SpanOf(first);
  std::vector<uint32_t> blocks(35);
  std::iota(blocks.begin(), blocks.end(), 0u);
  const uint32_t steps = 24;
  for (uint32_t step = 0; step < steps; ++step) {
    std::vector<kv::BlockCopy> moves;
    if (splits && step == 1) {
      for (const uint32_t block : blocks) EXPECT_TRUE(memory.SplitBlock(span, block));
    }
    for (const uint32_t block : blocks) {
      if (!splits || step < 2 || block % 11 != step % 11) continue;
      std::vector<uint32_t> pages(memory.spans().PagesOf(memory.spans().FrameOf(span, block)).size());
      std::iota(pages.begin(), pages.end(), 0u);
      const std::vector<kv::PageEntry> before(memory.spans().PagesOf(memory.spans().FrameOf(span, block)).begin(),
                                              memory.spans().PagesOf(memory.spans().FrameOf(span, block)).end());
      const bool merge = step >= 13;
      const auto move = merge ? memory.MergeBlock(span, block) : memory.MovePages(span, block, pages);
      EXPECT_TRUE(move.has_value());
      moves.push_back(*move);
    }
    decode(moves);
  }
  for (const uint32_t block : blocks) {
    EXPECT_EQ(memory.spans().At(span, block).state, kv::PageState::kSealed) << block;
  }
  return logits;
}

TEST(SplitBlocks, PagesMoveWhileSequencesDecodeWithoutChangingABit) {
  for (const char* name : {"llama", "gemma3"}) {
    for (const kernels::Isa isa : kernels::SupportedIsas()) {
      if (isa == kernels::Isa::kReference) continue;  // Slow; its kernels are the others' definition.
      for (const KvType kv_type : {KvType::kF16, KvType::kQ8}) {
        SCOPED_TRACE(testing::Message() << name << " " << kernels::IsaName(isa) << " " << KvTypeName(kv_type));
        const auto run = [&](uint32_t threads, bool splits) {
          World world(name,
                      {.threads = threads, .isa = isa, .context_tokens = 1024, .kv_type = kv_type, .reuse = true});
          return DecodeTwo(world, splits);
        };
        const std::vector<float> whole = run(1, false);
        for (const uint32_t threads : {1u, 3u}) {
          const std::vector<float> split = run(threads, true);
          ASSERT_EQ(split.size(), whole.size());
          EXPECT_EQ(std::memcmp(split.data(), whole.data(), whole.size() * sizeof(float)), 0) << threads << " threads";
        }
      }
    }
  }
}

// What was split may be copied from like any other block.
TEST(SplitBlocks, AForkInsideASplitBlockReadsItsCopy) {
  const std::vector<TokenId> text = RandomTokens(60, 3);
  std::vector<TokenId> other = text;
  other[27] = TokenId{5};
  std::vector<float> expected;
  for (const bool split : {false, true}) {
    World world("llama", {.threads = 2, .reuse = true});
    const RequestId first = world.Begin(text);
    world.Step({first}, 59);
    if (split) {
      ASSERT_TRUE(world.memory().SplitBlock(world.memory().SpanOf(first), 1));
    }
    const RequestId second = world.Begin(other);
    EXPECT_EQ(world.memory().CommittedTokens(second), 27u);
    const std::vector<float> logits = world.Step({second}, 20);
    if (!split) expected = logits;
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
  }
}

TEST(SplitBlocks, APageThatIsGoneStopsThoseWhoReadItOnly) {
  World world("llama", {.reuse = true});
  const RequestId first = world.Begin(RandomTokens(80, 4)), second = world.Begin(RandomTokens(80, 5));
  world.Step({first, second}, 40);
  const SpanId span = world.memory().SpanOf(first);
  ASSERT_TRUE(world.memory().SplitBlock(span, 0));
  const std::vector<uint32_t> page = {1};
  world.memory().DropPages(span, 0, page);
  const absl::Status refusal = world.Refusal(first);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refusal.message()), testing::HasSubstr("the keys of head 1 in layer 0"));
  EXPECT_EQ(world.Step({second}, 10).size(), size_t{10} * world.vocab());
}

}  // namespace
}  // namespace kvist::exec
