/// @file
/// `kvist cost`: cost, revenue and margin of what a server has served, from its usage database; and the tables of
/// article A2.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/near_word.h"
#include "lab/unit_economics.h"
#include "serve/json_output.h"
#include "serve/tenant_config.h"
#include "serve/usage_view.h"

namespace kvist::cli {
namespace {

struct CostFlags {
  std::string usage_db, prices, tenants, article, from, to, group_by = "tenant", tenant;
  double below = std::numeric_limits<double>::quiet_NaN();
  bool json = false;
};

void Print(const lab::Table& table, bool json) {
  if (json) {
    boost::json::array head, rows;
    for (const std::string& cell : table.head) head.emplace_back(cell);
    for (const lab::TableRow& row : table.rows) {
      boost::json::array cells;
      for (const std::string& cell : row.cells) cells.emplace_back(cell);
      rows.push_back(std::move(cells));
    }
    const boost::json::object out = {{"table", table.title}, {"head", std::move(head)}, {"rows", std::move(rows)}};
    std::printf("%s\n", serve::JsonText(out).c_str());
    return;
  }
  std::vector<size_t> widths(table.head.size());
  const auto measure = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  };
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) text += fmt::format("{:{}}  ", cells[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  measure(table.head);
  for (const lab::TableRow& row : table.rows) measure(row.cells);
  fmt::print("{}\n\n", table.title);
  line(table.head);
  for (const lab::TableRow& row : table.rows) line(row.cells);
  fmt::print("\n");
}

absl::Status PrintArticle(const CostFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const lab::UnitEconomics inputs, lab::ReadUnitEconomics(flags.article));
  Print(lab::RestructuringTable(inputs), flags.json);
  Print(lab::QueryTable(inputs), flags.json);
  return absl::OkStatus();
}

/// An amount with the digits that small ones need: "12.30", "0.00042".
std::string Amount(double amount) {
  constexpr int kDigits = 3, kDigitsMax = 9;
  const double size = std::abs(amount);
  if (size == 0) return "0";
  const int digits = size >= 1 ? 2 : kDigits - 1 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", amount, std::min(digits, kDigitsMax));
}

absl::StatusOr<serve::PricesOf> PricesFrom(const CostFlags& flags, const std::vector<serve::UsageGroup>& groups) {
  std::optional<serve::Prices> all;
  if (!flags.prices.empty()) {
    KVIST_ASSIGN_OR_RETURN(all, serve::ReadPriceFile(flags.prices));
  }
  std::map<std::string, serve::Prices> by_tenant;
  if (!flags.tenants.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<serve::TenantConfig> tenants, serve::ReadTenantsFile(flags.tenants));
    for (const serve::TenantConfig& tenant : tenants) {
      if (tenant.prices) by_tenant[tenant.name] = *tenant.prices;
    }
  }
  // A row of several tenants has a price where all have the same.
  const bool of_one = !flags.tenant.empty() || std::ranges::find(groups, serve::UsageGroup::kTenant) != groups.end();
  if (!of_one && !by_tenant.empty()) return serve::PricesOf();
  return [all, by_tenant](const std::string& tenant) -> std::optional<serve::Prices> {
    const auto it = by_tenant.find(tenant);
    return it == by_tenant.end() ? all : std::optional(it->second);
  };
}

/// A column of the table, by what is in it.
struct Column {
  const char* name;
  std::function<std::string(const serve::UsageSum&)> cell;
  bool always = true;  ///< Else it is left out where nobody has anything in it.
};

