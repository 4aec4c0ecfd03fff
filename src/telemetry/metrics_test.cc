#include "telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::telemetry {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, TextHasEveryKindWithCommonAndOwnLabels) {
  Metrics metrics(Labels{{"model_name", "tiny"}});
  CounterFamily& requests = metrics.AddCounters("kvist_http_requests_total", "Requests by status.");
  Histogram& latency = metrics.AddHistogram("kvist_latency_seconds", "Latency.", {0.1, 1});
  metrics.AddCollector([](std::vector<Sample>& out) {
    out.push_back({"kvist_blocks", "Blocks.", Sample::Kind::kGauge, 3, {{"state", "free"}}});
    out.push_back({"kvist_blocks", "Blocks.", Sample::Kind::kGauge, 5, {{"state", "cached"}}});
    out.push_back({"vllm:prompt_tokens_total", "Tokens.", Sample::Kind::kCounter, 7, {}});
  });
  requests.With({{"code", "200"}}).Add();
  requests.With({{"code", "200"}}).Add(2);
  requests.With({{"code", "404"}}).Add();
  latency.Observe(0.05);
  latency.Observe(5);

  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE kvist_http_requests_total counter"));
  EXPECT_THAT(text, HasSubstr("kvist_http_requests_total{model_name=\"tiny\",code=\"200\"} 3"));
  EXPECT_THAT(text, HasSubstr("kvist_http_requests_total{model_name=\"tiny\",code=\"404\"} 1"));
  EXPECT_THAT(text, HasSubstr("kvist_latency_seconds_bucket{model_name=\"tiny\",le=\"0.1\"} 1"));
  EXPECT_THAT(text, HasSubstr("kvist_latency_seconds_bucket{model_name=\"tiny\",le=\"+Inf\"} 2"));
  EXPECT_THAT(text, HasSubstr("kvist_blocks{model_name=\"tiny\",state=\"free\"} 3"));
  EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_total{model_name=\"tiny\"} 7"));
  // One family for both samples of a name.
  EXPECT_EQ(text.find("# TYPE kvist_blocks"), text.rfind("# TYPE kvist_blocks"));
}

TEST(Metrics, CollectorsAreAskedOnEveryRead) {
  Metrics metrics(Labels{});
  int asked = 0;
  metrics.AddCollector([&asked](std::vector<Sample>& out) {
    out.push_back({"kvist_asked", "Times asked.", Sample::Kind::kGauge, static_cast<double>(++asked), {}});
  });
  EXPECT_THAT(metrics.Text(), HasSubstr("kvist_asked 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("kvist_asked 2"));
}

}  // namespace
}  // namespace kvist::telemetry
