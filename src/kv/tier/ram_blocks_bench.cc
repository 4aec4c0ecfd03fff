// Cold memory's copies. Goal: near what memory allows for "none"; for "int8" no slower per block, as it moves less.
// Unit: bytes of frames per second.

#include <benchmark/benchmark.h>

#include "base/prng.h"
#include "kv/tier/ram_blocks.h"

namespace kvist::kv {
namespace {

constexpr uint32_t kBlocks = 512;  ///< 256 MiB of frames, so that caches do not help.

/// Blocks of llama-3.2-1b's shape: 512 KiB.
PageLayout Layout() {
  return PageLayout::Dense(KvType::kF16, /*layers=*/16, /*kv_heads=*/8, /*key_width=*/64, /*value_width=*/64);
}

void Transfer(benchmark::State& state, std::string_view codec_name, bool load) {
  const FrameArena arena = *FrameArena::Create(kBlocks, Layout().frame_bytes());
  Prng prng(1);
  for (uint32_t frame = 0; frame < kBlocks; ++frame) {
    auto* const numbers = reinterpret_cast<uint16_t*>(arena.Frame(FrameId{frame}));
    for (uint64_t i = 0; i < arena.frame_bytes() / 2; ++i) numbers[i] = static_cast<uint16_t>(prng.Next() & 0xb3ff);
  }
  const std::vector<TokenId> tokens(kBlockTokens);
  std::vector<ColdWrite> writes;
  std::vector<ColdRead> reads;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    writes.push_back({.id = {Mix64(i), i}, .tokens = tokens, .frame = FrameId{i}});
    reads.push_back({.id = {Mix64(i), i}, .frame = FrameId{i}, .tokens = tokens});
  }
  const auto codec = [&] { return *MakeFrameCodec(codec_name, Layout()); };
  const auto blocks = *RamBlocks::Create(arena, codec(), {.bytes_max = kBlocks * codec()->encoded_bytes()});
  ColdNews news;
  const auto finish = [&] { blocks->Poll(TimeNs{0}, news, /*wait=*/true); };
  blocks->Store(writes);
  finish();  // Pages are there now.
  uint64_t round = 0;
  for (auto _ : state) {
    if (load) {
      blocks->Load(reads, TimeNs{0}, {});
    } else {
      ++round;  // Other blocks, in place of those.
      for (ColdWrite& write : writes) write.id.low = Mix64(write.id.low + round);
      blocks->Store(writes);
    }
    finish();
    news = {};
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kBlocks * arena.frame_bytes()));
}

BENCHMARK_CAPTURE(Transfer, store_none, "none", false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(Transfer, load_none, "none", true)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(Transfer, store_int8, "int8", false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(Transfer, load_int8, "int8", true)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kvist::kv
