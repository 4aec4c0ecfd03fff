#pragma once

/// @file
/// How an answer is written: one AnswerFormat per protocol, which turns what the engine and the parser of the output
/// say into bytes, of a stream or of a whole body. A generation on its way (generation_stream.h) knows no protocol.
/// Threads: one at a time per format. Non-goals: HTTP, when to send what.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "serve/api_error.h"
#include "serve/fading.h"
#include "serve/output_part.h"

namespace kvist::serve {

/// What stays the same through one answer.
struct AnswerInfo {
  std::string_view kind = "chat";  ///< For the request log: "chat", "completion", ...
  std::string id;                  ///< "chatcmpl-...", "cmpl-...", ...
  int64_t created_unix_s = 0;
  std::string model;
  std::string fingerprint;  ///< Changes with the program, the model file and what may change its output.
  bool stream = false;
  bool logprobs = false;
  uint32_t choices = 1;  ///< Of each prompt.
};

/// How one choice ended.
struct ChoiceEnd {
  engine::FinishReason reason = engine::FinishReason::kNone;
  bool calls = false;                 ///< It called tools.
  std::string stop;                   ///< The stop string that ended it, if one did;
  std::optional<TokenId> stop_token;  ///< or the token of the request's own.
  std::string capsule;                ///< The state after it, if it is kept; else "".
};

/// One choice, whole.
struct ChoiceOutput {
  std::vector<OutputPart> parts;           ///< Neighbours of one part are joined.
  std::vector<engine::TokenEvent> tokens;  ///< Only when log probabilities are wanted.
  std::vector<engine::TokenEvent> prompt;  ///< The same of the prompt, when wanted (GenerationEvent::prompt_logprobs).
  std::vector<float> hidden;               ///< Of an embedding: the state of the prompt's last token.
  ChoiceEnd end;

  void Append(OutputPart&& part);
  /// All pieces of this kind.
  std::string TextOf(OutputPart::Kind kind) const;
};

/// How long things took.
struct ReplyTimings {
  std::optional<double> ttft_ms;              ///< Request read to first token.
  std::optional<double> prompt_ms;            ///< Handed to the engine to first token: waiting and reading the prompt.
  double total_ms = 0;                        ///< Request read to last token.
  std::optional<double> output_tokens_per_s;  ///< After the first token; absent for fewer than two tokens.
};

/// What is said once all choices have ended.
struct AnswerTotals {
  engine::Usage usage;
  ReplyTimings timings;
  const Turn* turn = nullptr;  ///< Attention of the session's messages, or nullptr.
};

/// Bytes of one answer. Of a stream: Begin, then Add and FinishChoice for each choice (choices interleave), then End or
/// Fail; KeepAlive and Progress anywhere between Begin and the end. Each appends to `out`.
class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerInfo info) : info_(std::move(info)) {}
  virtual ~AnswerFormat() = default;

  const AnswerInfo& info() const { return info_; }

  /// Content-Type of the stream.
  virtual std::string_view StreamType() const { return "text/event-stream"; }
  /// @param choices  of all prompts. @param usage  what is known yet: the prompt's tokens, perhaps the cached ones
  virtual void Begin(uint32_t choices, const engine::Usage& usage, std::string& out) = 0;
  /// Log probabilities of the choice's prompt, before its first Add. Nothing where the protocol has no place for them.
  virtual void AddPrompt(uint32_t choice, std::span<const engine::TokenEvent> tokens, std::string& out);
  /// @param tokens  whose text is complete with `parts`; empty unless log probabilities are wanted
  virtual void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
                   std::string& out) = 0;
  virtual void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) = 0;
  virtual void End(const AnswerTotals& totals, std::string& out) = 0;
  /// The stream breaks off.
  virtual void Fail(const ApiError& error, std::string& out) = 0;
  /// Nothing has been sent for long.
  virtual void KeepAlive(std::string& out);
  /// So many tokens of the prompt have been read. Nothing where the protocol has no place for it.
  virtual void Progress(uint32_t read_tokens, uint32_t prompt_tokens, std::string& out);

  /// The body of the whole answer; nothing of a stream came before.
  virtual std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) = 0;

 private:
  const AnswerInfo info_;
};

/// "stop", "length", "abort" (vLLM's word for cancelled), "error".
std::string_view FinishReasonName(engine::FinishReason reason);

/// Appends an event of a stream of server-sent events. REQUIRES: `data` has no line break.
void AppendSse(std::string_view data, std::string& out);

/// The prefix and 32 random hexadecimal digits.
std::string NewId(std::string_view prefix);

}  // namespace kvist::serve
