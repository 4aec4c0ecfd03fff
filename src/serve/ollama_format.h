#pragma once

/// @file
/// Answers of POST /api/chat and /api/generate, in the shape of Ollama's API: one object, or one a line as the answer
/// comes (NDJSON). Format: https://github.com/ollama/ollama/blob/main/docs/api.md.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json.hpp>

#include "serve/answer_format.h"

namespace kvist::serve {

/// One choice; log probabilities are not sent. Calls of tools are whole objects, sent when they have ended.
class OllamaFormat final : public AnswerFormat {
 public:
  enum class Kind : uint8_t { kChat, kGenerate };
  OllamaFormat(AnswerInfo info, Kind kind);

  std::string_view StreamType() const override { return "application/x-ndjson"; }
  void Begin(uint32_t /*choices*/, const engine::Usage& /*usage*/, std::string& /*out*/) override {}
  void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
           std::string& out) override;
  void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) override;
  void End(const AnswerTotals& totals, std::string& out) override;
  void Fail(const ApiError& error, std::string& out) override;
  /// Clients read every line as JSON: a piece without text.
  void KeepAlive(std::string& out) override { AppendText("content", "", out); }
  void Progress(uint32_t /*read_tokens*/, uint32_t /*prompt_tokens*/, std::string& /*out*/) override {}
  std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) override;

 private:
  void AppendText(std::string_view field, std::string_view text, std::string& out) const;
  /// The last line of a stream, or the whole answer. @param output  its text and calls
  std::string Last(const ChoiceOutput& output, const AnswerTotals& totals) const;

  const Kind kind_;
  const std::string head_;  ///< Of a line, up to its text.
  ChoiceOutput call_;       ///< The open call of a stream; at its end, how it ended.
};

/// "2026-11-30T06:00:00Z".
std::string OllamaTime(int64_t unix_s);

}  // namespace kvist::serve
