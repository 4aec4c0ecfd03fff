#include "lab/tier_replay.h"

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lab/lru.h"

namespace kvist::lab {
namespace {

struct History {
  uint32_t accesses = 0;
  TimeNs first{0}, last{0}, since{0};
};

/// Whether the block is to be written that leaves memory while request `request` runs.
using Admit = std::function<bool(uint64_t id, size_t request, const kv::DemotionFacts& facts)>;

class Replay {
 public:
  Replay(const TierReplayOptions& options, bool at_once, const Admit& admit)
      : options_(options), at_once_(at_once), admit_(admit) {}

  void Run(const workload::TraceRequest& request, size_t index) {
    now_ = TimeNs{static_cast<int64_t>(request.at_s * 1e9)};
    request_ = index;
    ++result_.requests;
    result_.asked += request.block_hashes.size();
    bool found = true;
    for (const uint64_t id : request.block_hashes) {
      const bool in_memory = memory_.contains(id), on_drive = drive_.contains(id);
      found = found && (in_memory || on_drive);
      if (found) ++(in_memory ? result_.memory_hits : result_.drive_hits);
      if (found && on_drive) drive_.Use(id);
      History& history = histories_[id];
      if (history.accesses++ == 0) history.first = now_;
      if (!in_memory) history.since = now_;
      history.last = now_;
      if (at_once_ && !on_drive) Offer(id, history);
    }
    // The beginning last: a block is worthless without those before it.
    for (size_t i = request.block_hashes.size(); i-- > 0;) memory_.Use(request.block_hashes[i]);
    while (memory_.size() > options_.memory_blocks) {
      const uint64_t id = memory_.TakeOldest();
      if (!at_once_ && !drive_.contains(id)) Offer(id, histories_[id]);
    }
  }

  TierReplayResult result(double seconds) {
    result_.distinct = histories_.size();
    result_.seconds = seconds;
    return result_;
  }

 private:
  void Offer(uint64_t id, const History& history) {
    ++result_.left_memory;
    const kv::DemotionFacts facts{.accesses = history.accesses,
                                  .first_access = history.first,
                                  .last_access = history.last,
                                  .resident_since = history.since,
                                  .now = now_,
                                  .bytes = options_.block_bytes};
    if (!admit_(id, request_, facts)) return;
    ++result_.written;
    drive_.Use(id);
    if (drive_.size() > options_.drive_blocks) drive_.TakeOldest();
  }

  const TierReplayOptions options_;
  const bool at_once_;
  const Admit& admit_;
  Lru memory_, drive_;
  absl::flat_hash_map<uint64_t, History> histories_;
  TimeNs now_{0};
  size_t request_ = 0;
  TierReplayResult result_;
};

absl::StatusOr<TierReplayResult> RunAll(const workload::Trace& trace, const TierReplayOptions& options, bool at_once,
                                        const Admit& admit) {
  if (trace.block_tokens == 0) return absl::InvalidArgumentError("the trace says nothing about what prompts share");
  Replay replay(options, at_once, admit);
  for (size_t i = 0; i < trace.requests.size(); ++i) replay.Run(trace.requests[i], i);
  const double seconds = trace.requests.empty() ? 0 : trace.requests.back().at_s - trace.requests.front().at_s;
  return replay.result(seconds);
}

}  // namespace

absl::StatusOr<TierReplayResult> ReplayTiers(const workload::Trace& trace, const TierReplayOptions& options,
                                             kv::AdmissionPolicy& policy) {
  const Admit admit = [&](uint64_t, size_t, const kv::DemotionFacts& facts) { return policy.Admit(facts); };
  return RunAll(trace, options, policy.at_once(), admit);
}

absl::StatusOr<TierReplayResult> ReplayClairvoyant(const workload::Trace& trace, const TierReplayOptions& options) {
  absl::flat_hash_map<uint64_t, size_t> last_use;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    for (const uint64_t id : trace.requests[i].block_hashes) last_use[id] = i;
  }
  const Admit admit = [&](uint64_t id, size_t request, const kv::DemotionFacts&) { return last_use[id] > request; };
  return RunAll(trace, options, false, admit);
}

}  // namespace kvist::lab
