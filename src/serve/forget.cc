#include "serve/forget.h"

#include <algorithm>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/retain.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kMarks[] = {"drop", "ephemeral", "retain"};
constexpr std::string_view kTurns[] = {"first", "last"};

struct Mark {
  bool drop = false, ephemeral = false;
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

}  // namespace

absl::Status ReadForgetRules(const Fields& own, ForgetRules& rules) {
  KVIST_RETURN_IF_ERROR(own.Read("session", rules.session));
  if (rules.session.size() > kSessionBytesMax) {
    return own.Bad("session", Cat("is longer than ", kSessionBytesMax, " bytes"));
  }
  KVIST_RETURN_IF_ERROR(own.Read("keep_tool_results", 0, INT32_MAX, rules.keep_tool_results));
  KVIST_RETURN_IF_ERROR(own.Read("keep_ephemeral", 0, INT32_MAX, rules.keep_ephemeral));
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
  std::vector<bool> dropped(messages.size());
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
    for (const kv::RetainRange& wish : mark.retain) out.retained.push_back({i, wish});
  }
  if (rules.keep_tool_results >= 0) DropAllBut(rules.keep_tool_results, tools, dropped);
  DropAllBut(rules.keep_ephemeral, ephemeral, dropped);
  for (uint32_t i = 0; i + 1 < messages.size(); ++i) {
    const bool old_turn = rules.keep_turns_last >= 0 && turn_of[i] >= rules.keep_turns_first &&
                          turn_of[i] < turns - rules.keep_turns_last;
    if (dropped[i] || old_turn) out.forgotten.push_back(i);
  }
  return out;
}

}  // namespace kvist::serve
