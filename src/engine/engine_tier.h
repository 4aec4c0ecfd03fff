#pragma once

/// @file
/// What the engine moves between hot memory and the tiers below it: beginnings of texts that come back before their
/// requests begin, blocks that are written before their frames are wanted, everything that is cached when the engine
/// stops. Engine thread only. Errors: none; what does not come back is computed. Non-goals: how tiers work
/// (kv/cold_blocks.h), which blocks are worth it (kv/tier/admission.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/request.h"
#include "engine/tier_figures.h"
#include "kv/cold_blocks.h"
#include "kv/kv_memory.h"
#include "kv/tier/admission.h"
#include "sched/step_cost.h"

namespace kvist::engine {

/// A fetch that is over.
struct Fetched {
  RequestId request;
  uint32_t blocks = 0;  ///< That are there.
};

class TierMover {
 public:
  /// References outlive it. REQUIRES: `memory` remembers uses (KvMemoryOptions::uses_remembered).
  TierMover(kv::KvMemory& memory, kv::ColdBlocks& cold, kv::AdmissionPolicy& admission, const TierOptions& options);
  /// Waits for what is under way, as its frames are in use.
  ~TierMover();

  /// Whether a request that could begin now is to wait, because the beginning of its text is being read, or will be as
  /// soon as other moves are done. Starts that where it pays. REQUIRES: there is room for all that is known of it.
  bool HoldsBack(Request& request, const sched::StepCost& cost, TimeNs now);
  /// The request has its place in memory, with what there was. Until then what was read is held for it.
  void TextBegins(Request& request);
  /// What was read for a request, if anything, is not held any more. @return what that has held, in block-nanoseconds
  double EndHold(RequestId request);
  /// What was read last for a request less urgent than this is not held any more, only cached. @return that request
  std::optional<RequestId> GiveUpHold(int urgency = -1);
  /// The request's place in memory is about to end.
  void TextEnds(const Request& request, TimeNs now);
  /// The same of a request that will be back: what it has is written before it leaves memory, where reading that will
  /// be sooner done than computing it again. (P44, FastSwitch: only what is not stored yet moves, and only when it
  /// must.)
  void TextIsPreempted(const Request& request, const sched::StepCost& cost);
  /// Takes what has come and what is written; decides about blocks that would be given up next.
  /// @return whether anything changed.
  bool Turn(TimeNs now);
  /// Whose reads are done, once each: their requests may begin.
  std::vector<Fetched> TakeFetched();
  /// The engine stops: what is cached is stored as far as it is admitted, and time allows. @param clock  of `now`
  void Close(const Clock& clock);

  /// Frames are on their way to become free, or cached.
  bool moving() const { return !loads_.empty() || !stores_.empty(); }
  /// When Turn has something to do, as nobody calls when a tier has done something; kTimeNever = never.
  TimeNs NextTurn(TimeNs now) const;

  const TierStats& stats() const { return stats_; }
  std::vector<kv::TierFigures> Figures() const { return cold_.Figures(); }
  /// Time goes on for what tiers hold.
  void Advance(TimeNs now) { cold_.Advance(now); }
  std::vector<kv::TierHolding> Holdings() const { return cold_.Holdings(); }
  bool closed() const { return closed_; }

 private:
  struct Load {
    RequestId sequence;  ///< In KvMemory.
    RequestId request;   ///< May have ended since.
    uint8_t priority = 0;
    std::vector<TokenId> tokens;
    std::vector<kv::ContentId> ids;  ///< Of the blocks that are read.
    uint32_t usable = 0;             ///< Of these, before the first that was to be forgotten since.
    TimeNs since{0};

    uint32_t blocks() const { return static_cast<uint32_t>(ids.size()); }
  };

  /// What was read for a request that has not begun.
  struct Hold {
    RequestId sequence;  ///< In KvMemory.
    RequestId request;
    uint8_t priority = 0;
    TimeNs since{0};
  };

  struct Stored {
    uint32_t cached_tokens = 0;
    kv::ColdRun run;
    std::vector<kv::ContentId> ids;  ///< Of the run.
  };
  Stored Find(const Request& request);
  bool WaitsForFrames(uint32_t blocks, int64_t waited_ns);
  bool TakesUndecided(uint32_t frames);
  bool Pays(const Stored& stored, const sched::StepCost& cost);
  bool Start(Request& request, const Stored& stored, TimeNs now);
  void CountLookup(Request& request);
  double EndHold(std::vector<Hold>::iterator hold);
  void FinishLoad(const kv::ColdNews::Load& news, TimeNs now);
  bool Take(const kv::ColdNews& news, TimeNs now);
  bool ForgetBelow();
  uint32_t StoringRoom() const;
  bool StoreAhead(TimeNs now);
  /// A block, and where it goes.
  struct Move {
    kv::KvMemory::Storable block;
    kv::ColdPlaces to;
  };
  /// Whether a block that leaves memory is to be written to the drive. @param kept  in cold memory
  bool WantsDrive(const kv::KvMemory::Storable& block, bool kept);
  void Store(std::vector<Move>& moves, TimeNs now);

  kv::KvMemory& memory_;
  kv::ColdBlocks& cold_;
  kv::AdmissionPolicy& admission_;
  const TierOptions options_;
  absl::flat_hash_map<kv::ColdTicket, Load> loads_;
  std::vector<Hold> holds_;  ///< In the order in which they were read.
  absl::flat_hash_map<kv::ColdTicket, std::vector<FrameId>> stores_;
  absl::flat_hash_map<uint64_t, TenantId> tenants_;  ///< [cache_namespace] whose blocks they are.
  uint64_t next_load_ = 1;
  uint32_t storing_ = 0, loading_ = 0;  ///< Frames.
  uint32_t fetch_frames_ = 0;           ///< That a fetch waits for, as blocks in them are not decided about.
  TimeNs hurry_until_{0};
  TierStats stats_;
  kv::ColdNews news_;
  std::vector<Fetched> fetched_;
  bool closed_ = false;
};

}  // namespace kvist::engine
