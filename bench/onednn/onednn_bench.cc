// Our products with BF16 and Q8_0 weights beside oneDNN's with bf16 and int8, one thread, a matrix of 8192 x 4096, in
// one run. Not the same work: oneDNN is given activations that are bf16 or int8 already and one scale for all, ours f32
// that it splits in two (BF16), and scales of blocks of 32 (Q8_0). Goal: GOP/s above oneDNN's with 1 token; with many
// the share that this costs.
//
//   onednn_bench --benchmark_repetitions=3 --benchmark_report_aggregates_only=true

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "kernels/kernels_testutil.h"
#include "kernels/packed.h"
#include "onednn_product.h"

namespace kvist::bench {
namespace {

using benchmark::Counter;
using benchmark::State;

constexpr uint32_t kRows = 8192, kCols = 4096;

void Count(State& state, size_t weight_bytes) {
  const auto runs = static_cast<double>(state.iterations());
  const auto tokens = static_cast<double>(state.range(0));
  state.counters["GB/s"] = Counter(1e-9 * runs * static_cast<double>(weight_bytes), Counter::kIsRate);
  state.counters["GOP/s"] = Counter(2e-9 * runs * kRows * kCols * tokens, Counter::kIsRate);
}

void OneDnn(State& state, OneDnnType type) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const size_t width = type == OneDnnType::kBF16 ? 2 : 1;
  // Small numbers in either type: bf16 from patterns of about 1, int8 as they are.
  Prng prng(1);
  const auto fill = [&](size_t count) {
    std::vector<std::byte> out(count * width);
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::byte(i % width == 1 ? 0x3f : prng.Below(128));
    return out;
  };
  const std::vector<std::byte> weights = fill(size_t{kRows} * kCols), x = fill(size_t{tokens} * kCols);
  OneDnnProduct product(type, kRows, kCols, tokens, weights);
  std::vector<float> y(size_t{tokens} * kRows);
  for (auto _ : state) {
    product.Run(x.data(), y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetLabel(product.implementation());
  Count(state, product.weight_bytes());
}

void Ours(State& state, kernels::Isa isa, DType dtype) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const kernels::KernelTable& kernels = kernels::KernelsFor(isa);
  Prng prng(1);
  const std::vector<std::byte> source = kernels::testing::RandomMatrix(dtype, kRows, kCols, prng);
  const kernels::testing::OwnedMatrix w = kernels::testing::Pack(dtype, source, kRows, kCols);
  const std::vector<float> x =
      kernels::testing::RandomRow(kernels::testing::Numbers::kPlain, size_t{tokens} * kCols, prng);
  const kernels::testing::Activations a = kernels::testing::MakeActivations(kernels, dtype, x, tokens, kCols);
  std::vector<float> y(size_t{tokens} * kRows);
  for (auto _ : state) {
    kernels.matmul(w.matrix, a.bytes.data(), a.stride, tokens, 0, kernels::RowGroups(kRows), y.data(), kRows);
    benchmark::DoNotOptimize(y.data());
  }
  Count(state, w.bytes.size());
}

template <class... Args>
void Register(const std::string& name, Args... args) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), args...)->Unit(benchmark::kMillisecond);
  for (int tokens : {1, 32, 512}) bench->Arg(tokens);
}

bool RegisterAll() {
  Register("onednn/" + OneDnnIsa() + "/bf16", OneDnn, OneDnnType::kBF16);
  Register("onednn/" + OneDnnIsa() + "/int8", OneDnn, OneDnnType::kInt8);
  for (kernels::Isa isa : kernels::testing::FastIsas()) {
    const std::string set = "kvist/" + std::string(kernels::IsaName(isa));
    Register(set + "/bf16", Ours, isa, DType::kBF16);
    Register(set + "/q8_0", Ours, isa, DType::kQ8_0);
  }
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace kvist::bench
