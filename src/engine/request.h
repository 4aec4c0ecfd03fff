#pragma once

/// @file
/// A request inside the engine: what it knows, how much of it is computed, what it may still do. Engine thread only.

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/generation.h"
#include "engine/metering.h"
#include "engine/output_text.h"
#include "engine/request_trace.h"
#include "kv/cold_blocks.h"
#include "kv/kv_memory.h"

namespace kvist::engine {

struct Request {
  Request(RequestId request_id, GenerationRequest request_input, EventSink event_sink, const Tokenizer& tokenizer,
          TimeNs now)
      : id(request_id),
        input(std::move(request_input)),
        sink(std::move(event_sink)),
        tokens(input.prompt),
        text(NewText(tokenizer)),
        arrived_at(now) {}

  uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t output_count() const { return known() - static_cast<uint32_t>(input.prompt.size()); }

  const RequestId id;
  const GenerationRequest input;
  EventSink sink;
  std::vector<TokenId> tokens;  ///< Prompt, then output. Known; the first `computed` have keys and values.
  uint32_t computed = 0;
  bool has_memory = false;  ///< Has a KV sequence.
  bool in_step = false;     ///< The running step has a slice of it.
  bool cancelled = false;
  uint32_t output_max = 0;     ///< Set at admission.
  uint32_t blocks_spared = 0;  ///< Of the text, never held at the same time as the others: dropped before.
  RequestId leader{};          ///< Computes the beginning of this text right now or will; 0 = nobody.
  uint32_t leader_tokens = 0;  ///< How much of it: whole blocks, or all but the last token.
  OutputText text;
  std::optional<grammar::Matcher> matcher;  ///< Where the output is in its grammar; made at admission.
  Usage usage;
  const TimeNs arrived_at;
  std::vector<step::TokenCount> counts;  ///< For penalties; empty unless some are set.
  absl::flat_hash_map<TokenId, uint32_t> counts_index;
  std::vector<float> range_mass;            ///< As measured, until the next event takes it along.
  std::vector<float> hidden;                ///< The same of the state that was asked for.
  std::vector<TokenEvent> prompt_logprobs;  ///< Likewise.
  uint32_t prompt_scored = 0;               ///< Tokens of the prompt that have their log probability.
  bool counted = false;
  RequestTrace trace;
  uint32_t lost_tokens = 0;           ///< That were computed when it was preempted.
  bool held_back = false;             ///< Waited for its leader.
  uint64_t prefix_group = 0;          ///< Of those that share a long beginning with it.
  TimeNs last_token_at = kTimeNever;  ///< When it was sampled.
  /// Of the beginning of its text from a lower tier. Looked for when the request could begin.
  struct Fetch {
    kv::ColdRun found;     ///< Then, below hot memory.
    bool counted = false;  ///< That is in the figures.
    bool wanted = false;   ///< As soon as others' blocks have been moved.
    TimeNs wanted_since{0};
    bool under_way = false;
    bool done = false;    ///< Over, or not worth it: it begins with what there is.
    uint32_t blocks = 0;  ///< [under_way] Of its text that have their frames.
  };
  Fetch fetch;
  kv::CachedPart seen;  ///< [waiting] What hot memory had of its text when that was last looked at.
  bool stale = false;   ///< That is known to have changed.
  Meter own_meter;
  Meter* meter = &own_meter;        ///< Or one of the book's.
  double held_before_block_ns = 0;  ///< By its earlier places in memory.

  /// The state now, as the request that goes on from it.
  Capsule Snapshot() const {
    Capsule capsule = input;
    capsule.prompt = tokens;
    capsule.prompt_output_tokens += output_count();
    capsule.prompt_output_bytes = text.emitted_bytes();
    if (capsule.max_tokens != UINT32_MAX) capsule.max_tokens -= output_count();
    capsule.mass_ranges.clear();  // What was measured is of this run.
    capsule.want_prompt_logprobs = false;
    return capsule;
  }

  /// The next token of the prompt has no log probability yet, and it is wanted.
  bool ScoresPrompt() const { return input.want_prompt_logprobs && prompt_scored < input.prompt.size(); }
  /// So many tokens need not be computed where they are cached.
  uint32_t ReuseMax() const { return ScoresPrompt() ? prompt_scored : UINT32_MAX; }

  /// [waiting] Blocks of its known text that take no frame from those available.
  uint32_t blocks_settled() const {
    return std::min(kv::BlocksFor(known()), blocks_spared + (fetch.under_way ? fetch.blocks : seen.blocks_shared));
  }
  uint32_t blocks_wanted() const { return kv::BlocksFor(known()) - blocks_settled(); }

  bool NeedsCounts() const {
    const step::Sampling& s = input.sampling;
    return s.repetition_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f;
  }
  void CountPrompt() {
    const size_t output_begin = input.prompt.size() - input.prompt_output_tokens;
    for (size_t i = 0; i < input.prompt.size(); ++i) Count(input.prompt[i], /*is_output=*/i >= output_begin);
  }
  void Count(TokenId token, bool is_output) {
    auto [it, inserted] = counts_index.try_emplace(token, static_cast<uint32_t>(counts.size()));
    if (inserted) counts.push_back({token, 0, 0});
    ++(is_output ? counts[it->second].in_output : counts[it->second].in_prompt);
  }

 private:
  /// As it was after the output that the prompt ends with; anew when a stop string had ended that.
  OutputText NewText(const Tokenizer& tokenizer) const {
    OutputText fresh(tokenizer, input.stop, input.strip_leading_space, input.shown_controls);
    if (input.prompt_output_tokens == 0 || input.prompt_output_tokens > input.prompt.size()) return fresh;
    OutputText resumed = fresh;
    for (const TokenId token : std::span(input.prompt).last(input.prompt_output_tokens)) {
      if (resumed.Push({.token = token, .logprob = 0, .top = {}})) return fresh;
    }
    resumed.SkipEmitted(input.prompt_output_bytes);
    return resumed;
  }
};

using Requests = std::vector<std::unique_ptr<Request>>;

/// Takes a request out of a list; nullptr when it is not there.
inline std::unique_ptr<Request> TakeFrom(Requests& list, RequestId id) {
  const auto it = std::ranges::find(list, id, [](const auto& r) { return r->id; });
  if (it == list.end()) return nullptr;
  std::unique_ptr<Request> request = std::move(*it);
  list.erase(it);
  return request;
}

}  // namespace kvist::engine