std::vector<Column> ColumnsOf(const serve::UsageQuery& query, const serve::PricesOf& prices) {
  using serve::UsageGroup;
  using serve::UsageSum;
  const std::tuple<UsageGroup, const char*, std::string UsageSum::*> names[] = {
      {UsageGroup::kTenant, "tenant", &UsageSum::tenant},
      {UsageGroup::kDay, "day", &UsageSum::day},
      {UsageGroup::kModel, "model", &UsageSum::model},
      {UsageGroup::kRequest, "request", &UsageSum::request}};
  std::vector<Column> columns;
  for (const auto& [group, name, field] : names) {
    if (std::ranges::find(query.group_by, group) == query.group_by.end()) continue;
    columns.push_back({name, [field](const UsageSum& sum) { return (sum.*field).empty() ? "-" : sum.*field; }});
  }
  const auto count = [&](const char* name, uint64_t serve::UsageTotals::*field) {
    columns.push_back({name, [field](const UsageSum& sum) { return std::to_string(sum.totals.*field); }});
  };
  count("requests", &serve::UsageTotals::requests);
  count("prompt", &serve::UsageTotals::prompt_tokens);
  count("cached", &serve::UsageTotals::cached_tokens);
  count("generated", &serve::UsageTotals::generated_tokens);
  columns.push_back({"step s", [](const UsageSum& sum) { return Amount(sum.totals.step_share_s); }});
  const auto held = [&](const char* name, double serve::UsageTotals::*field) {
    const auto cell = [field](const UsageSum& sum) {
      constexpr double kHour = 3600;
      return sum.totals.*field > 0 ? FormatByteSize(static_cast<uint64_t>(sum.totals.*field / kHour)) + " h" : "";
    };
    columns.push_back({name, cell, /*always=*/false});
  };
  held("hot memory", &serve::UsageTotals::kv_hot_byte_s);
  held("cold memory", &serve::UsageTotals::kv_cold_byte_s);
  held("drive", &serve::UsageTotals::kv_drive_byte_s);
  const auto of_money = [&](const char* name, std::string (*text)(const serve::Money&, const UsageSum&)) {
    const auto cell = [text, prices](const UsageSum& sum) {
      const std::optional<serve::Money> known = serve::MoneyOf(sum, prices);
      return known ? text(*known, sum) : "";
    };
    columns.push_back({name, cell, /*always=*/false});
  };
  of_money("cost",
           [](const serve::Money& money, const UsageSum&) { return Amount(money.cost) + " " + money.currency; });
  of_money("revenue", [](const serve::Money& money, const UsageSum&) { return Amount(money.revenue); });
  of_money("margin", [](const serve::Money& money, const UsageSum&) -> std::string {
    return std::isfinite(money.margin()) ? fmt::format("{:.1f}%", money.margin() * 100) : "no revenue";
  });
  of_money("cost/query", [](const serve::Money& money, const UsageSum& sum) -> std::string {
    return sum.totals.requests == 0 ? "-" : Amount(money.cost / static_cast<double>(sum.totals.requests));
  });
  return columns;
}

lab::Table UsageTable(const serve::UsageQuery& query, const std::vector<serve::UsageSum>& sums,
                      const serve::PricesOf& prices) {
  lab::Table table{.title = "Usage", .head = {}, .rows = std::vector<lab::TableRow>(sums.size())};
  for (const Column& column : ColumnsOf(query, prices)) {
    std::vector<std::string> cells;
    for (const serve::UsageSum& sum : sums) cells.push_back(column.cell(sum));
    const bool empty = std::ranges::all_of(cells, [](const std::string& cell) { return cell.empty(); });
    if (empty && !column.always) continue;
    table.head.emplace_back(column.name);
    for (size_t i = 0; i < sums.size(); ++i) table.rows[i].cells.push_back(cells[i].empty() ? "-" : cells[i]);
  }
  return table;
}

/// Errors: NotFound where nobody of this name ever was.
absl::Status CheckTenant(const CostFlags& flags, serve::UsageDb& db) {
  KVIST_ASSIGN_OR_RETURN(std::vector<std::string> names, db.Tenants());
  if (!flags.tenants.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<serve::TenantConfig> tenants, serve::ReadTenantsFile(flags.tenants));
    for (const serve::TenantConfig& tenant : tenants) names.push_back(tenant.name);
  }
  if (std::ranges::find(names, flags.tenant) != names.end()) return absl::OkStatus();
  return absl::NotFoundError(
      Cat(flags.usage_db, ": there is no tenant '", flags.tenant, "'", NearWord(flags.tenant, names)));
}

