#include "lab/cache_replay.h"

#include <algorithm>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/prng.h"
#include "base/status.h"
#include "kv/kv_memory.h"

namespace kvist::lab {
namespace {

using kv::BlocksFor;
using kv::kBlockTokens;

constexpr uint32_t kVocab = 1u << 20;
constexpr uint64_t kNever = UINT64_MAX;

/// A prompt as blocks of the pool, each named by its tokens and all before them.
struct Blocks {
  std::vector<uint64_t> ids;
  uint32_t tokens = 0;
};

Blocks BlocksOf(const std::vector<TokenId>& prompt) {
  Blocks blocks{.ids = {}, .tokens = static_cast<uint32_t>(prompt.size())};
  uint64_t chain = 1;
  for (size_t i = 0; i < prompt.size(); ++i) {
    chain = Mix64(chain ^ prompt[i].value);
    if ((i + 1) % kBlockTokens == 0 || i + 1 == prompt.size()) blocks.ids.push_back(Mix64(chain + i));
  }
  return blocks;
}

/// What a cache that holds the first `hits` blocks of a prompt has to compute: at least its last token.
uint64_t Computed(const Blocks& blocks, size_t hits) {
  return blocks.tokens - std::min<uint64_t>(hits * kBlockTokens, blocks.tokens - 1);
}

uint64_t InfiniteCache(const std::vector<Blocks>& requests, uint64_t* distinct) {
  absl::flat_hash_set<uint64_t> cached;
  uint64_t computed = 0;
  for (const Blocks& request : requests) {
    size_t hits = 0;
    while (hits < request.ids.size() && cached.contains(request.ids[hits])) ++hits;
    computed += Computed(request, hits);
    cached.insert(request.ids.begin(), request.ids.end());
  }
  *distinct = cached.size();
  return computed;
}

/// Belady's policy: the block that is needed last gives way. A block is needed no later than those that follow it, so
/// only ends of cached beginnings give way. Source: Belady, "A study of replacement algorithms for a virtual-storage
/// computer", 1966.
class Clairvoyant {
 public:
  Clairvoyant(const std::vector<Blocks>& requests, uint32_t blocks) : requests_(requests), room_(blocks) {
    next_use_.resize(requests.size());
    absl::flat_hash_map<uint64_t, uint64_t> next;
    for (size_t r = requests.size(); r-- > 0;) {
      for (const uint64_t id : requests[r].ids) {
        const auto [it, inserted] = next.try_emplace(id, kNever);
        next_use_[r].push_back(it->second);
        it->second = r;
      }
    }
  }

  uint64_t Run() {
    uint64_t computed = 0;
    for (size_t r = 0; r < requests_.size(); ++r) {
      const Blocks& request = requests_[r];
      size_t hits = 0;
      while (hits < request.ids.size() && cached_.contains(request.ids[hits])) ++hits;
      computed += Computed(request, hits);
      // The request's own blocks are in use while it runs: they compete only when it ends.
      for (size_t i = 0; i < request.ids.size(); ++i) {
        cached_[request.ids[i]] = next_use_[r][i];
        queue_.push({next_use_[r][i], i, request.ids[i]});
      }
      Shrink();
    }
    return computed;
  }

 private:
  struct Candidate {
    uint64_t next_use;
    size_t depth;  ///< Of two that are needed at the same time, the deeper one gives way.
    uint64_t id;
    bool operator<(const Candidate& other) const {
      return std::pair(next_use, depth) < std::pair(other.next_use, other.depth);
    }
  };

  void Shrink() {
    while (cached_.size() > room_) {
      const Candidate candidate = queue_.top();
      queue_.pop();
      const auto it = cached_.find(candidate.id);
      if (it == cached_.end() || it->second != candidate.next_use) continue;  // Outdated.
      cached_.erase(it);
    }
  }

  const std::vector<Blocks>& requests_;
  const uint32_t room_;
  std::vector<std::vector<uint64_t>> next_use_;     ///< [request][block]
  absl::flat_hash_map<uint64_t, uint64_t> cached_;  ///< To its next use.
  std::priority_queue<Candidate> queue_;
};

}  // namespace

absl::StatusOr<CacheReplayResult> ReplayCache(const workload::Trace& trace, const CacheReplayOptions& options) {
  if (trace.block_tokens == 0) return absl::InvalidArgumentError("the trace says nothing about what prompts share");
  kv::KvMemory memory({.frames_count = options.blocks, .buckets = options.buckets});
  CacheReplayResult result;
  std::vector<Blocks> requests;
  double empty = 0;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const std::vector<TokenId> prompt = workload::PromptTokens(trace.requests[r], trace.block_tokens, kVocab, r);
    if (prompt.empty() || BlocksFor(prompt.size()) > options.blocks) {
      ++result.refused;
      continue;
    }
    ++result.requests;
    requests.push_back(BlocksOf(prompt));
    result.prompt_tokens += prompt.size();
    const RequestId id{r + 1};
    const uint32_t cached = memory.Begin(id, 0, prompt);
    // A block that is copied keeps its source until the first commit: go that far first.
    const auto first =
        std::min(static_cast<uint32_t>(prompt.size()), cached / kBlockTokens * kBlockTokens + kBlockTokens);
    KVIST_CHECK(memory.Reserve(id, first));
    memory.Commit(id, std::span(prompt).subspan(cached, first - cached));
    KVIST_CHECK(memory.Reserve(id, static_cast<uint32_t>(prompt.size())));
    memory.Commit(id, std::span(prompt).subspan(first));
    result.computed_tokens += prompt.size() - cached;
    const double in_use = static_cast<double>(memory.counts().referenced) * kBlockTokens;
    empty += static_cast<double>(memory.Figures().empty_slots) / in_use;
    memory.End(id);
  }
  result.evicted_blocks = memory.stats().evicted_blocks;
  result.empty_share = requests.empty() ? 0 : empty / static_cast<double>(requests.size());
  result.infinite_computed_tokens = InfiniteCache(requests, &result.distinct_blocks);
  result.clairvoyant_computed_tokens = Clairvoyant(requests, options.blocks).Run();
  return result;
}

}  // namespace kvist::lab
