// Routers at their edges, in whole models: everybody wants the same experts, all experts, equal scores, NaN.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "base/check.h"
#include "exec/cpu/golden_testutil.h"
#include "modelfile/gguf_writer.h"
#include "platform/temp_folder.h"

namespace kvist::exec {
namespace {

using Tensors = std::map<std::string, std::vector<std::byte>, std::less<>>;

/// A golden model with changed tensors, in a file of its own.
class ChangedModel {
 public:
  ChangedModel(const std::string& name, const std::function<void(Tensors&)>& change) {
    auto folder = TempFolder::Create(testing::TempDir());
    auto file = GgufFile::Open(GoldenFolder() / (name + ".gguf"));
    KVIST_CHECK(folder.ok() && file.ok());
    folder_.emplace(*std::move(folder));
    Tensors tensors;
    for (const GgufTensor& t : (*file)->tensors()) tensors[std::string(t.name)] = {t.bytes.begin(), t.bytes.end()};
    change(tensors);
    GgufWriter writer;
    for (const auto& [key, value] : (*file)->metadata()) writer.SetValue(key, value);
    for (const GgufTensor& t : (*file)->tensors())
      writer.AddTensor(t.name, t.dtype, t.dims, std::span<const std::byte>(tensors.find(t.name)->second));
    KVIST_CHECK(writer.WriteFiles(path()).ok());
  }
  std::string path() const { return folder_->path() + "/model.gguf"; }

