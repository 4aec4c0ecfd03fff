/// @file
/// The server in front of an emulated device: a client over HTTP gets words, as many as it asked for, in the time that
/// the device takes.

#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "cost/model_shape.h"
#include "cost/step_model.h"
#include "device/device_file.h"
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

}  // namespace
}  // namespace kvist::serve
