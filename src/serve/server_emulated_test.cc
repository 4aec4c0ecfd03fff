/// @file
/// The server in front of an emulated device: a client over HTTP gets words, as many as it asked for, in the time that
/// the device takes; or what a small model says, in the same time.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "cost/model_shape.h"
#include "cost/step_model.h"
#include "device/device_file.h"
#include "exec/emulated/emulated_executor.h"
#include "runtime/runtime.h"
#include "serve/fake_world_testutil.h"
#include "serve/http_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr int kTokens = 24;

cost::StepModel L40s() {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return *cost::StepModel::Create(
      {.device = *catalog.FindDevice("l40s"), .shape = *cost::FindModelShape("llama-3.1-8b")});
}

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

TEST(ServerEmulated, ACompletionTakesTheTimeOfTheDevice) {
  cost::StepModel model = L40s();
  cost::StepLoad load;
  load.Add(1, /*context=*/8, /*samples=*/true, /*window=*/0);
  const cost::StepCost step = model.Cost(load);
  const double step_s = (step.ns() - step.host_ns) * 1e-9;

  runtime::RuntimeOptions options{.model_path = KVIST_SOURCE_DIR "/models/default-f16.gguf"};
  options.emulation = {.model = model, .blocks = 500, .output_tokens_mean = 0};
  const std::unique_ptr<runtime::Runtime> runtime = *runtime::Start(options);
  ServedModel served{.id = runtime->model_id,
                     .tokenizer = runtime->tokenizer.get(),
                     .context_tokens_max = runtime->engine->context_tokens_max()};
  RunningServer server(ServerOptions{}, std::move(served), *runtime->engine, runtime->clock);
  const std::string body = json::serialize(
      json::object{{"prompt", "Once upon a time"}, {"max_tokens", kTokens}, {"temperature", 0}, {"ignore_eos", true}});

  const Clock::time_point begin = Clock::now();
  const HttpResponse alone = Post(server.port(), "/v1/completions", body);
  const double alone_s = Seconds(Clock::now() - begin);
  ASSERT_EQ(alone.status, 200) << alone.body;
  const json::value reply = json::parse(alone.body);
  EXPECT_EQ(reply.at("usage").at("completion_tokens").as_int64(), kTokens);
  EXPECT_FALSE(reply.at("choices").at(0).at("text").as_string().empty());
  EXPECT_GE(alone_s, (kTokens - 1) * step_s);

  // Side by side they share the steps: a device reads its weights once for both.
  const Clock::time_point both_begin = Clock::now();
  std::thread other([&] { EXPECT_EQ(Post(server.port(), "/v1/completions", body).body.empty(), false); });
  const json::value again = json::parse(Post(server.port(), "/v1/completions", body).body);
  other.join();
  EXPECT_LT(Seconds(Clock::now() - both_begin), 2 * (kTokens - 1) * step_s);
  EXPECT_EQ(again.at("choices").at(0).at("text"), reply.at("choices").at(0).at("text")) << "the same text each time";
}

/// What a server says to each body.
std::vector<std::string> TextsOf(const runtime::RuntimeOptions& options, const std::vector<json::object>& bodies) {
  const std::unique_ptr<runtime::Runtime> runtime = *runtime::Start(options);
  ServedModel served{.id = runtime->model_id,
                     .tokenizer = runtime->tokenizer.get(),
                     .context_tokens_max = runtime->engine->context_tokens_max(),
                     .embedding_length = runtime->executor->Limits().hidden_size};
  RunningServer server(ServerOptions{}, std::move(served), *runtime->engine, runtime->clock);
  std::vector<std::string> texts;
  for (const json::object& body : bodies) {
    const bool embeds = body.contains("input");
    const HttpResponse response =
        Post(server.port(), embeds ? "/v1/embeddings" : "/v1/completions", json::serialize(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const json::value reply = json::parse(response.body);
    texts.push_back(json::serialize(embeds ? reply.at("data") : reply.at("choices")));
  }
  return texts;
}

TEST(ServerEmulated, TokensFromAModelAreThoseOfTheModelServedAlone) {
  const json::object schema = {{"type", "object"},
                               {"properties", {{"name", {{"type", "string"}}}, {"age", {{"type", "integer"}}}}},
                               {"required", {"name", "age"}}};
  const std::string story = "Once upon a time there was a purple key and a small door. ";
  const std::vector<json::object> bodies = {
      {{"prompt", story}, {"max_tokens", 20}, {"temperature", 0}, {"logprobs", 3}},
      {{"prompt", story + story}, {"max_tokens", 20}, {"temperature", 0.9}, {"seed", 5}},
      {{"prompt", story}, {"max_tokens", 3}, {"temperature", 0}, {"logit_bias", {{"300", 100}}}},
      {{"prompt", story}, {"max_tokens", 20}, {"temperature", 0}, {"guided_regex", "(yes|no), (red|blue)"}},
      {{"prompt", story}, {"max_tokens", 40}, {"temperature", 0}, {"guided_json", schema}},
      {{"input", story}},
  };
  runtime::RuntimeOptions options{
      .model_path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf", .threads = 2, .kv_memory_bytes = 32u << 20};
  const std::vector<std::string> alone = TextsOf(options, bodies);
  options.kv_memory_bytes = 0;
  options.emulation = {.model = L40s(), .blocks = 300, .output_tokens_mean = 2, .runs_model = true};
  EXPECT_EQ(TextsOf(options, bodies), alone);

  // No room on this machine for the small model's keys and values: said before it starts.
  options.emulation->blocks = 1u << 31;
  const absl::Status full = runtime::Start(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(full)) << full;
  EXPECT_NE(full.message().find("2147483648 blocks"), absl::string_view::npos) << full;
}

TEST(ServerEmulated, ADeviceAroundAModelIsServedUnderItsOwnName) {
  runtime::RuntimeOptions options{.model_path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf", .threads = 2};
  options.emulation = {.model = L40s(), .blocks = 300, .runs_model = true};
  const std::unique_ptr<runtime::Runtime> runtime = *runtime::Start(options);
  EXPECT_EQ(runtime->model_id, "llama-3.1-8b");
  EXPECT_EQ(runtime->executor->Name(), "emulated-l40s");
  EXPECT_EQ(runtime->kv_bytes, uint64_t{300 * 16} * 131072);
  EXPECT_NE(runtime->cpu, nullptr);
  EXPECT_EQ(static_cast<const step::Executor*>(runtime->device), runtime->executor.get());
  EXPECT_EQ(runtime->executor->Limits().context_tokens_max, runtime->model->spec.context_length);
  EXPECT_EQ(runtime->engine->Stats().kv.frames.total(), 300u);
}

}  // namespace
}  // namespace kvist::serve
