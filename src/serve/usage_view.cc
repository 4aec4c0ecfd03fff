#include "serve/usage_view.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "kv/cold_blocks.h"
#include "serve/api_error.h"
#include "serve/json_input.h"
#include "serve/json_output.h"
#include "serve/router.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

struct GroupName {
  std::string_view name;
  UsageGroup group;
  std::string UsageSum::*field;
};
constexpr GroupName kGroupNames[] = {{"tenant", UsageGroup::kTenant, &UsageSum::tenant},
                                     {"day", UsageGroup::kDay, &UsageSum::day},
                                     {"model", UsageGroup::kModel, &UsageSum::model},
                                     {"request", UsageGroup::kRequest, &UsageSum::request}};

template <class Number>
std::optional<Number> WholeNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// As many digits as money and seconds need.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10, 9 - std::ceil(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

json::value OrNull(int64_t moment) {
  if (moment == 0 || moment == INT64_MAX) return nullptr;
  return moment;
}

json::object RowObject(const UsageQuery& query, const UsageSum& sum, const PricesOf& prices) {
  json::object row;
  for (const UsageGroup group : query.group_by) {
    const auto name = std::ranges::find(kGroupNames, group, &GroupName::group);
    row[name->name] = sum.*(name->field);
  }
  const UsageTotals& totals = sum.totals;
  row["requests"] = totals.requests;
  row["cancelled"] = sum.cancelled;
  row["failed"] = sum.failed;
  row["prompt_tokens"] = totals.prompt_tokens;
  row["cached_tokens"] = totals.cached_tokens;
  row["computed_tokens"] = totals.computed_tokens;
  row["recomputed_tokens"] = sum.recomputed_tokens;
  row["generated_tokens"] = totals.generated_tokens;
  row["preemptions"] = sum.preemptions;
  row["kv_byte_seconds"] = json::object{{"hot", Rounded(totals.kv_hot_byte_s)},
                                        {kv::kColdMemoryTier, Rounded(totals.kv_cold_byte_s)},
                                        {kv::kDriveTier, Rounded(totals.kv_drive_byte_s)}};
  row["step_seconds"] = Rounded(totals.step_share_s);
  row["queue_seconds"] = Rounded(sum.queue_s);
  if (const std::optional<Money> money = MoneyOf(sum, prices)) {
    row["currency"] = money->currency;
    row["cost"] = Rounded(money->cost);
    row["revenue"] = Rounded(money->revenue);
    row["margin"] = std::isfinite(money->margin()) ? json::value(Rounded(money->margin())) : json::value(nullptr);
  }
  return row;
}

}  // namespace

absl::StatusOr<int64_t> ParseMoment(std::string_view text, std::string_view what) {
  if (const auto seconds = WholeNumber<int64_t>(text); seconds && *seconds >= 0) return *seconds;
  const absl::Status bad = BadParam(
      what, Cat("'", what, "' must be a day such as 2026-11-30 or seconds since 1970, not '", Shortened(text), "'"));
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(text), '-');
  if (parts.size() != 3 || text.size() != 10) return bad;
  const auto year = WholeNumber<int>(parts[0]);
  const auto month = WholeNumber<unsigned>(parts[1]), day = WholeNumber<unsigned>(parts[2]);
  if (!year || !month || !day) return bad;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok() || *year < 1970) return bad;
  return std::chrono::sys_seconds(std::chrono::sys_days(date)).time_since_epoch().count();
}

absl::StatusOr<std::vector<UsageGroup>> ParseGroups(std::string_view text) {
  std::vector<UsageGroup> groups;
  if (text.empty()) return groups;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(text), ',')) {
    const std::string_view name(part.data(), part.size());
    const auto known = std::ranges::find(kGroupNames, name, &GroupName::name);
    if (known == std::end(kGroupNames) || std::ranges::find(groups, known->group) != groups.end()) {
      return BadParam("group_by", Cat("'group_by' must be some of tenant, day, model, request, each once, not '",
                                      Shortened(text), "'"));
    }
    groups.push_back(known->group);
  }
  return groups;
}

absl::StatusOr<UsageQuery> ParseUsageQuery(std::string_view query_string) {
  UsageQuery query{.group_by = {UsageGroup::kTenant}};
  if (query_string.empty()) return query;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(query_string), '&')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string_view name(field.first.data(), field.first.size());
    const std::string value = PercentDecoded({field.second.data(), field.second.size()});
    if (name == "from") {
      KVIST_ASSIGN_OR_RETURN(query.from_s, ParseMoment(value, name));
    } else if (name == "to") {
      KVIST_ASSIGN_OR_RETURN(query.to_s, ParseMoment(value, name));
    } else if (name == "group_by") {
      KVIST_ASSIGN_OR_RETURN(query.group_by, ParseGroups(value));
    } else if (name == "tenant") {
      query.tenant = value;
    } else {
      return BadParam(Shortened(name),
                      Cat("'", Shortened(name), "' is not known; known are from, to, group_by and tenant"));
    }
  }
  return query;
}

std::optional<Money> MoneyOf(const UsageSum& sum, const PricesOf& prices) {
  const std::optional<Prices> known = prices ? prices(sum.tenant) : std::nullopt;
  if (!known) return std::nullopt;
  return Money{
      .currency = known->currency, .cost = CostOf(sum.totals, *known), .revenue = TokenRevenueOf(sum.totals, *known)};
}

std::string UsageBody(const UsageQuery& query, const std::vector<UsageSum>& sums, const PricesOf& prices) {
  json::array groups, data;
  for (const UsageGroup group : query.group_by) {
    groups.push_back(json::string(std::ranges::find(kGroupNames, group, &GroupName::group)->name));
  }
  const bool by_tenant = query.tenant || std::ranges::find(query.group_by, UsageGroup::kTenant) != query.group_by.end();
  for (UsageSum sum : sums) {
    if (query.tenant) sum.tenant = *query.tenant;
    data.push_back(RowObject(query, sum, by_tenant ? prices : PricesOf()));
  }
  return JsonText(json::object{{"object", "kvist.usage"},
                               {"from", OrNull(query.from_s)},
                               {"to", OrNull(query.to_s)},
                               {"group_by", std::move(groups)},
                               {"data", std::move(data)}});
}

}  // namespace kvist::serve
