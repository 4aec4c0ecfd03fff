#include "lab/unit_economics.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/status.h"
#include "serve/json_input.h"
#include "serve/toml_input.h"

namespace kvist::lab {

namespace json = boost::json;
using serve::Fields;

namespace {

constexpr double kMax = 1e15;
constexpr std::string_view kRestructuringFields[] = {"company", "required", "pay_per_role"};
constexpr std::string_view kCompanyFields[] = {"name", "roles_cut", "capex_per_year", "target"};
constexpr std::string_view kRequiredFields[] = {"silicon", "life_years", "facility", "power", "margin"};
constexpr std::string_view kWayFields[] = {"name", "machine_per_hour", "machine_s_per_query", "other_per_1000",
                                           "price_per_1000"};
constexpr std::string_view kWays[] = {"old_way", "new_way"};

absl::StatusOr<Fields> Section(const Fields& parent, std::string_view key, std::span<const std::string_view> known) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, parent.ReadObject(key));
  if (given == nullptr) return parent.Bad(key, "is missing");
  const Fields fields(*given, parent.NameOf(key));
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(known));
  return fields;
}

/// A number, or [low, high].
absl::Status ReadRange(const Fields& fields, std::string_view key, Range& out) {
  const json::value* value = fields.Find(key);
  if (value == nullptr) return fields.Bad(key, "is missing");
  if (!value->is_array()) {
    KVIST_RETURN_IF_ERROR(fields.Read(key, 0, kMax, out.low));
    out.high = out.low;
    return absl::OkStatus();
  }
  const json::array& ends = value->get_array();
  if (ends.size() != 2) return fields.Bad(key, "must have two numbers");
  KVIST_ASSIGN_OR_RETURN(out.low, serve::NumberOf(ends[0], fields.NameOf(key), 0, kMax));
  KVIST_ASSIGN_OR_RETURN(out.high, serve::NumberOf(ends[1], fields.NameOf(key), out.low, kMax));
  return absl::OkStatus();
}

absl::Status ReadWay(const Fields& root, std::string_view key, QueryCost& way) {
  KVIST_ASSIGN_OR_RETURN(const Fields fields, Section(root, key, kWayFields));
  KVIST_RETURN_IF_ERROR(fields.Read("name", way.name));
  KVIST_RETURN_IF_ERROR(fields.Read("machine_per_hour", 0, kMax, way.machine_per_hour));
  KVIST_RETURN_IF_ERROR(fields.Read("price_per_1000", 1e-9, kMax, way.price_per_1000));
  KVIST_RETURN_IF_ERROR(ReadRange(fields, "machine_s_per_query", way.machine_s_per_query));
  return ReadRange(fields, "other_per_1000", way.other_per_1000);
}

absl::Status ReadCompanies(const Fields& root, std::vector<Company>& companies) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, root.ReadArray("company"));
  if (given == nullptr) return root.Bad("company", "is missing");
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string place = Cat("company[", i, "]");
    if (!(*given)[i].is_object()) return absl::InvalidArgumentError(Cat("'", place, "' must be a table"));
    const Fields fields((*given)[i].get_object(), place);
    KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kCompanyFields));
    Company& company = companies.emplace_back();
    KVIST_RETURN_IF_ERROR(fields.Read("name", company.name));
    KVIST_RETURN_IF_ERROR(fields.Read("roles_cut", 0, kMax, company.roles_cut));
    KVIST_RETURN_IF_ERROR(fields.Read("capex_per_year", 0, kMax, company.capex_per_year));
    KVIST_RETURN_IF_ERROR(fields.Read("target", company.target));
  }
  return absl::OkStatus();
}

absl::Status ReadRestructuring(const json::object& file, UnitEconomics& out) {
  const Fields root(file, "");
  KVIST_RETURN_IF_ERROR(root.RefuseUnknown(kRestructuringFields));
  KVIST_RETURN_IF_ERROR(ReadCompanies(root, out.companies));
  KVIST_RETURN_IF_ERROR(ReadRange(root, "pay_per_role", out.pay_per_role));
  KVIST_ASSIGN_OR_RETURN(const Fields required, Section(root, "required", kRequiredFields));
  KVIST_RETURN_IF_ERROR(required.Read("silicon", 0, kMax, out.required.silicon));
  KVIST_RETURN_IF_ERROR(required.Read("life_years", 0.01, 100, out.required.life_years));
  KVIST_RETURN_IF_ERROR(required.Read("facility", 0, 100, out.required.facility));
  KVIST_RETURN_IF_ERROR(required.Read("power", 0, kMax, out.required.power));
  return required.Read("margin", 0, 0.99, out.required.margin);
}

