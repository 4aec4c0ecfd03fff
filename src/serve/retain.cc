#include "serve/retain.h"

#include <string>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

/// Of an object that stands for a whole text; the rest is for ranges.
constexpr std::string_view kMembers[] = {"priority", "seconds", "then", "begin", "end"};
constexpr size_t kWholeMembers = 3;
constexpr double kSecondsMax = 1e9;  // 31 years.
constexpr kv::Retention kClasses[] = {kv::Retention::kLow, kv::Retention::kNormal, kv::Retention::kHigh,
                                      kv::Retention::kPinned};

absl::Status ReadClass(std::string_view name, std::string_view place, kv::Retention& retention) {
  for (const kv::Retention known : kClasses) {
    if (kv::RetentionName(known) != name) continue;
    retention = known;
    return absl::OkStatus();
  }
  return BadParam(place, Cat("'", place, "' must be low, normal, high or pinned, not '", Shortened(name), "'"));
}

absl::Status ReadTime(const Fields& fields, kv::RetainRange& range) {
  if (const json::value* seconds = fields.Find("seconds"); seconds != nullptr) {
    KVIST_ASSIGN_OR_RETURN(const double count, NumberOf(*seconds, fields.NameOf("seconds"), 0, kSecondsMax));
    range.for_ns = static_cast<int64_t>(count * 1e9);
  }
  std::string then = "normal";
  KVIST_RETURN_IF_ERROR(fields.Read("then", then));
  if (then != "normal" && then != "forget") {
    return fields.Bad("then", Cat("must be normal or forget, not '", Shortened(then), "'"));
  }
  range.forget = then == "forget";
  if (range.forget && range.for_ns == kv::kForeverNs) return fields.Bad("then", "needs 'seconds': when?");
  return absl::OkStatus();
}

absl::Status ReadRange(const json::value& value, const std::string& place, RetainForm form, kv::RetainRange& range) {
  if (!value.is_object()) {
    return BadParam(place, Cat("'", place, "' must be an object, not ", JsonKindName(value)));
  }
  const Fields fields(value.get_object(), place);
  const std::span<const std::string_view> members(kMembers);
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(form == RetainForm::kRanges ? members : members.first(kWholeMembers)));
  std::string priority;
  KVIST_RETURN_IF_ERROR(fields.Read("priority", priority));
  if (priority.empty()) return fields.Bad("priority", "is missing");
  KVIST_RETURN_IF_ERROR(ReadClass(priority, fields.NameOf("priority"), range.retention));
  KVIST_RETURN_IF_ERROR(ReadTime(fields, range));
  int64_t begin = 0, end = kv::kToTheEnd;
  KVIST_RETURN_IF_ERROR(fields.Read("begin", 0, INT32_MAX, begin));
  KVIST_RETURN_IF_ERROR(fields.Read("end", 0, INT32_MAX, end));
  if (begin >= end) return fields.Bad("end", Cat("must be more than 'begin', which is ", begin));
  range.begin = static_cast<uint32_t>(begin);
  range.end = static_cast<uint32_t>(end);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRetain(const Fields& own, RetainForm form, std::vector<kv::RetainRange>& ranges) {
  const json::value* given = own.Find("retain");
  if (given == nullptr) return absl::OkStatus();
  const std::string place = own.NameOf("retain");
  if (given->is_string()) return ReadClass(given->get_string(), place, ranges.emplace_back().retention);
  if (form != RetainForm::kRanges || !given->is_array()) {
    if (given->is_object()) return ReadRange(*given, place, RetainForm::kWhole, ranges.emplace_back());
    const std::string_view wanted =
        form == RetainForm::kRanges ? "a class, an object or an array of objects" : "a class or an object";
    return own.Bad("retain", Cat("must be ", wanted, ", not ", JsonKindName(*given)));
  }
  const json::array& list = given->get_array();
  if (list.size() > kRetainRangesMax) return own.Bad("retain", Cat("may have at most ", kRetainRangesMax, " ranges"));
  for (size_t i = 0; i < list.size(); ++i) {
    KVIST_RETURN_IF_ERROR(ReadRange(list[i], Cat(place, "[", i, "]"), form, ranges.emplace_back()));
  }
  return absl::OkStatus();
}

}  // namespace kvist::serve