/// @return whether a margin lies below the floor that was given
absl::StatusOr<bool> PrintUsage(const CostFlags& flags) {
  serve::UsageQuery query;
  if (!flags.from.empty()) {
    KVIST_ASSIGN_OR_RETURN(query.from_s, serve::ParseMoment(flags.from, "--from"));
  }
  if (!flags.to.empty()) {
    KVIST_ASSIGN_OR_RETURN(query.to_s, serve::ParseMoment(flags.to, "--to"));
  }
  KVIST_ASSIGN_OR_RETURN(query.group_by, serve::ParseGroups(flags.group_by));
  if (!flags.tenant.empty()) query.tenant = flags.tenant;
  KVIST_ASSIGN_OR_RETURN(const serve::PricesOf prices, PricesFrom(flags, query.group_by));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<serve::UsageDb> db, serve::UsageDb::OpenToRead(flags.usage_db));
  if (query.tenant) KVIST_RETURN_IF_ERROR(CheckTenant(flags, *db));
  KVIST_ASSIGN_OR_RETURN(std::vector<serve::UsageSum> sums, db->Sum(query));
  for (serve::UsageSum& sum : sums) {
    if (query.tenant) sum.tenant = *query.tenant;
  }
  if (flags.json) {
    std::printf("%s\n", serve::UsageBody(query, sums, prices).c_str());
  } else {
    Print(UsageTable(query, sums, prices), /*json=*/false);
  }
  return std::ranges::any_of(sums, [&](const serve::UsageSum& sum) {
    const std::optional<serve::Money> money = serve::MoneyOf(sum, prices);
    return money && money->margin() < flags.below;
  });
}

int RunCost(const CostFlags& flags) {
  if (flags.article.empty() == flags.usage_db.empty()) {
    std::fputs("kvist cost: give either --usage-db or --article\n", stderr);
    return 2;
  }
  if (!flags.article.empty()) {
    const absl::Status status = PrintArticle(flags);
    return status.ok() ? 0 : Report("cost", status);
  }
  const absl::StatusOr<bool> below = PrintUsage(flags);
  if (!below.ok()) return Report("cost", below.status());
  if (*below) fmt::print(stderr, "kvist cost: a margin is below {:.1f}%\n", flags.below * 100);
  return *below ? 1 : 0;
}

}  // namespace

void AddCost(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CostFlags>();
  CLI::App* command = app.add_subcommand("cost", "Cost, revenue and margin of what a server has served");
  command->add_option("--usage-db", flags->usage_db, "Database that `kvist serve --usage-db` writes");
  command->add_option("--prices", flags->prices, "TOML file of prices, for tenants without one of their own");
  command->add_option("--tenants", flags->tenants, "TOML file of tenants, for their prices");
  command->add_option("--from", flags->from, "First day (2026-11-30, UTC) or second since 1970");
  command->add_option("--to", flags->to, "Day or second before which it ends");
  command
      ->add_option("--group-by", flags->group_by, "Some of tenant, day, model, request, by commas; \"\" = all in one")
      ->capture_default_str();
  command->add_option("--tenant", flags->tenant, "This tenant only");
  command->add_option("--min-margin", flags->below, "Exit with 1 where a margin is below this share of revenue");
  command->add_option("--article", flags->article, "Folder with the inputs of article A2: prints its two tables");
  command->add_flag("--json", flags->json, "JSON, as GET /kvist/usage has it");
  command->callback([flags, &exit_code] { exit_code = RunCost(*flags); });
}

}  // namespace kvist::cli