absl::Status ReadQueries(const json::object& file, UnitEconomics& out) {
  const Fields root(file, "");
  KVIST_RETURN_IF_ERROR(root.RefuseUnknown(kWays));
  KVIST_RETURN_IF_ERROR(ReadWay(root, "old_way", out.old_way));
  return ReadWay(root, "new_way", out.new_way);
}

/// "12,345".
std::string Grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

/// Cents; of less than a cent, what there is.
std::string Amount(double value) {
  return value < 0.01 ? fmt::format("${:.3f}", value) : fmt::format("${:.2f}", value);
}
std::string Between(const std::string& low, const std::string& high) {
  return low == high ? low : Cat(low, " to ", high);
}
std::string Amounts(Range range) {
  return Between(Amount(range.low), Amount(range.high));
}
std::string Shares(Range range) {
  return Between(fmt::format("{:.0f}%", range.low * 100), fmt::format("{:.0f}%", range.high * 100));
}

}  // namespace

Range QueryCost::MachinePer1000() const {
  const double per_s = machine_per_hour / 3600 * 1000;
  return {machine_s_per_query.low * per_s, machine_s_per_query.high * per_s};
}

Range QueryCost::Margin() const {
  const Range machine = MachinePer1000();
  return {1 - (machine.high + other_per_1000.high) / price_per_1000,
          1 - (machine.low + other_per_1000.low) / price_per_1000};
}

absl::StatusOr<UnitEconomics> ReadUnitEconomics(const std::string& folder) {
  UnitEconomics out;
  const std::string first = folder + "/restructuring.toml", second = folder + "/unit_economics.toml";
  KVIST_ASSIGN_OR_RETURN(const json::object restructuring, serve::ReadTomlFile(first));
  KVIST_RETURN_IF_ERROR(Annotate(ReadRestructuring(restructuring, out), first));
  KVIST_ASSIGN_OR_RETURN(const json::object queries, serve::ReadTomlFile(second));
  KVIST_RETURN_IF_ERROR(Annotate(ReadQueries(queries, out), second));
  return out;
}

Table RestructuringTable(const UnitEconomics& inputs) {
  Table table{.title = "Roles cut and investment",
              .head = {"company", "roles cut", "capex a year", "spent on", "pay saved a year", "revenue needed a year"},
              .rows = {}};
  for (const Company& company : inputs.companies) {
    const auto saved = [&](double pay) { return fmt::format("${:.1f} B", company.roles_cut * pay / 1e9); };
    RequiredRevenue required = inputs.required;
    required.silicon = company.capex_per_year;
    required.power =
        inputs.required.silicon == 0 ? 0 : inputs.required.power * company.capex_per_year / inputs.required.silicon;
    table.rows.push_back({{company.name, Cat(Grouped(company.roles_cut), "+"),
                           fmt::format("${:.1f} Billion / year", company.capex_per_year), company.target,
                           Between(saved(inputs.pay_per_role.low), saved(inputs.pay_per_role.high)),
                           fmt::format("${:.1f} B", required.Revenue())}});
  }
  table.rows.push_back({{"all the industry", "", fmt::format("${:.1f} Billion / year", inputs.required.silicon), "", "",
                         fmt::format("${:.1f} B", inputs.required.Revenue())}});
  return table;
}

Table QueryTable(const UnitEconomics& inputs) {
  const QueryCost &old_way = inputs.old_way, &new_way = inputs.new_way;
  const Range old_cost = old_way.MachinePer1000(), new_cost = new_way.MachinePer1000();
  const auto times = [](double more, double less) { return Cat(Grouped(more / less), "x"); };
  const auto share = [](const QueryCost& way) {
    return fmt::format("{:.3f}% of the price", way.MachinePer1000().high / way.price_per_1000 * 100);
  };
  return {
      .title = "What a query costs and leaves",
      .head = {"", old_way.name, new_way.name, "times"},
      .rows = {{{"machine per hour", Amount(old_way.machine_per_hour), Amount(new_way.machine_per_hour),
                 times(new_way.machine_per_hour, old_way.machine_per_hour)}},
               {{"machine per 1,000 queries", Amounts(old_cost), Amounts(new_cost), times(new_cost.low, old_cost.low)}},
               {{"gross margin", Shares(old_way.Margin()), Shares(new_way.Margin()), ""}},
               {{"machine cost of one more customer's query", share(old_way), share(new_way), ""}}}};
}

}  // namespace kvist::lab
