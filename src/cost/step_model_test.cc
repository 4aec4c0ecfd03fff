#include "cost/step_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "device/device_file.h"

namespace kvist::cost {
namespace {

using device::Number;
using testing::HasSubstr;

StepModelOptions OptionsOf(std::string_view device, std::string_view shape) {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  StepModelOptions options{.device = *catalog.FindDevice(device), .shape = *FindModelShape(shape)};
  if (!options.device.links.empty()) options.link = *catalog.FindLink(options.device.links.front());
  return options;
}

StepModel ModelOf(std::string_view device, std::string_view shape) {
  absl::StatusOr<StepModel> model = StepModel::Create(OptionsOf(device, shape));
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

StepLoad Decodes(uint32_t count, uint32_t context, uint32_t window = 0) {
  StepLoad load;
  for (uint32_t i = 0; i < count; ++i) load.Add(1, context, true, window);
  return load;
}

StepLoad Prompt(uint32_t tokens, uint32_t context = 0, uint32_t window = 0) {
  StepLoad load;
  load.Add(tokens, context, true, window);
  return load;
}

TEST(ModelShape, WeightsAreAsManyAsPublished) {
  const std::pair<std::string_view, double> published[] = {
      {"llama-3.2-1b", 1.236e9},    {"llama-3.1-8b", 8.03e9},  {"llama-3.1-70b", 70.55e9}, {"llama-3.1-405b", 405.9e9},
      {"qwen3-0.6b", 0.596e9},      {"qwen3-8b", 8.19e9},      {"qwen3-32b", 32.76e9},     {"qwen3-30b-a3b", 30.53e9},
      {"qwen3-235b-a22b", 235.1e9}, {"mixtral-8x7b", 46.7e9},  {"mistral-7b", 7.25e9},     {"qwen2.5-72b", 72.7e9},
      {"gpt-oss-20b", 20.9e9},      {"gpt-oss-120b", 116.8e9}, {"deepseek-v3", 671e9},     {"smollm2-135m", 0.1345e9},
  };
  for (const auto& [name, weights] : published) {
    const absl::StatusOr<ModelShape> shape = FindModelShape(name);
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_NEAR(shape->weights() / weights, 1, 0.01) << name << ": " << shape->weights();
  }
}

TEST(ModelShape, NamesAreDifferentAndUnknownOnesAreToldWhatThereIs) {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : ModelShapes()) names.push_back(shape.name);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_THAT(std::string(FindModelShape("gpt-5").status().message()), HasSubstr("llama-3.1-8b"));
}

TEST(StepLoad, WindowsBoundWhatIsRead) {
  StepLoad load = Decodes(2, 1000, 128);
  EXPECT_EQ(load.decode_keys, 2002);
  EXPECT_EQ(load.decode_keys_windowed, 256);
  // Pair by pair, for every way to cut a prompt.
  for (const uint32_t context : {0u, 5u, 9u, 10u, 40u}) {
    for (const uint32_t count : {2u, 3u, 10u, 17u}) {
      double pairs = 0, windowed = 0;
      for (uint32_t i = 0; i < count; ++i) {
        pairs += context + i + 1;
        windowed += std::min(context + i + 1, 10u);
      }
      load = Prompt(count, context, 10);
      EXPECT_EQ(load.prompt_pairs, pairs);
      EXPECT_EQ(load.prompt_pairs_windowed, windowed) << count << " after " << context;
    }
  }
}

TEST(StepModel, ADecodeTakesAtLeastItsBytesAndNotMuchMore) {
  StepModel model = ModelOf("h100", "llama-3.1-8b");
  const double floor_ns = (model.weight_bytes() - 128256.0 * 4096 * 2) / 3350e9 * 1e9;
  const double ns = model.Cost(Decodes(1, 1024)).ns();
  EXPECT_GT(ns, floor_ns);
  EXPECT_LT(ns, 1.6 * floor_ns);
}

TEST(StepModel, APromptTakesAtLeastItsArithmetic) {
  StepModel model = ModelOf("h100", "llama-3.1-8b");
  const StepCost cost = model.Cost(Prompt(8192));
  EXPECT_GT(cost.flops, 2 * 8192 * 6.9e9);
  EXPECT_GT(cost.ns(), cost.flops / 989.4e12 * 1e9);
  EXPECT_LT(cost.ns(), 2.5 * cost.flops / 989.4e12 * 1e9);
}

TEST(StepModel, MoreWorkNeverTakesLess) {
  for (const char* device : {"h100", "rtx-4090", "mi300x", "duplex"}) {
    for (const char* shape : {"llama-3.2-1b", "qwen3-8b", "gpt-oss-20b"}) {
      StepModelOptions options = OptionsOf(device, shape);
      if (std::string_view(shape) == "gpt-oss-20b") options.weights = Number::kFp4;
      absl::StatusOr<StepModel> model = StepModel::Create(std::move(options));
      ASSERT_TRUE(model.ok()) << device << " " << model.status();
      for (const uint32_t context : {0u, 100u, 10000u}) {
        double before = 0;
        for (uint32_t count = 1; count <= 256; count *= 2) {
          const double ns = model->Cost(Decodes(count, context)).ns();
          EXPECT_GE(ns, 0.999 * before) << device << " " << shape << ": " << count << " after " << context;
          before = ns;
        }
      }
      EXPECT_GT(model->Cost(Decodes(64, 8192)).ns(), model->Cost(Decodes(64, 512)).ns());
    }
  }
}

TEST(StepModel, PartsAddUpAndTheSameLoadCostsTheSame) {
  StepModel model = ModelOf("h100", "qwen3-30b-a3b");
  StepLoad load = Decodes(7, 300);
  load.Add(512, 100, true, 0);
  const StepCost cost = model.Cost(load);
  EXPECT_GT(cost.experts_ns, 0);
  EXPECT_NEAR(cost.ns(),
              cost.matmul_ns + cost.attention_ns + cost.experts_ns + cost.other_ns + cost.links_ns + cost.host_ns,
              1e-6);
  EXPECT_EQ(model.Cost(load).ns(), cost.ns());
  EXPECT_EQ(model.Cost({}).ns(), 0);
}

TEST(StepModel, OneTokenWakesAsManyExpertsAsItUsesAndManyWakeAll) {
  EXPECT_NEAR(ActiveExperts(128, 8, 1), 8, 1e-9);
  EXPECT_NEAR(ActiveExperts(128, 8, 2), 15.5, 1e-9) << "8 + 8, less 8 * 8 / 128 that are the same";
  EXPECT_NEAR(ActiveExperts(128, 8, 1e4), 128, 1e-9);
  EXPECT_EQ(ActiveExperts(0, 0, 5), 0);
}

TEST(StepModel, LayersWithAWindowDoNotGrowWithTheContext) {
  StepModelOptions options = OptionsOf("h100", "gpt-oss-20b");
  options.weights = Number::kFp4;
  options.shape.window_period = 1;  // All of them.
  StepModel model = *StepModel::Create(std::move(options));
  EXPECT_EQ(model.Cost(Decodes(8, 1000, 128)).ns(), model.Cost(Decodes(8, 100000, 128)).ns());
}

TEST(StepModel, LatentKeysAreSmall) {
  StepModelOptions options = OptionsOf("h200", "deepseek-v3");
  options.weights = Number::kFp8;
  options.tensor_parallel = 8;
  const StepModel latent = *StepModel::Create(std::move(options));
  EXPECT_EQ(latent.kv_bytes_per_token(), 61 * (512 + 64) * 2.0);
  EXPECT_EQ(ModelOf("h100", "llama-3.1-8b").kv_bytes_per_token(), 32 * 2 * 8 * 128 * 2.0);
}

TEST(StepModel, DevicesOfAGroupShareWeightsKeysAndTime) {
  StepModelOptions options = OptionsOf("h200", "llama-3.1-70b");
  options.weights = Number::kFp8;
  StepModel alone = *StepModel::Create(options);
  options.tensor_parallel = 4;
  StepModel group = *StepModel::Create(options);
  EXPECT_NEAR(group.weight_bytes() * 4, alone.weight_bytes(), 1);
  EXPECT_NEAR(group.kv_bytes_per_token() * 4, alone.kv_bytes_per_token(), 1);
  const StepLoad load = Decodes(32, 2000);
  EXPECT_EQ(alone.Cost(load).links_ns, 0);
  EXPECT_GT(group.Cost(load).links_ns, 0);
  EXPECT_LT(group.Cost(load).ns(), 0.5 * alone.Cost(load).ns());
  EXPECT_GT(group.Cost(load).ns(), 0.25 * alone.Cost(load).ns());
  options.tensor_parallel = 16;  // Eight heads of keys: two devices keep the same one.
  options.link->devices_max = 0;
  EXPECT_EQ(StepModel::Create(options)->kv_bytes_per_token(), 80 * 2 * 128 * 2.0);
}

TEST(StepModel, PipelinesKeepOneRequestsTimeAndServeManyFaster) {
  StepModelOptions options = OptionsOf("h100", "llama-3.1-8b");
  StepModel one = *StepModel::Create(options);
  options.pipeline_parallel = 4;
  StepModel four = *StepModel::Create(options);
  EXPECT_NEAR(four.Cost(Decodes(1, 1000)).ns() / one.Cost(Decodes(1, 1000)).ns(), 1, 0.05);
  const StepLoad prompts = [] {
    StepLoad load;
    for (int i = 0; i < 4; ++i) load.Add(2048, 0, true, 0);
    return load;
  }();
  EXPECT_LT(four.Cost(prompts).ns(), 0.35 * one.Cost(prompts).ns());
  EXPECT_NEAR(four.weight_bytes() * 4, one.weight_bytes(), 1);
}

TEST(StepModel, WorkGoesToTheProcessorWhereItEndsFirst) {
  StepModelOptions options = OptionsOf("duplex", "mixtral-8x7b");
  options.weights = Number::kFp8;
  StepModel both = *StepModel::Create(options);
  options.device.processors.pop_back();
  StepModel first = *StepModel::Create(options);
  EXPECT_LT(both.Cost(Decodes(4, 4000)).ns(), 0.7 * first.Cost(Decodes(4, 4000)).ns()) << "few operations a byte";
  EXPECT_LE(both.Cost(Prompt(4096)).ns(), first.Cost(Prompt(4096)).ns());
  EXPECT_GT(both.Cost(Prompt(4096)).ns(), 0.8 * first.Cost(Prompt(4096)).ns()) << "many operations a byte";
}

TEST(StepModel, GraphsSaveLaunchesWhereOperationsAreShort) {
  const auto ratio = [](std::string_view device, const StepLoad& load) {
    StepModelOptions options = OptionsOf(device, "llama-3.2-1b");
    options.device.processors[0].launch_ns = 8000;
    options.device.overheads.graph_rows = 0;
    StepModel captured = *StepModel::Create(options);
    options.device.overheads.eager_tokens = 0.5;  // Nothing is captured.
    return StepModel::Create(options)->Cost(load).ns() / captured.Cost(load).ns();
  };
  EXPECT_GT(ratio("h100", Decodes(1, 100)), 1.15);
  EXPECT_LT(ratio("l4", Decodes(1, 100)), 1.1) << "a slow memory hides them";
  EXPECT_LT(ratio("l4", Decodes(1, 100)), ratio("h100", Decodes(1, 100)));
  EXPECT_LT(ratio("h100", Prompt(500)), ratio("h100", Decodes(1, 100)));
}

TEST(StepModel, PowerLiesBetweenIdleAndBusy) {
  StepModel model = ModelOf("h100", "llama-3.1-8b");
  for (const StepLoad& load : {Decodes(1, 10), Decodes(128, 4000), Prompt(8192)}) {
    const StepCost cost = model.Cost(load);
    const double watts = cost.joules / (cost.ns() * 1e-9);
    EXPECT_GT(watts, 70);
    EXPECT_LE(watts, 700);
  }
}

TEST(StepModel, WhatDoesNotFitIsTold) {
  const auto refusal = [](StepModelOptions options) {
    return std::string(StepModel::Create(std::move(options)).status().message());
  };
  EXPECT_THAT(refusal(OptionsOf("rtx-4090", "llama-3.1-70b")), HasSubstr("GiB of weights"));
  StepModelOptions options = OptionsOf("h100", "llama-3.1-8b");
  options.tensor_parallel = 3;
  EXPECT_THAT(refusal(options), HasSubstr("cannot share evenly"));
  options.tensor_parallel = 16;
  EXPECT_THAT(refusal(options), HasSubstr("joins 8 devices, not 16"));
  options.tensor_parallel = 2;
  options.link.reset();
  EXPECT_THAT(refusal(options), HasSubstr("names no link"));
  options = OptionsOf("h100", "llama-3.1-8b");
  options.pipeline_parallel = 40;
  EXPECT_THAT(refusal(options), HasSubstr("fewer than 40 stages"));
  options = OptionsOf("pim-gpt", "llama-3.2-1b");
  options.shape.experts = 4;
  EXPECT_THAT(refusal(options), HasSubstr("no figures for experts"));
  EXPECT_EQ(ModelOf("h100", "llama-3.1-8b").KvBlocks(0.1, 16), 0u);
  EXPECT_NEAR(ModelOf("h100", "llama-3.1-8b").KvBlocks(0.9, 16) * 16 * 131072.0 / (0.9 * 80 * (1 << 30) - 16.06e9), 1,
              0.01);
}

TEST(StepModel, NoStepTakesLessThanTheFloorAndSomeTakeLittleMore) {
  const auto check = [](StepModel model) {
    constexpr uint32_t kTokensMax = 2048;
    const double floor_ns = model.FloorNs(kTokensMax);
    EXPECT_GT(floor_ns, 0);
    Prng prng(7);
    double least_ns = model.Cost(Decodes(1, 1)).ns();
    for (int i = 0; i < 2000; ++i) {
      StepLoad load;
      const uint64_t prompts = prng.Below(3), decodes = prng.Below(64) + (prompts == 0 ? 1 : 0);
      for (uint64_t k = 0; k < decodes; ++k) load.Add(1, prng.Below(4000), prng.Below(2) == 0, 0);
      for (uint64_t k = 0; k < prompts; ++k) load.Add(2 + prng.Below(900), prng.Below(4000), prng.Below(2) == 0, 0);
      least_ns = std::min(least_ns, model.Cost(load).ns());
    }
    EXPECT_GE(least_ns, floor_ns);
    EXPECT_LT(least_ns, 1.5 * floor_ns);
  };
  check(ModelOf("h100", "llama-3.1-8b"));
  check(ModelOf("l4", "llama-3.2-1b"));
  check(ModelOf("h200", "gpt-oss-20b"));
  StepModelOptions group = OptionsOf("h100", "llama-3.1-70b");
  group.tensor_parallel = 2;
  group.pipeline_parallel = 4;
  check(*StepModel::Create(std::move(group)));
}

}  // namespace
}  // namespace kvist::cost
