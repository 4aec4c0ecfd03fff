#pragma once

/// @file
/// What one request has used, counted in place by the engine thread, and who keeps the counts. Rules, so that sums over
/// requests are the engine's own totals: a step's time is split over its slices by their tokens; a block that several
/// requests hold is split evenly between them (kv/hold_ledger.h). Non-goals: tenants, money, databases (serve/).

#include <cstdint>
#include <span>

#include "engine/generation.h"
#include "kv/cold_blocks.h"

namespace kvist::engine {

/// Plain data: it may lie in memory that outlives the process.
struct Meter {
  uint32_t prompt_tokens = 0;      ///< Since the request has its place in memory; a refused one has none.
  uint32_t cached_tokens = 0;      ///< Of these, found then.
  uint32_t computed_tokens = 0;    ///< The model was run on, those computed again included.
  uint32_t recomputed_tokens = 0;  ///< Given way to others while it was preempted.
  uint32_t generated_tokens = 0;   ///< Sampled; counted before anybody is told.
  uint32_t preemptions = 0;
  int64_t step_share_ns = 0;    ///< Its part of the time of steps.
  int64_t queue_ns = -1;        ///< From arrival to its place in memory; -1 = did not happen, likewise below.
  int64_t first_token_ns = -1;  ///< From arrival.
  int64_t total_ns = -1;        ///< From arrival to the end of the last step that had a part of it.
  double kv_hot_block_ns = 0;   ///< Blocks held times time; of a running request as of a second ago or less.
};

/// Keeps the meters of a server. Called on the engine thread; must not wait.
class MeterBook {
 public:
  virtual ~MeterBook() = default;

  /// A meter for a request that has arrived, all zero. nullptr = there is no room for it: the request is refused.
  virtual Meter* Open(RequestId id, const GenerationRequest& request) = 0;
  /// The request is over, and its meter complete and the book's.
  virtual void Close(Meter* meter, FinishReason reason) = 0;
  /// What blocks on the tiers below memory take, and have taken since the start. Every ten seconds, and when the engine
  /// has stopped.
  virtual void TakeHoldings(std::span<const kv::TierHolding> holdings) = 0;
};

}  // namespace kvist::engine
