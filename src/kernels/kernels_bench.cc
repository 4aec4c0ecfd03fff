// Speed of the hot kernels on one thread. Goal: one token near the bandwidth of memory (GB/s of packed weights), many
// tokens near the integer or float peak (GOP/s, two operations per weight and token; "peak" is the share of the peak
// that peak.h measures).
//
//   kernels_bench --benchmark_filter='matmul/amx/.*/128'

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/kernels_testutil.h"
#include "kernels/packed.h"
#include "kernels/peak.h"
#include "kernels/sampling.h"

namespace kvist::kernels {
namespace {

using benchmark::Counter;
using benchmark::State;
using testing::Bytes;

constexpr uint32_t kRows = 8192, kCols = 4096;

/// A matrix of 32 million weights: 18 MB (Q4_0) to 128 MB (F32). The values do not matter for speed; random bits would,
/// by NaN.
testing::OwnedMatrix BigMatrix(DType dtype) {
  Prng prng(1);
  std::vector<std::byte> rows = testing::RandomMatrix(dtype, 16, kCols, prng);
  testing::OwnedMatrix big{Bytes(PackedBytes(dtype, kRows, kCols)), {dtype, kRows, kCols, nullptr}};
  testing::OwnedMatrix group = testing::Pack(dtype, rows, 16, kCols);
  for (size_t at = 0; at < big.bytes.size(); at += group.bytes.size()) {
    std::copy(group.bytes.data(), group.bytes.data() + group.bytes.size(), big.bytes.data() + at);
  }
  big.matrix.data = big.bytes.data();
  return big;
}

/// Peak of the products that a type's matmul is made of, measured once.
double PeakGops(Isa isa, DType dtype) {
  static std::map<std::pair<Isa, PeakKind>, double> peaks;
  const PeakKind kind = PeakKindOf(dtype);
  auto [entry, is_new] = peaks.try_emplace({isa, kind}, 0);
  if (is_new) entry->second = 1e-9 * MeasurePeakOpsPerS(isa, kind);
  return entry->second;
}

void MatMul(State& state, Isa isa, DType dtype) {
  const KernelTable& kernels = KernelsFor(isa);
  auto tokens = static_cast<uint32_t>(state.range(0));
  Prng prng(2);
  testing::OwnedMatrix w = BigMatrix(dtype);
  std::vector<float> x = testing::RandomRow(testing::Numbers::kPlain, size_t{tokens} * kCols, prng);
  testing::Activations a = testing::MakeActivations(kernels, dtype, x, tokens, kCols);
  std::vector<float> y(size_t{tokens} * kRows);
  for (auto _ : state) {
    kernels.matmul(w.matrix, a.bytes.data(), a.stride, tokens, 0, RowGroups(kRows), y.data(), kRows);
    benchmark::DoNotOptimize(y.data());
  }
  double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(1e-9 * runs * static_cast<double>(w.bytes.size()), Counter::kIsRate);
  double gop = 2e-9 * runs * kRows * kCols * tokens;
  state.counters["GOP/s"] = Counter(gop, Counter::kIsRate);
  state.counters["peak"] = Counter(gop / PeakGops(isa, dtype), Counter::kIsRate);
}

void QuantizeRows(State& state, Isa isa) {
  Prng prng(3);
  constexpr uint32_t kTokens = 64;
  std::vector<float> x = testing::RandomRow(testing::Numbers::kPlain, kTokens * kCols, prng);
  Bytes out(kTokens * ActivationRowBytes(kCols));
  for (auto _ : state) KernelsFor(isa).quantize_rows(x.data(), kCols, kTokens, kCols, out.data());
  state.SetItemsProcessed(state.iterations() * kTokens * kCols);
}

/// Attention of range(0) query rows over 128 blocks (2048 tokens) of one KV head of 128.
void Attend(State& state, Isa isa, KvType type) {
  constexpr uint32_t kDim = 128, kBlocks = 128;
  auto rows = static_cast<uint32_t>(state.range(0));
  Prng prng(4);
  std::vector<float> kv = testing::RandomRow(testing::Numbers::kPlain, kDim, prng);
  const size_t page_bytes = KvKeyPageBytes(type, kDim);  // Those of values are not larger.
  const size_t bytes = kBlocks * (KvKeyPageBytes(type, kDim) + KvValuePageBytes(type, kDim));
  Bytes pages(2 * kBlocks * page_bytes);
  auto page = [&](uint32_t i) { return pages.data() + i * page_bytes; };
  for (uint32_t b = 0; b < kBlocks; ++b) {
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      KernelsFor(isa).store_key(type, kv.data(), kDim, t, page(2 * b));
      KernelsFor(isa).store_value(type, kv.data(), kDim, t, page(2 * b + 1));
    }
  }
  std::vector<float> queries = testing::RandomRow(testing::Numbers::kPlain, rows * kDim, prng);
  std::vector<float> max(rows, -1e30f), sum(rows * kPageTokens), acc(rows * kDim);
  std::vector<uint64_t> visible(rows, ~uint64_t{0});
  const AttendShape shape{rows, 1, kDim, kDim, 0, type};
  Bytes prepared(KernelsFor(isa).attend_query_bytes(shape));
  KernelsFor(isa).attend_prepare(shape, queries.data(), kDim, 1.0f, prepared.data());
  for (auto _ : state) {
    for (uint32_t first = 0; first < kBlocks; first += kTileBlocks) {
      AttendTile tile{.keys = {}, .values = {}, .visible = visible.data()};
      for (uint32_t b = 0; b < kTileBlocks; ++b) {
        tile.keys[b] = page(2 * (first + b));
        tile.values[b] = page(2 * (first + b) + 1);
      }
      KernelsFor(isa).attend(shape, prepared.data(), tile, {max.data(), sum.data(), acc.data(), kDim});
    }
  }
  double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(1e-9 * runs * static_cast<double>(bytes), Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(4e-9 * runs * rows * kDim * kBlocks * kPageTokens, Counter::kIsRate);
}

void SiluMul(State& state, Isa isa) {
  Prng prng(5);
  std::vector<float> g = testing::RandomRow(testing::Numbers::kPlain, kRows, prng), y(kRows);
  for (auto _ : state) KernelsFor(isa).silu_mul(g.data(), g.data(), kRows, y.data());
  state.SetItemsProcessed(state.iterations() * kRows);
}

void RmsNorm(State& state, Isa isa) {
  Prng prng(6);
  std::vector<float> x = testing::RandomRow(testing::Numbers::kPlain, kCols, prng), y(kCols);
  for (auto _ : state) KernelsFor(isa).rms_norm(x.data(), x.data(), kCols, 1e-5f, y.data());
  state.SetItemsProcessed(state.iterations() * kCols);
}

void PackRows(State& state, DType dtype) {
  Prng prng(7);
  constexpr uint32_t kPackRows = 256;
  std::vector<std::byte> source = testing::RandomMatrix(dtype, kPackRows, kCols, prng);
  Bytes packed(PackedBytes(dtype, kPackRows, kCols));
  for (auto _ : state) PackRowGroups(dtype, source.data(), kPackRows, kCols, 0, RowGroups(kPackRows), packed.data());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size()));
}

