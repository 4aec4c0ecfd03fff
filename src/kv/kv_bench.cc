// What the engine thread pays for memory: finding a cached beginning, taking and giving back blocks, and how long
// threads hold and wait for the pool's locks.

#include <benchmark/benchmark.h>

#include <vector>

#include "base/prng.h"
#include "kv/kv_memory.h"

namespace kvist::kv {
namespace {

std::vector<TokenId> Text(uint64_t seed, uint32_t tokens, uint32_t shared) {
  std::vector<TokenId> text;
  Prng common(7), own(seed);
  for (uint32_t i = 0; i < tokens; ++i) {
    text.push_back(TokenId{static_cast<uint32_t>((i < shared ? common : own).Below(50000))});
  }
  return text;
}

/// A tree of 2^20 cached tokens: conversations of `tokens` that begin with the same 2048.
struct FullTree {
  static constexpr uint32_t kTokens = 1 << 20, kShared = 2048;
  explicit FullTree(uint32_t tokens) : memory({.frames_count = kTokens / kBlockTokens + 4096}) {
    for (uint32_t i = 0; i < kTokens / tokens; ++i) {
      texts.push_back(Text(i + 1, tokens, kShared));
      const RequestId id{i};
      const uint32_t cached = memory.Begin(id, 0, texts.back());
      memory.Reserve(id, tokens);
      memory.Commit(id, std::span(texts.back()).subspan(cached));
      memory.End(id);
    }
  }
  KvMemory memory;
  std::vector<std::vector<TokenId>> texts;
};

/// Finding alone: no references, no allocation.
void BM_Lookup(benchmark::State& state) {
  FullTree full(static_cast<uint32_t>(state.range(0)));
  const NodeId root = const_cast<PrefixTree&>(full.memory.tree()).Root(0);
  std::vector<PathStep> path;
  path.reserve(64);
  uint64_t matched = 0;
  size_t next = 0;
  for (auto _ : state) {
    const std::vector<TokenId>& text = full.texts[next++ * 7919 % full.texts.size()];
    matched += full.memory.tree().Find(root, {text, {}}, path).tokens;
  }
  state.counters["ns_per_token"] = benchmark::Counter(static_cast<double>(matched) * 1e-9,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Lookup)->Arg(4096)->Arg(32768);

/// A request that finds everything and ends: references and gives back each block.
void BM_BeginAndEnd(benchmark::State& state) {
  FullTree full(static_cast<uint32_t>(state.range(0)));
  uint64_t matched = 0, id = 1 << 20;
  size_t next = 0;
  for (auto _ : state) {
    const std::vector<TokenId>& text = full.texts[next++ * 7919 % full.texts.size()];
    matched += full.memory.Begin(RequestId{++id}, 0, text);
    full.memory.End(RequestId{id});
  }
  state.counters["ns_per_token"] = benchmark::Counter(static_cast<double>(matched) * 1e-9,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_BeginAndEnd)->Arg(4096)->Arg(32768);

/// One block taken and given back, by one thread or several that work on one pool.
void BM_AllocateAndRelease(benchmark::State& state) {
  static FramePool* pool = nullptr;
  if (state.thread_index() == 0) pool = new FramePool(1 << 16, static_cast<uint32_t>(state.range(0)));
  Prng prng(static_cast<uint64_t>(state.thread_index()));
  for (auto _ : state) {
    const std::optional<FrameId> frame = pool->Allocate(PageId{prng.Next()});
    benchmark::DoNotOptimize(frame);
    pool->Release(*frame, /*keep=*/false);
  }
  if (state.thread_index() == 0) delete pool;
}
BENCHMARK(BM_AllocateAndRelease)->Arg(1)->Arg(64)->Threads(1)->Threads(2)->UseRealTime();

/// A full pool: the oldest cached block gives way, as when memory is used up.
void BM_TakeOldestAndKeep(benchmark::State& state) {
  FramePool pool(1 << 16, static_cast<uint32_t>(state.range(0)));
  Prng prng(1);
  while (const std::optional<FrameId> frame = pool.Allocate(PageId{prng.Next()})) pool.Release(*frame, /*keep=*/true);
  for (auto _ : state) {
    const std::optional<FrameId> frame = pool.TakeOldest(PageId{prng.Next()});
    pool.Release(*frame, /*keep=*/true);
  }
}
BENCHMARK(BM_TakeOldestAndKeep)->Arg(1)->Arg(64);

}  // namespace
}  // namespace kvist::kv