 private:
  std::optional<TempFolder> folder_;
};

std::vector<TokenId> GoldenTokens(const std::string& name) {
  return TokensOf(ReadJson(GoldenFolder() / (name + ".json")).at("tokens"));
}

/// Zeroes the routers: all scores are equal, so that all tokens choose the first experts.
void ZeroRouters(Tensors& tensors) {
  for (auto& [name, bytes] : tensors) {
    if (name.ends_with("ffn_gate_inp.weight")) std::ranges::fill(bytes, std::byte{0});
  }
}

/// Calls change(bytes of expert e) for the experts [begin, 8) of all layers.
void ForExperts(Tensors& tensors, uint32_t begin, const std::function<void(std::span<std::byte>, uint32_t)>& change) {
  for (auto& [name, bytes] : tensors) {
    if (!name.ends_with("_exps.weight")) continue;
    const size_t each = bytes.size() / 8;
    for (uint32_t e = begin; e < 8; ++e) change(std::span(bytes).subspan(e * each, each), e);
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// The promise of golden_test.cc for a model that is no golden one.
void ExpectSameBitsEverywhere(const std::string& path, const std::vector<TokenId>& tokens) {
  std::map<kernels::Isa, std::vector<float>> expected;
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    std::vector<float>& alone = expected[kernels::BitsOf(isa)];
    if (alone.empty())
      alone = TestExecutor(path, {.threads = 1, .isa = kernels::BitsOf(isa)}).Logits({{.tokens = tokens}})[0];
    for (uint32_t threads : {1u, 2u}) {
      SCOPED_TRACE(testing::Message() << kernels::IsaName(isa) << ", " << threads << " threads");
      TestExecutor executor(path, {.threads = threads, .isa = isa});
      for (uint32_t chunk : {1u, 7u, 64u, UINT32_MAX})
        EXPECT_TRUE(SameBits(executor.Logits({{.tokens = tokens, .chunk = chunk}})[0], alone)) << "chunk " << chunk;
      std::vector<TestExecutor::Run> batch;
      for (uint32_t i = 0; i < 8; ++i) {
        std::vector<TokenId> other = tokens;
        if (i != 2) std::ranges::rotate(other, other.begin() + i);
        batch.push_back({.tokens = other, .chunk = 1 + 5 * i, .skip_steps = i % 4});
      }
      EXPECT_TRUE(SameBits(executor.Logits(batch)[2], alone)) << "batch of 8";
    }
  }
}

TEST(ExpertLayers, SameBitsWhenAllTokensWantTheSameExperts) {
  for (const std::string name : {"qwen3moe", "qwen3moe_one", "qwen3moe_q4_0"}) {
    SCOPED_TRACE(name);
    ExpectSameBitsEverywhere(ChangedModel(name, ZeroRouters).path(), GoldenTokens(name));
  }
}

TEST(ExpertLayers, EqualScoresChooseTheFirstExpertsAndIdleOnesAreNotRead) {
  const std::vector<TokenId> tokens = GoldenTokens("qwen3moe");
  const auto logits = [&](const ChangedModel& model) {
    return TestExecutor(model.path(), {.threads = 2}).Logits({{.tokens = tokens}})[0];
  };
  const std::vector<float> expected = logits(ChangedModel("qwen3moe", ZeroRouters));
  const std::vector<float> others_are_nan = logits(ChangedModel("qwen3moe", [](Tensors& tensors) {
    ZeroRouters(tensors);
    ForExperts(tensors, 2, [](std::span<std::byte> expert, uint32_t) { std::ranges::fill(expert, std::byte{0xff}); });
  }));
  EXPECT_TRUE(std::ranges::all_of(expected, [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(SameBits(expected, others_are_nan));
}

TEST(ExpertLayers, WithEqualExpertsTheRouterDoesNotMatter) {
  const std::vector<TokenId> tokens = GoldenTokens("qwen3moe");
  const auto equal_experts = [](Tensors& tensors) {
    for (auto& [name, bytes] : tensors) {
      if (!name.ends_with("_exps.weight")) continue;
      for (size_t e = 1; e < 8; ++e) std::copy_n(bytes.begin(), bytes.size() / 8, bytes.begin() + e * bytes.size() / 8);
    }
  };
  const auto logits = [&](const ChangedModel& model) {
    return TestExecutor(model.path(), {.threads = 2}).Logits({{.tokens = tokens}})[0];
  };
  const std::vector<float> routed = logits(ChangedModel("qwen3moe", equal_experts));
  const std::vector<float> unrouted = logits(ChangedModel("qwen3moe", [&](Tensors& tensors) {
    equal_experts(tensors);
    ZeroRouters(tensors);
  }));
  ASSERT_EQ(routed.size(), unrouted.size());
  for (size_t i = 0; i < routed.size(); ++i) ASSERT_NEAR(routed[i], unrouted[i], 0.02) << i;
}

/// Bytes of weights of a step over `tokens`.
uint64_t BytesOfStep(TestExecutor& executor, const std::vector<TokenId>& tokens) {
  const RequestId id{1000};
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  executor.memory().Begin(id, 0, tokens);
  KVIST_CHECK(executor.memory().Reserve(id, count));
  const SpanId span = executor.memory().SpanOf(id);
  step::StepPlan plan;
  plan.slices.push_back({.request = id, .tokens_count = count, .segments_count = 1, .tail = span});
  plan.segments.push_back({span, 0, count});
  for (TokenId token : tokens) plan.tokens.push_back({token});
  const step::StepResult result = executor.Execute(std::move(plan));
  executor.memory().End(id);
  return result.bytes_moved - result.kv_bytes_read;
}

TEST(ExpertLayers, EachNeededExpertIsReadOnceAStep) {
  const std::vector<TokenId> tokens = GoldenTokens("qwen3moe");
  // Per layer and expert: gate and up of [32, 64], down of [64, 32], F16.
  constexpr uint64_t kExpert = 3 * 32 * 64 * 2, kLayers = 2;
  TestExecutor routed(GoldenFolder() / "qwen3moe.gguf", {.threads = 2});
  const uint64_t dense = routed.executor().weights().packed_bytes() - kLayers * 8 * kExpert;
  EXPECT_EQ(BytesOfStep(routed, {tokens[0]}), dense + kLayers * 2 * kExpert);
  EXPECT_EQ(BytesOfStep(routed, tokens), dense + kLayers * 8 * kExpert);  // Somebody wants each.
  const ChangedModel model("qwen3moe", ZeroRouters);
  TestExecutor same(model.path(), {.threads = 2});
  EXPECT_EQ(BytesOfStep(same, tokens), dense + kLayers * 2 * kExpert);
}

TEST(ExpertLayers, NanInTheRouterMakesNanAndNothingElse) {
  const std::vector<TokenId> tokens = GoldenTokens("qwen3moe");
  const ChangedModel model("qwen3moe", [](Tensors& tensors) {
    std::vector<std::byte>& router = tensors["blk.1.ffn_gate_inp.weight"];
    std::fill_n(router.begin() + 5 * 64 * 4, 4, std::byte{0xff});  // One weight of expert 5.
  });
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    TestExecutor executor(model.path(), {.threads = 2, .isa = isa});
    const std::vector<float> logits = executor.Logits({{.tokens = tokens, .chunk = 13}})[0];
    EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isnan(x); }));
  }
}

TEST(ExpertLayers, ATokenOfNanHarmsNoOtherRequest) {
  const std::vector<TokenId> tokens = GoldenTokens("qwen3moe_q4_0");
  const TokenId bad{287};
  std::vector<TokenId> sane = tokens;
  std::ranges::replace(sane, bad, TokenId{3});
  const ChangedModel model("qwen3moe_q4_0", [&](Tensors& tensors) {
    std::vector<std::byte>& table = tensors["token_embd.weight"];
    std::fill_n(table.end() - static_cast<std::ptrdiff_t>(table.size() / 288), 2,
                std::byte{0xff});  // Scale of a block.
  });
  std::vector<TokenId> harmed = sane;
  harmed[4] = bad;
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    TestExecutor executor(model.path(), {.threads = 2, .isa = isa});
    const size_t vocab = executor.vocab();
    const auto without_last = [&](const std::vector<float>& logits) {  // The head's row of the bad token is NaN, too.
      std::vector<float> kept;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (i % vocab != bad.value) kept.push_back(logits[i]);
      }
      return kept;
    };
    const std::vector<float> alone = without_last(executor.Logits({{.tokens = sane}})[0]);
    EXPECT_TRUE(std::ranges::all_of(alone, [](float x) { return std::isfinite(x); }));
    const auto batch = executor.Logits({{.tokens = harmed, .chunk = 5}, {.tokens = sane, .chunk = 9}});
    EXPECT_TRUE(SameBits(without_last(batch[1]), alone)) << kernels::IsaName(isa);
    EXPECT_TRUE(std::isnan(batch[0][4 * vocab]));
  }
}

}  // namespace
}  // namespace kvist::exec
