/// @file
/// `kvist cost`: cost, revenue and margin of what a server has served, from its usage database; and the tables of
/// article A2.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "lab/unit_economics.h"
#include "serve/json_output.h"
#include "serve/tenant_config.h"
#include "serve/usage_view.h"

namespace kvist::cli {
namespace {

constexpr double kGiBHour = 1024.0 * 1024 * 1024 * 3600;

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

absl::StatusOr<serve::PricesOf> PricesFrom(const CostFlags& flags) {
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
  return [all, by_tenant](const std::string& tenant) -> std::optional<serve::Prices> {
    const auto it = by_tenant.find(tenant);
    return it == by_tenant.end() ? all : std::optional(it->second);
  };
}

lab::Table UsageTable(const serve::UsageQuery& query, const std::vector<serve::UsageSum>& sums,
                      const serve::PricesOf& prices) {
  lab::Table table{.title = "Usage", .head = {}, .rows = {}};
  const auto has = [&](serve::UsageGroup group) {
    return std::ranges::find(query.group_by, group) != query.group_by.end();
  };
  const std::pair<serve::UsageGroup, std::pair<const char*, std::string serve::UsageSum::*>> names[] = {
      {serve::UsageGroup::kTenant, {"tenant", &serve::UsageSum::tenant}},
      {serve::UsageGroup::kDay, {"day", &serve::UsageSum::day}},
      {serve::UsageGroup::kModel, {"model", &serve::UsageSum::model}},
      {serve::UsageGroup::kRequest, {"request", &serve::UsageSum::request}}};
  for (const auto& [group, name] : names) {
    if (has(group)) table.head.emplace_back(name.first);
  }
  for (const char* column : {"requests", "prompt", "cached", "generated", "step s", "cold GiB h", "drive GiB h", "cost",
                             "revenue", "margin", "cost/query"}) {
    table.head.emplace_back(column);
  }
  for (const serve::UsageSum& sum : sums) {
    std::vector<std::string> cells;
    for (const auto& [group, name] : names) {
      if (has(group)) cells.push_back((sum.*name.second).empty() ? "-" : sum.*name.second);
    }
    const serve::UsageTotals& totals = sum.totals;
    for (const uint64_t count :
         {totals.requests, totals.prompt_tokens, totals.cached_tokens, totals.generated_tokens}) {
      cells.push_back(std::to_string(count));
    }
    cells.push_back(fmt::format("{:.3f}", totals.step_share_s));
    for (const double byte_s : {totals.kv_cold_byte_s, totals.kv_drive_byte_s}) {
      cells.push_back(fmt::format("{:.3f}", byte_s / kGiBHour));
    }
    const std::optional<serve::Money> money = serve::MoneyOf(sum, prices);
    if (money) {
      cells.push_back(fmt::format("{:.6f} {}", money->cost, money->currency));
      cells.push_back(fmt::format("{:.6f}", money->revenue));
      cells.push_back(std::isfinite(money->margin()) ? fmt::format("{:.1f}%", money->margin() * 100) : "no revenue");
      cells.push_back(totals.requests == 0 ? "-"
                                           : fmt::format("{:.6f}", money->cost / static_cast<double>(totals.requests)));
    }
    table.rows.push_back({std::move(cells)});
  }
  return table;
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
  KVIST_ASSIGN_OR_RETURN(const serve::PricesOf prices, PricesFrom(flags));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<serve::UsageDb> db, serve::UsageDb::OpenToRead(flags.usage_db));
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
