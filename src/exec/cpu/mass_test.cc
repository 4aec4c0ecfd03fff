// How much attention a token pays to parts of its view, in whole models.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

#include "base/prng.h"
#include "exec/cpu/golden_testutil.h"
#include "exec/cpu/graph_reference_testutil.h"
#include "exec/cpu/segments_testutil.h"

namespace kvist::exec {
namespace {

using Ranges = std::vector<step::ViewRange>;

/// Cuts `tokens` tokens into ranges that leave nothing out: some of one token, some empty, some of many blocks.
Ranges WholeView(uint32_t tokens, uint64_t seed) {
  Prng prng(seed);
  Ranges ranges;
  for (uint32_t at = 0; at < tokens;) {
    const auto longest = static_cast<uint32_t>(prng.Below(3) == 0 ? 3 : 60);
    const uint32_t end = std::min(tokens, at + static_cast<uint32_t>(prng.Below(longest)));
    ranges.push_back({at, end});
    at = end;
  }
  return ranges;
}

/// Attention of the last of some tokens after a range was dropped, in double: [tokens of the view].
std::vector<double> ReferenceAttention(const model::Model& model, uint32_t context, std::span<const TokenId> before,
                                       step::ViewRange dropped, std::span<const TokenId> after) {
  GraphReference reference(model, context);
  std::vector<GraphReference::Seen> view;
  uint32_t count = 0;
  int32_t position = 0;
  const auto append = [&](std::span<const TokenId> tokens) {
    for (TokenId token : tokens) {
      reference.Next(token, position++, view);
      view.push_back({count++, 0});
    }
  };
  append(before);
  view.erase(view.begin() + dropped.begin, view.begin() + dropped.end);
  const auto moved = static_cast<int32_t>(dropped.end - dropped.begin);
  for (size_t i = dropped.begin; i < view.size(); ++i) view[i].position_shift -= moved;
  position -= moved;
  append(after);
  return reference.Attention();
}

class MassModel : public testing::TestWithParam<std::string> {};

// Grouped heads, scaled and partial rotary positions, windows in some layers or in all; part of the view moved up.
TEST_P(MassModel, IsThatOfASoftmaxInDouble) {
  const boost::json::object golden = ReadJson(GoldenFolder() / (GetParam() + ".json"));
  const std::vector<TokenId> all = TokensOf(golden.at("tokens"));
  const std::span<const TokenId> before = std::span(all).first(50), after = std::span(all).subspan(50);
  const uint32_t context = golden.contains("context") ? golden.at("context").to_number<uint32_t>() : 0;
  std::vector<double> exact;
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    for (KvType kv_type : {KvType::kF16, KvType::kQ8}) {
      SCOPED_TRACE(testing::Message() << kernels::IsaName(isa) << " " << KvTypeName(kv_type));
      SegmentWorld world(PathOf(GetParam()), {.threads = 2, .isa = isa, .kv_type = kv_type, .context_tokens = context});
      if (exact.empty()) {
        exact = ReferenceAttention(world.model(), world.context_tokens(), before, {7, 22}, after);
      }
      SegmentSequence sequence;
      world.NewTail(sequence, 8);
      world.Append(sequence, before, 11);
      sequence.Drop(7, 22);
      Ranges ranges = WholeView(static_cast<uint32_t>(exact.size()), 5);
      world.Step({{&sequence, {after.begin(), after.end()}, ranges}});
      const std::vector<float>& mass = world.range_mass();
      ASSERT_EQ(mass.size(), ranges.size());
      EXPECT_NEAR(std::accumulate(mass.begin(), mass.end(), 0.0), 1.0, 1e-5);
      for (size_t i = 0; i < ranges.size(); ++i) {
        const double expected = std::accumulate(exact.begin() + ranges[i].begin, exact.begin() + ranges[i].end, 0.0);
        EXPECT_NEAR(mass[i], expected, (kv_type == KvType::kF16 ? 2e-3 : 1e-2) * (0.01 + expected)) << "range " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MassModel,
                         testing::Values("f32", "llama", "llama_head_dim", "llama_yarn", "gemma3", "phi3", "qwen3"),
                         [](const auto& test) { return test.param; });

/// The last step of a sequence whose view is longer than a section and has a piece moved up.
struct LastStep {
  std::vector<float> mass, logits;
};
LastStep LastStepOf(SegmentWorld& world, uint32_t chunk, bool beside_others, const Ranges& ranges) {
  const std::vector<TokenId> tokens = RandomTokens(740, 7);
  SegmentSequence sequence, other;
  world.NewTail(sequence, 60);
  world.NewTail(other, 60);
  world.Append(sequence, std::span(tokens).first(700), chunk);
  sequence.Drop(10, 73);
  world.Append(sequence, std::span(tokens).subspan(700, 20), chunk);
  const std::vector<TokenId> last(tokens.begin() + 720, tokens.end());
  if (!beside_others) return {.mass = {}, .logits = world.Step({{&sequence, last, ranges}})[0]};
  world.Append(other, std::span(tokens).first(100));
  const auto logits = world.Step({{&other, {tokens[0]}, {{0, 50}}}, {&sequence, last, ranges}});
  return {.mass = {}, .logits = logits[1]};
}

TEST(Mass, AskingChangesNoBitAndNeitherDoesAnythingElseChangeTheAnswer) {
  const Ranges ranges = {{0, 5}, {5, 5}, {20, 600}, {600, 616}, {650, 677}};
  for (const char* name : {"llama", "gemma3"}) {
    std::map<kernels::Isa, LastStep> expected;
    for (kernels::Isa isa : kernels::SupportedIsas()) {
      for (uint32_t threads : {1u, 3u}) {
        for (const bool beside_others : {false, true}) {
          SCOPED_TRACE(testing::Message() << name << " " << kernels::IsaName(isa) << " " << threads << beside_others);
          SegmentWorld world(PathOf(name), {.threads = threads, .isa = isa});
          const LastStep plain = LastStepOf(world, threads == 1 ? 512 : 37, beside_others, {});
          EXPECT_EQ(world.range_mass().size(), beside_others ? 1u : 0u);
          LastStep asked = LastStepOf(world, threads == 1 ? 37 : 512, beside_others, ranges);
          asked.mass = world.range_mass();
          if (beside_others) asked.mass.erase(asked.mass.begin());
          EXPECT_EQ(std::memcmp(asked.logits.data(), plain.logits.data(), 4 * plain.logits.size()), 0);
          LastStep& first = expected.try_emplace(kernels::BitsOf(isa), asked).first->second;
          EXPECT_EQ(asked.mass, first.mass);
          EXPECT_EQ(asked.mass[1], 0.0f);
          EXPECT_LT(std::accumulate(asked.mass.begin(), asked.mass.end(), 0.0f), 1.0f);  // Not all of the view.
        }
      }
    }
  }
}

// Keys of all tokens are read once more, values are not.
TEST(Mass, CountsWhatItReads) {
  SegmentWorld world(PathOf("llama"), {});
  const model::ModelSpec& spec = world.model().spec;
  const auto bytes_of_step = [&](const Ranges& ranges) {
    SegmentSequence sequence;
    world.NewTail(sequence, 20);
    world.Append(sequence, RandomTokens(299, 1));
    world.Step({{&sequence, RandomTokens(1, 2), ranges}});
    return world.kv_bytes_read();
  };
  EXPECT_EQ(bytes_of_step({{0, 10}}) - bytes_of_step({}),
            uint64_t{300} * spec.layers * spec.kv_heads * spec.key_width * sizeof(uint16_t));
}

}  // namespace
}  // namespace kvist::exec
