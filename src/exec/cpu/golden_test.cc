// Logits of small random models of every architecture and tensor type, beside those of an independent implementation
// (tests/golden/README.md).

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "exec/cpu/golden_testutil.h"

namespace kvist::exec {
namespace {

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder())) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class GoldenModel : public testing::TestWithParam<std::string> {};

/// What the golden values were computed for, where that is not the model's own context.
uint32_t ContextOf(const boost::json::object& golden) {
  return golden.contains("context") ? golden.at("context").to_number<uint32_t>() : 0;
}

bool Quantised(const std::string& name) {
  static const std::string kQuantised[] = {"iq4_nl", "iq4_xs", "mxfp4", "q2_k", "q3_k", "q4_0", "q4_1",
                                           "q4_k",   "q5_0",   "q5_1",  "q5_k", "q6_k", "q8_0", "qwen3moe_q4_0"};
  return std::ranges::find(kQuantised, name) != std::end(kQuantised);
}

/// RMS of the differences from the golden logits under `key`, relative to the deviation of all.
double RelativeError(const boost::json::object& golden, const char* key, const std::vector<float>& logits,
                     uint32_t vocab) {
  double squares = 0;
  size_t count = 0;
  const auto& ids = golden.at("ids").as_array();
  const auto& rows = golden.at(key).as_array();
  const auto& positions = golden.at("positions").as_array();
  for (size_t p = 0; p < positions.size(); ++p) {
    for (size_t i = 0; i < ids.size(); ++i, ++count) {
      const double ours = logits[positions[p].to_number<size_t>() * vocab + ids[i].to_number<size_t>()];
      const double error = ours - rows[p].as_array()[i].to_number<double>();
      squares += error * error;
    }
  }
  return std::sqrt(squares / static_cast<double>(count)) / golden.at("deviation").to_number<double>();
}

TEST_P(GoldenModel, LogitsMatchTheIndependentImplementation) {
  const boost::json::object golden = ReadJson(GoldenFolder() / (GetParam() + ".json"));
  TestExecutor executor(GoldenFolder() / (GetParam() + ".gguf"),
                        {.threads = 2, .context_tokens = ContextOf(golden)});  // As fast as this machine can.
  const std::vector<float> logits = executor.Logits({{.tokens = TokensOf(golden.at("tokens"))}})[0];
  const double deviation = golden.at("deviation").to_number<double>();
  const double int8_error = golden.at("error_int8_activations").to_number<double>();
  const double f16_error = golden.at("error_f16_kv").to_number<double>();
  // Weights of 16 and 32 bits meet f32 activations: only the 16-bit keys and values remain. Others meet int8
  // activations.
  const double tolerance = Quantised(GetParam()) ? 1.5 * int8_error + f16_error : 1e-4 + 0.5 * f16_error;

  const double relative = RelativeError(golden, "logits_f16_kv", logits, executor.vocab());
  EXPECT_LT(relative, tolerance);
  RecordProperty("relative_error", std::to_string(relative));

  const auto& argmax = golden.at("argmax").as_array();
  const auto& margins = golden.at("argmax_margin").as_array();
  for (size_t p = 0; p < argmax.size(); ++p) {
    if (margins[p].to_number<double>() < 8 * tolerance * deviation) continue;  // A near tie.
    auto row = logits.begin() + static_cast<std::ptrdiff_t>(p * executor.vocab());
    EXPECT_EQ(std::max_element(row, row + executor.vocab()) - row, argmax[p].to_number<int64_t>()) << "position " << p;
  }
}

/// Keys and values of 8 bits, beside the logits of exact ones. Alone (weights of 16 and 32 bits) they cost less than
/// int8 activations; with those, about as much again.
TEST_P(GoldenModel, KeysAndValuesOfEightBitsCostNoMoreThanInt8Activations) {
  const boost::json::object golden = ReadJson(GoldenFolder() / (GetParam() + ".json"));
  const std::vector<TokenId> tokens = TokensOf(golden.at("tokens"));
  const double int8_error = golden.at("error_int8_activations").to_number<double>();
  for (kernels::Isa isa : {kernels::Isa::kReference, kernels::BestIsa()}) {
    TestExecutor executor(GoldenFolder() / (GetParam() + ".gguf"),
                          {.threads = 2, .isa = isa, .context_tokens = ContextOf(golden), .kv_type = KvType::kQ8});
    const double relative = RelativeError(golden, "logits", executor.Logits({{.tokens = tokens}})[0], executor.vocab());
    std::printf("%s: relative error %.5f, of int8 activations %.5f\n", std::string(kernels::IsaName(isa)).c_str(),
                relative, int8_error);
    EXPECT_LT(relative, Quantised(GetParam()) ? 2.5 * int8_error : int8_error) << kernels::IsaName(isa);
  }
}

/// The promise of DESIGN section 7, point 1, on every architecture and type: the same bits alone, in a batch of eight,
/// in chunks, on one or several threads and on every instruction set that shares them.
class SameBits : public testing::TestWithParam<std::tuple<std::string, KvType>> {};

TEST_P(SameBits, ForEveryBatchChunkThreadCountAndInstructionSet) {
  const auto& [name, kv_type] = GetParam();
  const std::string path = GoldenFolder() / (name + ".gguf");
  const boost::json::object golden = ReadJson(GoldenFolder() / (name + ".json"));
  const std::vector<TokenId> tokens = TokensOf(golden.at("tokens"));
  const uint32_t context = ContextOf(golden);
  std::map<kernels::Isa, std::vector<float>> expected;
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    std::vector<float>& alone = expected[kernels::BitsOf(isa)];
    const auto options = [&](uint32_t threads, kernels::Isa which) {
      return TestExecutor::Options{.threads = threads, .isa = which, .context_tokens = context, .kv_type = kv_type};
    };
    if (alone.empty()) {
      alone = TestExecutor(path, options(1, kernels::BitsOf(isa))).Logits({{.tokens = tokens}})[0];
    }
    const auto same = [&alone](const std::vector<float>& logits) {
      return logits.size() == alone.size() && std::memcmp(logits.data(), alone.data(), 4 * logits.size()) == 0;
    };
    for (uint32_t threads : {1u, 2u, 3u}) {
      TestExecutor executor(path, options(threads, isa));
      SCOPED_TRACE(testing::Message() << kernels::IsaName(isa) << ", " << threads << " threads");
      for (uint32_t chunk : {1u, 7u, 64u, UINT32_MAX}) {
        EXPECT_TRUE(same(executor.Logits({{.tokens = tokens, .chunk = chunk}})[0])) << "chunk " << chunk;
      }
      std::vector<TestExecutor::Run> batch;
      for (uint32_t i = 0; i < 8; ++i) {
        std::vector<TokenId> other = tokens;
        if (i != 5) std::ranges::rotate(other, other.begin() + i);
        batch.push_back({.tokens = other, .chunk = 1 + 3 * i, .skip_steps = i % 3});
      }
      EXPECT_TRUE(same(executor.Logits(batch)[5])) << "batch of 8";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SameBits,
                         testing::Combine(testing::ValuesIn(GoldenNames()), testing::Values(KvType::kF16, KvType::kQ8)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_kv_" + std::string(KvTypeName(std::get<1>(test.param)));
                         });

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::ValuesIn(GoldenNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace kvist::exec
