#include "serve/forget.h"

#include <algorithm>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/retain.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kMarks[] = {"drop", "ephemeral", "keep", "retain"};
constexpr std::string_view kTurns[] = {"first", "last"};

struct Mark {
  bool drop = false, ephemeral = false, keep = false;
  std::vector<kv::RetainRange> retain;  ///< One or none.
};

absl::StatusOr<Mark> TakeMark(json::object& message, size_t index) {
  Mark mark;
  const std::string place = Cat("messages[", index, "]");
  const Fields fields(message, place);
  KVIST_ASSIGN_OR_RETURN(const json::object* given, fields.ReadObject("kvist"));
  if (given != nullptr) {
    const Fields own(*given, fields.NameOf("kvist"));
    KVIST_RETURN_IF_ERROR(own.RefuseUnknown(kMarks));
    KVIST_RETURN_IF_ERROR(own.Read("drop", mark.drop));
    KVIST_RETURN_IF_ERROR(own.Read("ephemeral", mark.ephemeral));
    KVIST_RETURN_IF_ERROR(own.Read("keep", mark.keep));
    if (mark.keep && (mark.drop || mark.ephemeral)) return own.Bad("keep", "contradicts the message's other marks");
    KVIST_RETURN_IF_ERROR(ReadRetain(own, RetainForm::kWhole, mark.retain));
  }
  message.stable_erase("kvist");
  return mark;
}

/// Marks all but the last `keep` of `candidates`.
void DropAllBut(int64_t keep, const std::vector<uint32_t>& candidates, std::vector<bool>& dropped) {
  const auto count = static_cast<int64_t>(candidates.size());
  for (int64_t i = 0; i < count - keep; ++i) dropped[candidates[static_cast<size_t>(i)]] = true;
}

/// The first message that belongs to the last two turns.
uint32_t LastTwoTurns(const json::array& messages) {
  int answers = 0;
  for (auto i = static_cast<uint32_t>(messages.size()); i > 0; --i) {
    if (messages[i - 1].get_object().at("role").get_string() == "assistant" && ++answers == 2) return i;
  }
  return 0;
}

}  // namespace

bool HasText(const json::value& message) {
  const json::value* content = message.get_object().if_contains("content");
  const json::string* text = content == nullptr ? nullptr : content->if_string();
  return text != nullptr && std::string_view(*text).find_first_not_of(" \t\r\n\f\v") != std::string_view::npos;
}

absl::Status ReadForgetRules(const Fields& own, ForgetRules& rules) {
  KVIST_RETURN_IF_ERROR(own.Read("session", rules.session));
  if (rules.session.size() > kSessionBytesMax) {
    return own.Bad("session", Cat("is longer than ", kSessionBytesMax, " bytes"));
  }
  KVIST_RETURN_IF_ERROR(own.Read("keep_tool_results", 0, INT32_MAX, rules.keep_tool_results));
  KVIST_RETURN_IF_ERROR(own.Read("keep_ephemeral", 0, INT32_MAX, rules.keep_ephemeral));
  if (own.Find("forget_below") != nullptr) {
    KVIST_RETURN_IF_ERROR(own.Read("forget_below", 0, 1, rules.forget_below.emplace(0.0f)));
    if (rules.session.empty()) return own.Bad("forget_below", "needs a 'session'");
  }
  KVIST_ASSIGN_OR_RETURN(const json::object* turns, own.ReadObject("keep_turns"));
  if (turns == nullptr) return absl::OkStatus();
  const Fields fields(*turns, own.NameOf("keep_turns"));
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kTurns));
  rules.keep_turns_first = 0;
  if (fields.Find("last") == nullptr) return fields.Bad("last", "is missing");
  KVIST_RETURN_IF_ERROR(fields.Read("first", 0, INT32_MAX, rules.keep_turns_first));
  return fields.Read("last", 1, INT32_MAX, rules.keep_turns_last);
}

absl::StatusOr<MessageMarks> TakeMarks(const ForgetRules& rules, json::array& messages) {
  MessageMarks out;
  std::vector<bool> dropped(messages.size()), kept(messages.size());
  std::vector<uint32_t> tools, ephemeral;
  std::vector<int64_t> turn_of(messages.size(), -1);  // What comes before the first user message is no turn.
  int64_t turns = 0;
  for (uint32_t i = 0; i < messages.size(); ++i) {
    json::object& message = messages[i].get_object();
    KVIST_ASSIGN_OR_RETURN(const Mark mark, TakeMark(message, i));
    const json::string& role = message.at("role").get_string();
    if (role == "user") ++turns;
    if (role != "system" && turns > 0) turn_of[i] = turns - 1;
    if (role == "tool") tools.push_back(i);
    if (mark.ephemeral) ephemeral.push_back(i);
    if (mark.drop) dropped[i] = true;
    if (mark.keep) kept[i] = true;
    for (const kv::RetainRange& wish : mark.retain) out.retained.push_back({i, wish});
  }
  if (rules.keep_tool_results >= 0) DropAllBut(rules.keep_tool_results, tools, dropped);
  DropAllBut(rules.keep_ephemeral, ephemeral, dropped);
  const uint32_t last_turns = LastTwoTurns(messages);
  out.may_fade.resize(messages.size());
  for (uint32_t i = 0; i + 1 < messages.size(); ++i) {
    if (kept[i]) continue;
    const bool system = messages[i].get_object().at("role").get_string() == "system";
    out.may_fade[i] = i > 0 && i < last_turns && !system && HasText(messages[i]);
    const bool old_turn = rules.keep_turns_last >= 0 && turn_of[i] >= rules.keep_turns_first &&
                          turn_of[i] < turns - rules.keep_turns_last;
    if (dropped[i] || old_turn) out.forgotten.push_back(i);
  }
  return out;
}

}  // namespace kvist::serve
