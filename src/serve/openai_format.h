#pragma once

/// @file
/// Answers of POST /v1/chat/completions and /v1/completions, and the bodies of /v1/models, in the shapes of OpenAI's
/// API. The text around each piece of a stream is built once per answer. Formats:
/// https://platform.openai.com/docs/api-reference/chat/object, .../chat/streaming and .../completions/object.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "modelfile/tokenizer.h"
#include "serve/answer_format.h"

namespace kvist::serve {

/// What both kinds share: heads, usage, errors, the end.
class OpenAiFormat : public AnswerFormat {
 public:
  void End(const AnswerTotals& totals, std::string& out) override;
  void Fail(const ApiError& error, std::string& out) override;
  std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) override;

 protected:
  /// @param whole_object, chunk_object  values of "object". @param tokenizer  outlives this
  OpenAiFormat(AnswerInfo info, const Tokenizer& tokenizer, bool include_usage, std::string_view whole_object,
               std::string_view chunk_object);

  /// Appends a chunk with one choice. @param body  its fields between the index and the finish reason, as JSON text
  /// that begins and ends with a comma. @param logprobs  JSON text. @param end  nullptr = the choice goes on
  void AppendChunk(uint32_t choice, std::string_view body, std::string_view logprobs, const ChoiceEnd* end,
                   std::string& out) const;
  virtual boost::json::object WholeChoice(uint32_t index, const ChoiceOutput& choice) = 0;

  const Tokenizer& tokenizer_;

 private:
  boost::json::object Head(std::string_view object) const;

  const bool include_usage_;
  const std::string_view whole_object_, chunk_object_;
  const std::string chunk_head_;  ///< Up to the index of the choice.
};

/// "content", "reasoning_content" and "tool_calls" of a message or its deltas.
class ChatFormat final : public OpenAiFormat {
 public:
  ChatFormat(AnswerInfo info, const Tokenizer& tokenizer, bool include_usage = false)
      : OpenAiFormat(std::move(info), tokenizer, include_usage, "chat.completion", "chat.completion.chunk") {}

  void Begin(uint32_t choices, const engine::Usage& usage, std::string& out) override;
  void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
           std::string& out) override;
  void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) override;

 private:
  boost::json::object WholeChoice(uint32_t index, const ChoiceOutput& choice) override;
  boost::json::value Logprobs(std::span<const engine::TokenEvent> tokens) const;
};

/// A prompt of a completion, as far as it shows in its choices.
struct CompletionPrompt {
  std::optional<std::string> echo = {};  ///< Stands before the output.
  bool echo_scored = false;              ///< With the log probabilities of its tokens (AddPrompt brings them).
  bool shows_controls = false;           ///< The echo has control tokens as they were spelled.
  uint32_t tokens_before = 0;            ///< First tokens of the prompt that the echo does not have: an added BOS.
  bool strips_first_space = false;       ///< The output's first token shows without its leading space.
};

/// Text only.
class CompletionFormat final : public OpenAiFormat {
 public:
  /// @param prompts  [number of prompts]; empty = nothing of them shows.
  CompletionFormat(AnswerInfo info, const Tokenizer& tokenizer, bool include_usage = false,
                   std::vector<CompletionPrompt> prompts = {})
      : OpenAiFormat(std::move(info), tokenizer, include_usage, "text_completion", "text_completion"),
        prompts_(std::move(prompts)) {}

  void Begin(uint32_t choices, const engine::Usage& usage, std::string& out) override;
  void AddPrompt(uint32_t choice, std::span<const engine::TokenEvent> tokens, std::string& out) override;
  void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
           std::string& out) override;
  void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) override;

 private:
  /// Lists of equal lengths.
  struct TokenLists {
    boost::json::array tokens, logprobs, tops, offsets;
    boost::json::object Object() &&;
  };
  /// How far a choice has come.
  struct Place {
    uint64_t characters = 0;  ///< In the tokens reported so far.
    bool stripped = false;    ///< The output's first space has been left out.
  };

  const CompletionPrompt& PromptOf(uint32_t choice) const;
  Place& PlaceOf(uint32_t choice);
  boost::json::object WholeChoice(uint32_t index, const ChoiceOutput& choice) override;
  void AppendToken(const engine::TokenEvent& token, uint64_t offset, TokenLists& lists) const;
  void AppendPromptTokens(uint32_t choice, std::span<const engine::TokenEvent> tokens, TokenLists& lists);
  void AppendTokens(uint32_t choice, std::span<const engine::TokenEvent> tokens, TokenLists& lists);

  const std::vector<CompletionPrompt> prompts_;
  std::vector<Place> places_;  ///< Of choices.
};

struct ModelInfo {
  std::string id;
  int64_t created_unix_s = 0;
  uint32_t context_tokens_max = 0;
};
std::string ModelBody(const ModelInfo& model);
std::string ModelListBody(const ModelInfo& model);

}  // namespace kvist::serve
