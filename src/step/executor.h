#pragma once

/// @file
/// The seam between deciding and computing. The engine sees only this file; the CPU backend, the emulated accelerator
/// and a remote worker implement it. A plan names memory by logical address; where the bytes lie is the executor's
/// affair. Non-goals: queues, policies, allocation of pages.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "kv/view.h"

namespace kvist::step {

using kv::BlockCopy;
using kv::Segment;

/// A token known to the planner, or one that an earlier step will have sampled.
struct TokenRef {
  TokenId known;
  int32_t from_row = -1;  ///< Row of step `from_step` whose sampled token is meant; -1 = `known`.
  StepId from_step{};
};

enum class Mask : uint8_t { kCausal, kTree, kBidirectionalBlock };

/// How often a token stands in the text so far; what the penalties look at.
struct TokenCount {
  TokenId token;
  uint32_t in_prompt;
  uint32_t in_output;
};

struct TokenBias {
  TokenId token;
  float bias;  ///< Added to the logit; -inf forbids the token.
};

/// Tokens [begin, end) of a slice's view.
struct ViewRange {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const ViewRange&, const ViewRange&) = default;
};

/// What to do with the last row of a slice. Runs on the device, so that logits need not travel and the next plan
/// need not wait for them. Order: bias, penalties, allowed tokens, temperature, top-k, top-p, min-p, draw.
struct Sampling {
  float temperature = 1.0f;  ///< 0 = greedy.
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint32_t top_k = 0;  ///< 0 = off.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;            ///< Per request; the draw hashes it with the position, so the batch does not matter.
  uint32_t logprobs_count = 0;  ///< Best alternatives to return beside the chosen token.
  bool want_logprobs = false;   ///< Return the chosen token's log probability (and logprobs_count alternatives).
};

/// One request's share of a step.
struct Slice {
  RequestId request;
  uint32_t position = 0;                            ///< Rotary position of the slice's first token.
  uint32_t tokens_begin = 0, tokens_count = 0;      ///< Into StepPlan::tokens.
  uint32_t segments_begin = 0, segments_count = 0;  ///< Into StepPlan::segments: all that may be attended to,
                                                    ///< this slice's own tokens, which end the last one, included.
  SpanId tail;                                      ///< Open span that receives this slice's keys and values.
  uint32_t tail_begin = 0;                          ///< Index inside `tail` of the slice's first token.
  uint32_t commit_count = 0;  ///< Leading tokens kept for good; the rest may be rewritten (drafts, diffusion).
  Mask mask = Mask::kCausal;
  std::optional<Sampling> sampling;               ///< Absent in mid-prompt.
  uint32_t counts_begin = 0, counts_count = 0;    ///< Into StepPlan::counts; for the penalties.
  uint32_t biases_begin = 0, biases_count = 0;    ///< Into StepPlan::biases.
  uint32_t allowed_begin = 0, allowed_count = 0;  ///< Into StepPlan::allowed: a bit for each token of the vocabulary,
                                                  ///< [(vocab_size + 31) / 32], at least one set; or empty = all.
  uint32_t scores_begin = 0, scores_count = 0;  ///< Into StepPlan::score_targets: targets of rows one after the other,
  uint32_t scores_row = 0;                      ///< of which this is the first, counted in the slice.
  uint32_t scores_top = 0;                      ///< Likeliest tokens that come back beside each target.
  bool want_hidden = false;                     ///< The last row's state comes back: what the head reads.
  uint32_t logits_rows = 0;                     ///< Trailing rows whose whole logits come back (tests, constraints).
  uint32_t mass_begin = 0, mass_count = 0;      ///< Into StepPlan::mass_ranges: in order, apart; may be empty.
};

/// Movement of one page between places, to be done before `needed_by_layer` of this step.
struct PageCopy {
  PageId page;
  uint8_t source_tier, target_tier;  ///< 0 hot, 1 cold memory, 2 disk, 3 peer.
  uint16_t needed_by_layer;          ///< Layers before it may run while the copy is under way.
};

