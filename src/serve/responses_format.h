#pragma once

/// @file
/// Answers of POST /v1/responses, in the shape of OpenAI's Responses API: a list of items (message, reasoning,
/// function_call), whole or as the typed events that build it. Format:
/// https://platform.openai.com/docs/api-reference/responses-streaming.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "serve/answer_format.h"
#include "serve/responses_api.h"

namespace kvist::serve {

/// One choice; log probabilities are not sent.
class ResponsesFormat final : public AnswerFormat {
 public:
  /// Where the response is kept when it has ended.
  struct Memory {
    ResponseStore& store;
    TenantId tenant{};
    uint64_t cache_namespace = 0;
    boost::json::array messages;  ///< Before the answer.
  };

  /// @param shown  fields of the request that stand in the response again
  ResponsesFormat(AnswerInfo info, boost::json::object shown, std::optional<Memory> memory);

  void Begin(uint32_t choices, const engine::Usage& usage, std::string& out) override;
  void Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
           std::string& out) override;
  void FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) override;
  void End(const AnswerTotals& totals, std::string& out) override;
  void Fail(const ApiError& error, std::string& out) override;
  std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) override;

 private:
  enum class Item : uint8_t { kNone, kMessage, kReasoning, kCall };

  void AppendEvent(std::string_view type, boost::json::object fields, std::string& out);
  boost::json::object Response(std::string_view status) const;
  boost::json::object ItemObject(std::string_view status) const;
  boost::json::object PlaceFields() const;
  boost::json::object PartObject() const;
  void Open(Item item, const OutputPart& part, std::string& out);
  void AddText(std::string_view text, std::string& out);
  /// Ends the open item, if there is one.
  void Close(std::string& out, std::string_view status = "completed");
  /// The finished response; it is kept from here on.
  boost::json::object Finish(const AnswerTotals& totals);

  const boost::json::object shown_;
  std::optional<Memory> memory_;
  uint64_t sequence_ = 0;       ///< Number of the next event.
  boost::json::array output_;   ///< Items that have ended.
  boost::json::object answer_;  ///< The same as a message for the next chat.
  Item open_ = Item::kNone;
  std::string item_id_, text_, call_id_, call_name_;  ///< Of the open item.
  ChoiceEnd end_;
};

}  // namespace kvist::serve
