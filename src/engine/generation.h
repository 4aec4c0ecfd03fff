#pragma once

/// @file
/// What goes into the engine and what comes out of it: plain data.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/units.h"
#include "grammar/constraint.h"
#include "kv/live_text.h"
#include "kv/retention.h"
#include "step/executor.h"

namespace kvist::engine {

/// A prompt and how to go on from it.
struct GenerationRequest {
  std::vector<TokenId> prompt;  ///< At least one token.
  /// The last tokens of the prompt that an earlier run of this request sampled: its output goes on after them. They
  /// count as output for penalties and stop strings; their text is not emitted again.
  uint32_t prompt_output_tokens = 0;
  /// Bytes of their text that were emitted; UINT64_MAX = all.
  uint64_t prompt_output_bytes = UINT64_MAX;
  uint32_t max_tokens = UINT32_MAX;  ///< Output tokens; the context's end bounds it too.
  step::Sampling sampling;
  std::vector<step::TokenBias> biases;  ///< Each token at most once.
  std::vector<std::string> stop;        ///< Output ends before any of these; they are not emitted.
  std::vector<TokenId> stop_tokens;     ///< As end-of-generation tokens.
  bool ignore_eos = false;              ///< End-of-generation tokens do not end the output.
  /// What the output may be; also of the part of it that `prompt` ends with. Null = anything. A text that cannot go on
  /// ends the output; one that was cut off by max_tokens is the beginning of an allowed one.
  std::shared_ptr<const grammar::Constraint> constraint;
  std::vector<TokenId> shown_controls;  ///< Control tokens whose spelling is part of the output's text.
  bool strip_leading_space = false;     ///< Drop the first space of the output (see Detokenizer).
  uint64_t cache_namespace = 0;         ///< Prompts share KV blocks only inside a namespace.
  /// Operations on the cache: parts of the prompt leave the view once so many tokens of it are computed. The prompt
  /// itself stays whole. `at` is at most the prompt's length.
  std::vector<kv::CacheOp> ops;
  /// How long which parts of prompt and output are to stay cached. Ranges end within the prompt, or at the output's
  /// end.
  std::vector<kv::RetainRange> retain;
  bool want_progress = false;  ///< Events tell how far the prompt has been read (GenerationEvent::prompt_read).
  bool want_hidden = false;    ///< No output, but the state of the prompt's last token (GenerationEvent::hidden).
  bool want_capsule = false;  ///< The last event brings the state after it, unless the request failed or was cancelled.
  /// Log probabilities of the prompt's tokens (GenerationEvent::prompt_logprobs), with as many alternatives as
  /// `sampling` wants. All of the prompt is computed then, whatever is cached of it; also when max_tokens is 0.
  bool want_prompt_logprobs = false;
  /// Parts of the prompt whose attention mass is wanted (GenerationEvent::range_mass), in order, apart.
  std::vector<kv::TokenRange> mass_ranges;
  std::string name;     ///< Of the answer that it is a choice of, for who keeps meters; "" = none.
  uint32_t choice = 0;  ///< Which one.
  TenantId tenant{};
  uint32_t tenant_key = 0;         ///< The same for a tenant in every process: its blocks on drives have it.
  uint32_t tenant_blocks_max = 0;  ///< Blocks that its tenant's running requests may write in all; 0 = no bound.
  uint8_t priority = 128;          ///< 0 = most urgent.
  /// Wished times from arrival to the first token, and from each token to the next; 0 = as the engine's options say.
  int64_t first_token_ns = 0, next_token_ns = 0;
  uint32_t output_tokens_predicted = 0;  ///< 0 = unknown.
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;   ///< Of the prompt, found in KV memory at first admission.
  uint32_t dropped_tokens = 0;  ///< Of the prompt, out of the view when its last token was computed.
  uint32_t output_tokens = 0;
  uint32_t pinned_blocks = 0;      ///< With the last event: blocks that are pinned as wished,
  uint32_t not_pinned_blocks = 0;  ///< and those for which too many were pinned already: they are kept as "high".
};

/// One token of the output, for `logprobs`.
struct TokenEvent {
  TokenId token;
  float logprob = 0;
  std::vector<step::TokenLogprob> top;  ///< Likeliest first.
};

struct RequestTrace;

/// Part of a request's output. Text never ends inside a character or inside what may become a stop string.
struct GenerationEvent {
  RequestId id;
  std::string text;                ///< May be empty.
  std::vector<TokenEvent> tokens;  ///< Tokens whose text is complete with this event; only when logprobs are wanted.
  std::vector<TokenId> token_ids;  ///< The same tokens, always.
  FinishReason finish = FinishReason::kNone;
  std::string stop;                   ///< The stop string that ended it, if one did.
  std::optional<TokenId> stop_token;  ///< The same of GenerationRequest::stop_tokens.
  absl::Status status;                ///< Not OK only with kError.
  Usage usage;                        ///< So far.
  /// While the prompt is read, when asked for: tokens of it that are read; such an event has nothing else.
  uint32_t prompt_read = 0;
  std::shared_ptr<const RequestTrace> trace;         ///< With the last event: what became of the request.
  std::shared_ptr<const GenerationRequest> capsule;  ///< With the last event, when asked for: see Capsule.
  /// [mass_ranges] with the first event after the prompt was read, else empty: shares of the attention of its last
  /// token (step::StepResult::range_mass).
  std::vector<float> range_mass;
  /// With the first event after the prompt was read, when asked for: each of its tokens after those before it; NaN for
  /// the first, which nothing comes before.
  std::vector<TokenEvent> prompt_logprobs;
  std::vector<float> hidden;  ///< With the last event, when asked for: [ExecutorLimits::hidden_size].
};

/// The whole state of a request at a boundary between two steps, as data: submitted, it goes on as the request would
/// have, with the same tokens (the sampler draws from seed and position, penalties count the tokens, and keys and
/// values are a function of tokens and operations: those that are cached are shared, the others are computed again).
/// Forking is submitting it twice. Source: execution-state capsules (P55).
using Capsule = GenerationRequest;

/// The state of `capsule` when only `output_tokens` of its output had been sampled.
/// REQUIRES: at most as many as it has.
Capsule RolledBack(Capsule capsule, uint32_t output_tokens);

using EventSink = std::function<void(GenerationEvent&&)>;

}  // namespace kvist::engine
