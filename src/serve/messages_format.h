#pragma once

/// @file
/// Answers of POST /v1/messages, in the shape of Anthropic's API: a message of blocks (text, thinking, tool_use), whole
/// or as the events that build it. Format: https://docs.anthropic.com/en/api/messages-streaming.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json.hpp>

#include "serve/answer_format.h"

namespace kvist::serve {

/// One choice; log probabilities are not sent.
class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(AnswerInfo info) : AnswerFormat(std::move(info)) {}

  void Begin(uint32_t choices, const engine::Usage& usage, std::string& out) override;
  void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
           std::string& out) override;
  void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) override;
  void End(const AnswerTotals& totals, std::string& out) override;
  void Fail(const ApiError& error, std::string& out) override;
  void KeepAlive(std::string& out) override;
  std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) override;

 private:
  enum class Block : uint8_t { kNone, kText, kThinking, kCall };

  boost::json::object Message(boost::json::array content, const ChoiceEnd* end, const engine::Usage& usage) const;
  void Open(Block block, const OutputPart& part, std::string& out);
  void AppendDelta(std::string_view type, std::string_view field, std::string_view text, std::string& out) const;
  void Close(std::string& out);

  Block open_ = Block::kNone;
  uint32_t block_ = 0;  ///< Index of the open one, or of the next.
  ChoiceEnd end_;
};

}  // namespace kvist::serve
