// What models are built from, and what is refused: a model file is untrusted.

#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_testutil.h"

namespace kvist::model {
namespace {

using ::testing::HasSubstr;

/// Builds the model and expects an error of this code that names `place`.
void ExpectRefused(FakeModel model, absl::StatusCode code, const std::string& place) {
  const absl::Status status = model.Build().status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(place));
}
void ExpectInvalid(FakeModel model, const std::string& place) {
  ExpectRefused(std::move(model), absl::StatusCode::kInvalidArgument, place);
}

std::vector<Weight> WeightsOf(const Model& model, std::string_view tensor) {
  std::vector<Weight> weights;
  for (const Weight& weight : model.graph.weights) {
    if (weight.tensor->name == tensor) weights.push_back(weight);
  }
  return weights;
}

TEST(Phi3, FusedTensorsAreRowRangesOfTheFile) {
  FakeModel fake = FakePhi3();
  auto model = fake.Build();
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<Weight> qkv = WeightsOf(**model, "blk.1.attn_qkv.weight");
  ASSERT_EQ(qkv.size(), 3u);
  const uint32_t rows[] = {64, 32, 32}, first[] = {0, 64, 96};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(qkv[i].rows, rows[i]);
    EXPECT_EQ(qkv[i].first_row, first[i]);
    EXPECT_EQ(qkv[i].data(), qkv[i].tensor->bytes.data() + first[i] * 64 * sizeof(float));
    EXPECT_EQ(qkv[i].file_bytes(), rows[i] * 64 * sizeof(float));
  }
  const std::vector<Weight> up = WeightsOf(**model, "blk.0.ffn_up.weight");
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(up[1].first_row, 96u);
  EXPECT_EQ(up[1].elements(), 96u * 64);
}

TEST(Phi3, RefusesShapesThatLie) {
  FakeModel model = FakePhi3();
  model.tensors["blk.1.attn_qkv.weight"] = {64, 127};
  ExpectInvalid(model, "blk.1.attn_qkv.weight has shape [64, 127], expected [64, 128]");
  model = FakePhi3();
  model.tensors["blk.0.ffn_up.weight"] = {64, 96};
  ExpectInvalid(model, "blk.0.ffn_up.weight");
  model = FakePhi3();
  model.tensors.erase("blk.0.attn_qkv.weight");
  ExpectInvalid(model, "blk.0.attn_qkv.weight is missing");
}

TEST(Phi3, WindowsAreThoseOfTheFileAndZeroMeansNone) {
  const auto window = [](FakeModel fake) {
    auto model = fake.Build();
    EXPECT_TRUE(model.ok()) << model.status();
    for (const Op& op : (*model)->graph.ops) {
      if (const auto* attention = std::get_if<Attention>(&op)) return attention->window;
    }
    return ~0u;
  };
  FakeModel model = FakePhi3();
  EXPECT_EQ(window(model), 0u);
  model.numbers["attention.sliding_window"] = 0;
  EXPECT_EQ(window(model), 0u);
  model.numbers["attention.sliding_window"] = 2047;
  EXPECT_EQ(window(model), 2047u);
}

FakeModel WithLongRope() {
  FakeModel model = FakePhi3();
  model.numbers["rope.scaling.original_context_length"] = 64;
  model.tensors["rope_factors_short.weight"] = model.tensors["rope_factors_long.weight"] = {8};
  model.values["rope_factors_short.weight"] = std::vector<float>(8, 1.0f);
  model.values["rope_factors_long.weight"] = std::vector<float>(8, 4.0f);
  return model;
}

TEST(LongRope, ContextChoosesTheFactors) {
  FakeModel fake = WithLongRope();
  auto model = fake.Build();
  ASSERT_TRUE(model.ok()) << model.status();
  const RopeSpec& rope = (*model)->graph.ropes.front();
  EXPECT_DOUBLE_EQ(rope.FrequenciesFor(64)[0], 1.0);
  EXPECT_DOUBLE_EQ(rope.FrequenciesFor(65)[0], 0.25);
  EXPECT_DOUBLE_EQ(rope.magnitude, std::sqrt(1 + std::log(16.0) / std::log(64.0)));
  fake.fractions["rope.scaling.attn_factor"] = 1.5f;
  model = fake.Build();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_DOUBLE_EQ((*model)->graph.ropes.front().magnitude, 1.5);
}

TEST(LongRope, RefusesWhatIsMissingOrMakesNoSense) {
  FakeModel model = WithLongRope();
  model.tensors.erase("rope_factors_short.weight");
  ExpectInvalid(model, "rope_factors_short.weight is missing");
  model = WithLongRope();
  model.numbers.erase("rope.scaling.original_context_length");
  ExpectRefused(model, absl::StatusCode::kNotFound, "phi3.rope.scaling.original_context_length");
  model = WithLongRope();
  model.numbers["rope.scaling.original_context_length"] = 1;
  ExpectInvalid(model, "phi3.rope.scaling.original_context_length is 1");
  model = WithLongRope();
  model.tensors["rope_factors_long.weight"] = {7};
  model.values["rope_factors_long.weight"].resize(7);
  ExpectInvalid(model, "rope_factors_long.weight has 7 elements");
  model = WithLongRope();
  model.values["rope_factors_long.weight"][3] = 0;
  ExpectInvalid(model, "rope_factors_long.weight element 3 is 0");
  model = WithLongRope();
  model.fractions["rope.scaling.attn_factor"] = NAN;
  ExpectInvalid(model, "phi3.rope.scaling.attn_factor");
}

