// Real weights beside an independent implementation: logits, greedy text, perplexity. Models that are not in this
// repository are looked for where `kvist pull` puts them and in $KVIST_GOLDEN_MODELS; without the file the test is
// skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "exec/cpu/golden_testutil.h"

namespace kvist::exec {
namespace {

std::optional<std::filesystem::path> FindModel(const std::string& file) {
  std::vector<std::filesystem::path> folders{KVIST_SOURCE_DIR "/models"};
  for (const char* name : {"KVIST_GOLDEN_MODELS", "KVIST_MODELS"}) {
    if (const char* value = std::getenv(name)) folders.emplace_back(value);
  }
  if (const char* home = std::getenv("HOME"))
    folders.push_back(std::filesystem::path(home) / ".local/share/kvist/models");
  for (const auto& folder : folders) {
    if (std::filesystem::exists(folder / file)) return folder / file;
  }
  return std::nullopt;
}

class RealModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::filesystem::path path = GoldenFolder() / (GetParam() + ".json");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    golden_ = ReadJson(path);
    const std::string file(golden_.at("file").as_string());
    const auto model = FindModel(file);
    if (!model) GTEST_SKIP() << file << " is not on this machine";
    path_ = *model;
    executor_.emplace(path_, TestExecutor::Options{.threads = 2});
  }
  /// Error of the logits to be expected, relative to their deviation.
  double Tolerance() const {
    const auto& logits = golden_.at("logits").as_object();
    const bool quantised = GetParam().find("f16") == std::string::npos;
    const double f16 = logits.at("error_f16_kv").to_number<double>();
    return quantised ? 1.5 * logits.at("error_int8_activations").to_number<double>() + f16 : 1e-4 + 2 * f16;
  }
  size_t BestOf(const std::vector<float>& logits, size_t position) const {
    auto row = logits.begin() + static_cast<std::ptrdiff_t>(position * executor_->vocab());
    return static_cast<size_t>(std::max_element(row, row + executor_->vocab()) - row);
  }
  /// Of the golden text.
  static double Perplexity(TestExecutor& executor, const boost::json::object& golden) {
    const std::vector<float> scores = executor.Scores(TokensOf(golden.at("tokens")), /*chunk=*/256);
    EXPECT_EQ(scores.size(), golden.at("predicted").to_number<size_t>());
    double sum = 0;
    for (float score : scores) sum -= score;
    return std::exp(sum / static_cast<double>(scores.size()));
  }

  boost::json::object golden_;
  std::filesystem::path path_;
  std::optional<TestExecutor> executor_;
};

TEST_P(RealModel, LogitsMatch) {
  const auto& golden = golden_.at("logits").as_object();
  const std::vector<float> logits = executor_->Logits({{.tokens = TokensOf(golden.at("tokens"))}})[0];
  double squares = 0;
  size_t count = 0;
  const auto& positions = golden.at("positions").as_array();
  for (size_t p = 0; p < positions.size(); ++p) {
    const double deviation = golden.at("deviation").as_array()[p].to_number<double>();
    const auto& ids = golden.at("top_ids").as_array()[p].as_array();
    const auto& values = golden.at("top_logits_f16_kv").as_array()[p].as_array();
    for (size_t i = 0; i < ids.size(); ++i, ++count) {
      const size_t index = positions[p].to_number<size_t>() * executor_->vocab() + ids[i].to_number<size_t>();
      squares += std::pow((logits[index] - values[i].to_number<double>()) / deviation, 2);
    }
  }
  const double relative = std::sqrt(squares / static_cast<double>(count));
  RecordProperty("relative_error", std::to_string(relative));
  std::printf("relative error of the highest logits: %.5f\n", relative);
  EXPECT_LT(relative, 2 * Tolerance());  // The highest logits lie far from the mean.
}

TEST_P(RealModel, GreedyTextIsEqualUpToNearTies) {
  int steps = 0, ties = 0;
  for (const auto& entry : golden_.at("greedy").as_array()) {
    std::vector<TokenId> tokens = TokensOf(entry.at("tokens"));
    const std::vector<TokenId> ids = TokensOf(entry.at("ids"));
    const size_t prompt = tokens.size();
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const std::vector<float> logits = executor_->Logits({{.tokens = tokens}})[0];
    for (size_t i = 0; i < ids.size(); ++i, ++steps) {
      if (BestOf(logits, prompt - 1 + i) == ids[i].value) continue;
      ++ties;
      EXPECT_LT(entry.at("margins").as_array()[i].to_number<double>(), 8 * Tolerance()) << "step " << i;
    }
  }
  std::printf("%d greedy steps, %d near ties decided otherwise\n", steps, ties);
}

TEST_P(RealModel, PerplexityWithinHalfAPercent) {
  const auto& golden = golden_.at("perplexity").as_object();
  const double perplexity = Perplexity(*executor_, golden);
  const double expected = golden.at("perplexity").to_number<double>();
  RecordProperty("perplexity", std::to_string(perplexity));
  std::printf("perplexity %.5f, independent implementation %.5f\n", perplexity, expected);
  EXPECT_NEAR(perplexity / expected, 1.0, 0.005);
}

TEST_P(RealModel, KeysAndValuesOfEightBitsChangePerplexityByLessThanAPercent) {
  const auto& golden = golden_.at("perplexity").as_object();
  const double f16 = Perplexity(*executor_, golden);
  executor_.emplace(path_, TestExecutor::Options{.threads = 2, .kv_type = KvType::kQ8});
  const double q8 = Perplexity(*executor_, golden);
  std::printf("perplexity %.5f with q8, %.5f with f16\n", q8, f16);
  EXPECT_NEAR(q8 / f16, 1.0, 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, RealModel,
                         testing::Values("default-f16", "default-q8_0", "smollm2-135m-q4_1", "gemma-3-270m-q4_k_m"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace kvist::exec
