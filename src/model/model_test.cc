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

}  // namespace
}  // namespace kvist::model
