#pragma once

/// @file
/// Bodies of answers, whole and as chunks of a stream, in the shapes of OpenAI's API. Engine events in, JSON text out.
/// Threads: one per ReplyWriter. Non-goals: HTTP, when to send what (generation_stream.h).
/// Format: https://platform.openai.com/docs/api-reference/chat/object, .../chat/streaming and .../completions/object.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "engine/generation.h"
#include "modelfile/tokenizer.h"
#include "serve/fading.h"

namespace kvist::serve {

/// What stays the same through one answer.
struct ReplyInfo {
  bool chat = true;  ///< Else a completion.
  bool stream = false;
  bool include_usage = false;  ///< Of a stream.
  bool logprobs = false;
  uint32_t choices = 1;
  std::string id;  ///< "chatcmpl-..." or "cmpl-...".
  int64_t created_unix_s = 0;
  std::string model;
  std::string fingerprint;          ///< Changes with the program, the model file and what may change its output.
  std::string echo;                 ///< Text before the output; completions only.
  bool strips_first_space = false;  ///< The output's first token shows without its leading space.
};

/// How long things took; sent under "kvist" beside the usage.
struct ReplyTimings {
  std::optional<double> ttft_ms;              ///< Request read to first token.
  std::optional<double> prompt_ms;            ///< Handed to the engine to first token: waiting and reading the prompt.
  double total_ms = 0;                        ///< Request read to last token.
  std::optional<double> output_tokens_per_s;  ///< After the first token; absent for fewer than two tokens.
};

/// "stop", "length", "abort" (vLLM's word for cancelled), "error".
std::string_view FinishReasonName(engine::FinishReason reason);

/// One choice of an answer.
class ReplyWriter {
 public:
  /// Both must outlive this.
  ReplyWriter(const ReplyInfo& info, const Tokenizer& tokenizer, uint32_t index = 0)
      : info_(info), tokenizer_(tokenizer), index_(index), strip_first_space_(info.strips_first_space) {}

  /// First chunk: the role, or the echo; empty when there is nothing to say yet.
  std::string BeginChunk() const;
  /// Text and log probabilities of `event`, whose finish is left out. Call in order.
  std::string TextChunk(const engine::GenerationEvent& event);
  /// @param capsule  the state after it, if it is kept; else "".
  std::string FinishChunk(engine::FinishReason reason, std::string_view capsule) const;

  /// Its part of a whole answer. @param tokens  empty unless logprobs are wanted
  boost::json::object WholeChoice(std::string_view text, std::span<const engine::TokenEvent> tokens,
                                  engine::FinishReason reason, std::string_view capsule);

 private:
  std::string Chunk(boost::json::object choice) const;
  boost::json::value ChatLogprobs(std::span<const engine::TokenEvent> tokens) const;
  boost::json::value CompletionLogprobs(std::span<const engine::TokenEvent> tokens);
  boost::json::value Logprobs(std::span<const engine::TokenEvent> tokens);

  const ReplyInfo& info_;
  const Tokenizer& tokenizer_;
  const uint32_t index_;
  bool strip_first_space_;
  uint64_t offset_ = 0;  ///< Characters of output in tokens reported so far.
};

/// Of a stream, after all choices.
/// @param turn  attention of the session's messages, or null.
std::string UsageChunk(const ReplyInfo& info, const engine::Usage& usage, const ReplyTimings& timings,
                       const Turn* turn = nullptr);

/// The whole answer.
std::string WholeBody(const ReplyInfo& info, boost::json::array choices, const engine::Usage& usage,
                      const ReplyTimings& timings, const Turn* turn = nullptr);

/// One event of a stream of server-sent events. REQUIRES: `data` has no line break.
std::string SseEvent(std::string_view data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

struct ModelInfo {
  std::string id;
  int64_t created_unix_s = 0;
  uint32_t context_tokens_max = 0;
};
std::string ModelBody(const ModelInfo& model);
std::string ModelListBody(const ModelInfo& model);

/// The prefix and 32 random hexadecimal digits.
std::string NewId(std::string_view prefix);

}  // namespace kvist::serve
