// What it costs a step of one token to tell how much attention it paid to 32 parts of its view
// (StepResult::range_mass): the same step with and without. Goal: less than reading all keys and values once more.
//
//   KVIST_BENCH_MODEL=llama-3.2-1b-q4_0.gguf mass_bench        # else the default model

#include <benchmark/benchmark.h>

#include <cstdlib>

#include "exec/cpu/golden_testutil.h"
#include "exec/cpu/segments_testutil.h"

namespace kvist::exec {
namespace {

constexpr uint32_t kDepthMax = 32768, kRanges = 32;

std::string ModelPath() {
  const char* path = std::getenv("KVIST_BENCH_MODEL");
  return path != nullptr ? path : GoldenFolder() / "../../models/default-f16.gguf";
}

/// A sequence of so many tokens: one block is computed, the others are copies of it.
SegmentSequence Filled(SegmentWorld& world, uint32_t tokens) {
  constexpr uint32_t kBlock = kv::kBlockTokens;
  SegmentSequence sequence;
  world.NewTail(sequence, tokens / kBlock + 1);
  world.Append(sequence, std::vector<TokenId>(kBlock, TokenId{20}));
  std::vector<step::BlockCopy> copies;
  for (uint32_t block = 1; block < tokens / kBlock; ++block) copies.push_back({sequence.tail, 0, sequence.tail, block});
  sequence.view.front().tokens_count = sequence.tail_tokens = tokens;
  sequence.position = tokens;
  world.Step({{&sequence, {TokenId{21}}}}, copies);
  return sequence;
}

void BM_Step(benchmark::State& state) {
  const auto depth = static_cast<uint32_t>(state.range(0));
  SegmentWorld world(ModelPath(), {.threads = UsableCores(), .context_tokens = kDepthMax + kv::kBlockTokens});
  const SegmentSequence sequence = Filled(world, depth);
  std::vector<step::ViewRange> ranges;
  for (uint32_t i = 0; state.range(1) != 0 && i < kRanges; ++i) {
    ranges.push_back({depth / kRanges * i, depth / kRanges * (i + 1)});
  }
  for (auto _ : state) {
    SegmentSequence again = sequence;  // The same token over and over.
    world.Step({{&again, {TokenId{22}}, ranges}});
  }
  state.counters["kv_bytes"] = static_cast<double>(world.kv_bytes_read());
}
BENCHMARK(BM_Step)
    ->ArgNames({"depth", "mass"})
    ->ArgsProduct({{8192, kDepthMax}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvist::exec