/// Plain data that owns its storage: recorded, replayed, diffed, fuzzed, or sent to another process.
struct StepPlan {
  StepId id;
  std::vector<Slice> slices;      ///< [num_slices]
  std::vector<TokenRef> tokens;   ///< [num_tokens] slice-major.
  std::vector<Segment> segments;  ///< [sum(segments_count)] slice-major.
  std::vector<PageCopy> copies;
  std::vector<BlockCopy> block_copies;  ///< Made before the step's first layer, as if one by one, in order.
  std::vector<TokenCount> counts;       ///< [sum(counts_count)]
  std::vector<TokenBias> biases;        ///< [sum(biases_count)]
  std::vector<uint32_t> allowed;        ///< [sum(allowed_count)] bits; log probabilities do not regard them.
  std::vector<TokenId> score_targets;   ///< [sum(scores_count)] tokens whose log probability is wanted.
  std::vector<ViewRange> mass_ranges;   ///< [sum(mass_count)] parts of views whose attention mass is wanted.

  /// Empties every list and keeps the capacity.
  void Clear();
};

struct TokenLogprob {
  TokenId token;
  float logprob;  ///< Natural log, from the raw logits.
};

struct StepResult {
  StepId id;
  StepPlan plan;                       ///< Handed back: its buffers are reused.
  std::vector<TokenId> sampled;        ///< [slices with sampling] in slice order.
  std::vector<TokenLogprob> logprobs;  ///< Per slice that wants them: the chosen token, then logprobs_count best.
  std::vector<float> scores;           ///< [sum(scores_count)] log probability of each target.
  /// [sum(scores_count * scores_top)] per scored row its likeliest tokens, likeliest first.
  std::vector<TokenLogprob> score_tops;
  std::vector<float> hidden;    ///< [slices that want it, hidden_size] row-major.
  std::vector<float> logits;    ///< [sum(logits_rows), vocab_size] row-major; usually empty.
  std::vector<PageId> missing;  ///< Pages a selection policy wanted and could not have in time.
  /// [sum(mass_count)] attention mass of each range: the probability that the last row of its slice gives to the
  /// range's tokens, averaged over the query heads of all layers that see the whole view (of all layers in a model
  /// without such). Ranges that cover a view add up to 1.
  std::vector<float> range_mass;
  TimeNs started_at, finished_at;  ///< On the executor's Clock, real or virtual.
  uint64_t bytes_moved = 0;        ///< Weights and KV, counted or modelled.
  uint64_t kv_bytes_read = 0;      ///< Keys and values among them; shared ones once for all who read together.
};

/// Fixed for the executor's life; the planner stays inside them.
struct ExecutorLimits {
  uint32_t tokens_per_step_max = 0, slices_per_step_max = 0;
  uint32_t block_tokens = 0;
  uint64_t hot_bytes = 0;
  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;          ///< Features of a token's state.
  uint32_t context_tokens_max = 0;   ///< Longest view.
  uint32_t steps_in_flight_max = 1;  ///< 1 = synchronous device.
};

/// Runs step plans on one device.
///
/// Ordering: results arrive in submission order. Threads: one caller thread. Addresses are translated inside Submit, so
/// the caller may change its tables for other sequences while a step runs; the spans named by the plan stay as they are
/// until its result was polled. Errors: InvalidArgument = plan outside Limits(), nothing ran; FailedPrecondition = a
/// page that is to be read is not in hot memory, nothing ran; Unavailable = window full, call Poll; DataLoss = device
/// memory gone, every request restarts. A plan that breaks its own invariants is a caller bug and aborts.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::string_view Name() const = 0;  ///< e.g. "cpu-avx512", "emulated-h100".
  virtual const ExecutorLimits& Limits() const = 0;

  /// Accepts a plan; never blocks on compute. Takes the plan only on success.
  virtual absl::Status Submit(StepPlan&& plan) = 0;

  /// The oldest finished step, or nullopt when none has finished yet.
  /// On a virtual clock, "finished" means finished_at <= clock.Now().
  virtual absl::StatusOr<std::optional<StepResult>> Poll() = 0;

  /// Hands back a result that has been read, so that its buffers serve a later step. Optional, for caller and executor;
  /// the plan may have been moved out before.
  virtual void Recycle(StepResult&& /*result*/) {}

  /// When Poll can next return something, if the device can tell; nullopt when idle or unknown.
  virtual std::optional<TimeNs> NextCompletion() const = 0;

  /// Called from any thread whenever a step has finished, so that a real-time caller can sleep. Set before the first
  /// Submit; set to nothing when no step is under way and the caller goes: when that returns, the last call has ended.
  virtual void SetWake(std::function<void()> wake) = 0;
};

}  // namespace kvist::step