TEST(Experts, AreOneOperationAfterTheRouter) {
  FakeModel fake = FakeQwen3Moe();
  auto model = fake.Build();
  ASSERT_TRUE(model.ok()) << model.status();
  int layers = 0;
  for (const Op& op : (*model)->graph.ops) {
    const auto* experts = std::get_if<ExpertMlp>(&op);
    if (experts == nullptr) continue;
    ++layers;
    EXPECT_EQ(experts->experts.count, 8u);
    EXPECT_EQ(experts->experts.used, 2u);
    EXPECT_TRUE(experts->experts.normalised);
    EXPECT_EQ(experts->experts.scale, 1.0f);
    const Weight& down = (*model)->graph.weights[experts->down.value];
    EXPECT_EQ(down.role, WeightRole::kExperts);
    EXPECT_EQ(down.rows, 64u);
    EXPECT_EQ(down.experts, 8u);
    EXPECT_EQ(down.file_bytes(), down.tensor->bytes.size());
  }
  EXPECT_EQ(layers, 2);
  fake.switches["expert_weights_norm"] = false;
  fake.fractions["expert_weights_scale"] = 2.5f;
  fake.numbers["expert_gating_func"] = 1;
  fake.numbers["expert_shared_count"] = 0;
  EXPECT_TRUE(fake.Build().ok());
}

TEST(Experts, OneExpertMayBeWrittenWithoutItsDimension) {
  FakeModel model = FakeQwen3Moe();
  model.numbers["expert_count"] = model.numbers["expert_used_count"] = 1;
  for (auto& [name, dims] : model.tensors) {
    if (name.ends_with("_exps.weight") || name.ends_with("gate_inp.weight")) dims.pop_back();
  }
  const auto built = model.Build();
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST(Experts, RefusesNumbersThatMakeNoSense) {
  const auto with = [](const std::string& key, uint32_t number) {
    FakeModel model = FakeQwen3Moe();
    model.numbers[key] = number;
    return model;
  };
  ExpectInvalid(with("expert_count", 0), "qwen3moe.expert_count is 0, expected 1 to 1024");
  ExpectInvalid(with("expert_count", 1025), "qwen3moe.expert_count is 1025, expected 1 to 1024");
  ExpectInvalid(with("expert_count", UINT32_MAX), "qwen3moe.expert_count");
  ExpectInvalid(with("expert_used_count", 0), "qwen3moe.expert_used_count is 0, expected 1 to 8");
  ExpectInvalid(with("expert_used_count", 9), "qwen3moe.expert_used_count is 9, expected 1 to 8");
  ExpectInvalid(with("expert_feed_forward_length", 0), "qwen3moe.expert_feed_forward_length is 0");
  ExpectInvalid(with("expert_feed_forward_length", UINT32_MAX), "qwen3moe.expert_feed_forward_length");
  for (const char* key : {"expert_count", "expert_used_count", "expert_feed_forward_length"}) {
    FakeModel model = FakeQwen3Moe();
    model.numbers.erase(key);
    ExpectRefused(model, absl::StatusCode::kNotFound, key);
  }
  for (float scale : {0.0f, -1.0f, NAN, INFINITY}) {
    FakeModel model = FakeQwen3Moe();
    model.fractions["expert_weights_scale"] = scale;
    ExpectInvalid(model, "qwen3moe.expert_weights_scale");
  }
  FakeModel model = FakeQwen3Moe();
  model.numbers["expert_weights_norm"] = 1;  // No boolean.
  ExpectInvalid(model, "qwen3moe.expert_weights_norm");
}

TEST(Experts, RefusesTensorsThatAreMissingOrLie) {
  for (const char* part : {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    const std::string name = std::string("blk.1.") + part + ".weight";
    FakeModel model = FakeQwen3Moe();
    model.tensors.erase(name);
    ExpectInvalid(model, "tensor " + name + " is missing");
    for (size_t dim = 0; dim < FakeQwen3Moe().tensors[name].size(); ++dim) {
      model = FakeQwen3Moe();
      --model.tensors[name][dim];
      ExpectInvalid(model, "tensor " + name + " has shape");
      model.tensors[name][dim] = 1;
      ExpectInvalid(model, "tensor " + name + " has shape");
    }
    model = FakeQwen3Moe();
    model.tensors[name].push_back(2);
    ExpectInvalid(model, "tensor " + name + " has shape");
  }
}

TEST(Experts, RefusesWhatWouldChangeTheResult) {
  const auto refused = [](FakeModel model, const std::string& place) {
    ExpectRefused(std::move(model), absl::StatusCode::kUnimplemented, place);
  };
  for (const char* key : {"expert_shared_count", "expert_shared_feed_forward_length", "expert_group_count"}) {
    FakeModel model = FakeQwen3Moe();
    model.numbers[key] = 2;
    refused(model, std::string("qwen3moe.") + key + " is 2");
  }
  FakeModel model = FakeQwen3Moe();
  model.numbers["expert_gating_func"] = 2;
  refused(model, "qwen3moe.expert_gating_func is 2");
  model = FakeQwen3Moe();
  model.tensors["blk.1.ffn_up_shexp.weight"] = {64, 32};
  refused(model, "blk.1.ffn_up_shexp.weight");
  model = FakeQwen3Moe();
  model.tensors["blk.0.exp_probs_b.bias"] = {8};
  refused(model, "blk.0.exp_probs_b.bias");
  model = FakePhi3();
  model.numbers["expert_count"] = 16;
  refused(model, "phi3.expert_count is 16");
}

}  // namespace
}  // namespace kvist::model
