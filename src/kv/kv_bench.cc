// What the engine thread pays for memory: finding a cached beginning, taking and giving back blocks, and how long
// threads hold and wait for the pool's locks.

#include <benchmark/benchmark.h>

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "kv/kv_memory.h"
#include "kv/lock_queue_testutil.h"

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

/// What sealing a block costs for its name.
void BM_ContentId(benchmark::State& state) {
  const std::vector<TokenId> tokens = Text(1, kBlockTokens, 0);
  ContentId id = RootContentId(1, KvType::kF16, 1);
  for (auto _ : state) id = NextContentId(id, tokens, {});
  benchmark::DoNotOptimize(id);
  state.counters["ns_per_token"] = benchmark::Counter(static_cast<double>(state.iterations()) * kBlockTokens * 1e-9,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_ContentId);

/// A text that nobody has, block by block: room, keys and values (not here), sealing, publishing; then its end.
void BM_CommitNewText(benchmark::State& state) {
  constexpr uint32_t kTokens = 4096;
  KvMemory memory({.frames_count = 1 << 14});
  uint64_t id = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<TokenId> text = Text(++id, kTokens, 0);
    state.ResumeTiming();
    const uint32_t cached = memory.Begin(RequestId{id}, 0, text);  // Some begin with the same token.
    memory.Reserve(RequestId{id}, kTokens);
    memory.Commit(RequestId{id}, std::span(text).subspan(cached));
    memory.End(RequestId{id});
  }
  state.counters["ns_per_token"] = benchmark::Counter(static_cast<double>(state.iterations()) * kTokens * 1e-9,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_CommitNewText);

/// Times of one thread's operations on a pool, while another thread works on it in turns, so that no lock is waited for
/// and every line comes from the other core.
struct PoolTimes {
  std::vector<double> think_ns;  ///< Between operations: what sealing a block takes.
  std::vector<double> hold_ns;   ///< Whole operations; a little more than the lock is held.
};

PoolTimes MeasurePoolTimes(uint32_t rounds) {
  using Time = std::chrono::steady_clock;
  const auto ns = [](Time::duration duration) { return std::chrono::duration<double, std::nano>(duration).count(); };
  FramePool pool(1 << 12, 1);
  std::vector<double> clock_ns;  // What looking at the clock takes.
  for (uint32_t i = 0; i < rounds; ++i) {
    const Time::time_point begin = Time::now();
    clock_ns.push_back(ns(Time::now() - begin));
  }
  std::ranges::nth_element(clock_ns, clock_ns.begin() + rounds / 2);
  const double clock = clock_ns[rounds / 2];
  PoolTimes times;
  std::atomic<uint32_t> turn{0};
  const auto work = [&](uint32_t me) {
    const std::vector<TokenId> tokens = Text(me, kBlockTokens, 0);
    ContentId id = RootContentId(me, KvType::kF16, 1);
    for (uint32_t round = 0; round < rounds; ++round) {
      while (turn.load(std::memory_order_acquire) != me) _mm_pause();
      const Time::time_point begin = Time::now();
      id = NextContentId(id, tokens, {});
      benchmark::DoNotOptimize(id);
      const Time::time_point thought = Time::now();
      const std::optional<FrameId> frame = pool.Allocate(MakePageId(SpanId{me}, 0, 0, round));
      const Time::time_point allocated = Time::now();
      pool.Release(*frame, /*keep=*/false);
      const Time::time_point released = Time::now();
      turn.store(1 - me, std::memory_order_release);
      if (me == 0) {
        times.think_ns.push_back(std::max(0.0, ns(thought - begin) - clock));
        times.hold_ns.push_back(std::max(1.0, ns(allocated - thought) - clock));
        times.hold_ns.push_back(std::max(1.0, ns(released - allocated) - clock));
      }
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  // Longer ones were interrupted: not by the lock.
  for (std::vector<double>* samples : {&times.think_ns, &times.hold_ns}) {
    std::ranges::sort(*samples);
    samples->resize(samples->size() * 999 / 1000);
  }
  return times;
}

/// Waiting for the pool's locks with 64 threads, by simulation from times that were measured just before: one lock for
/// all against one for each of 64 buckets. Goal: at most 2 %.
void BM_LockWaitOf64Threads(benchmark::State& state) {
  constexpr uint32_t kThreads = 64;
  constexpr uint64_t kOperations = 4000000;
  const auto mean = [](std::span<const double> samples) {
    return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  };
  const auto page = [](uint32_t thread, uint64_t operation) {
    return MakePageId(SpanId{thread}, 0, 0, static_cast<uint32_t>(operation % (1 << 20)));
  };
  for (auto _ : state) {
    const PoolTimes times = MeasurePoolTimes(200000);
    const auto simulate = [&](uint32_t buckets) {
      return SimulateLocks({kThreads, buckets, times.think_ns, times.hold_ns, page}, kOperations, /*seed=*/1);
    };
    const LockQueueResult one = simulate(1), many = simulate(FramePool::kDefaultBuckets);
    state.counters["think_ns"] = mean(times.think_ns);
    state.counters["hold_ns"] = mean(times.hold_ns);
    state.counters["wait_ns_1_lock"] = one.wait_ns;
    state.counters["wait_ns_64_locks"] = many.wait_ns;
    state.counters["wait_p99_ns_64_locks"] = many.wait_p99_ns;
    state.counters["percent"] = 100 * many.wait_ns / one.wait_ns;
  }
}
BENCHMARK(BM_LockWaitOf64Threads)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvist::kv