/// Logits of a large vocabulary. Goal: a token in far less than a millisecond, and than sorting takes.
std::vector<float> Logits() {
  Prng prng(8);
  std::vector<float> logits(151'936);
  for (float& x : logits) x = 3 * testing::Normal(prng);
  return logits;
}

/// @param uses  tokens that penalties look at.
void Sample(State& state, SamplingParams params, uint32_t uses_count = 0) {
  const std::vector<float> logits = Logits();
  std::vector<TokenUse> uses;
  for (uint32_t i = 0; i < uses_count; ++i) uses.push_back({i * 37, 1, i % 3});
  SamplingScratch scratch;
  uint64_t position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(SampleToken(logits, params, uses, {}, position++, scratch));
}

void Logprobs(State& state) {
  const std::vector<float> logits = Logits();
  for (auto _ : state) benchmark::DoNotOptimize(LogSumExp(logits));
}

void BestTwenty(State& state) {
  const std::vector<float> logits = Logits();
  const double log_sum = LogSumExp(logits);
  SamplingScratch scratch;
  std::vector<TokenLogprob> best;
  for (auto _ : state) {
    TopLogprobs(logits, log_sum, 20, scratch, best);
    benchmark::DoNotOptimize(best.data());
  }
}

/// What any filter would cost that ranks the whole vocabulary first.
void FullSort(State& state) {
  const std::vector<float> logits = Logits();
  std::vector<Candidate> candidates(logits.size());
  for (auto _ : state) {
    for (uint32_t i = 0; i < logits.size(); ++i) candidates[i] = {logits[i], 0, i};
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    benchmark::DoNotOptimize(candidates.data());
  }
}

bool RegisterAll() {
  for (Isa isa : testing::FastIsas()) {
    std::string suffix = std::string("/") + std::string(IsaName(isa));
    for (DType dtype : testing::AllTypes()) {
      std::string name = "matmul" + suffix + "/" + std::string(InfoOf(dtype).name);
      benchmark::RegisterBenchmark(name.c_str(), MatMul, isa, dtype)
          ->Arg(1)
          ->Arg(8)
          ->Arg(16)
          ->Arg(32)
          ->Arg(128)
          ->Arg(512)
          ->Unit(benchmark::kMillisecond);
    }
    for (KvType type : {KvType::kF16, KvType::kQ8}) {
      const std::string name = "attend" + suffix + "/" + std::string(KvTypeName(type));
      benchmark::RegisterBenchmark(name.c_str(), Attend, isa, type)->Arg(1)->Arg(4)->Arg(8)->Arg(256);
    }
    benchmark::RegisterBenchmark(("quantize_rows" + suffix).c_str(), QuantizeRows, isa);
    benchmark::RegisterBenchmark(("silu_mul" + suffix).c_str(), SiluMul, isa);
    benchmark::RegisterBenchmark(("rms_norm" + suffix).c_str(), RmsNorm, isa);
  }
  for (DType dtype : testing::AllTypes()) {
    benchmark::RegisterBenchmark(("pack/" + std::string(InfoOf(dtype).name)).c_str(), PackRows, dtype);
  }
  const auto sample = [](const char* name, const SamplingParams& params, uint32_t uses_count = 0) {
    benchmark::RegisterBenchmark(name, Sample, params, uses_count)->Unit(benchmark::kMicrosecond);
  };
  sample("sample/greedy", {.temperature = 0});
  sample("sample/greedy_penalties", {.temperature = 0, .repetition_penalty = 1.1f}, 1000);
  sample("sample/plain", {});
  sample("sample/top_k", {.top_k = 40});
  sample("sample/top_k_top_p_penalties", {.top_k = 40, .top_p = 0.95f, .repetition_penalty = 1.1f}, 1000);
  sample("sample/min_p", {.min_p = 0.05f});
  sample("sample/top_p", {.temperature = 0.7f, .top_p = 0.95f});
  sample("sample/top_p_flat", {.temperature = 3, .top_p = 0.95f});
  sample("sample/top_p_penalties", {.temperature = 0.7f, .top_p = 0.95f, .repetition_penalty = 1.1f}, 1000);
  benchmark::RegisterBenchmark("sample/logprobs", Logprobs)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("sample/best_20", BestTwenty)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("sample/full_sort", FullSort)->Unit(benchmark::kMicrosecond);
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace kvist::kernels
