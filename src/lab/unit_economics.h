#pragma once

/// @file
/// The two tables of article A2 and the statements around them, computed from input files: what machines must earn, and
/// what a query costs and leaves. Pure but for reading the files; any thread. Non-goals: what this server's queries
/// cost (serve/prices.h). Where the article's own arithmetic differs, claims/A2 says so.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::lab {

/// Yearly revenue that pays for machines: (silicon / life * (1 + facility) + power) / (1 - margin). Amounts in one
/// unit.
struct RequiredRevenue {
  double silicon = 0;     ///< Bought per year.
  double life_years = 1;  ///< Over which it is written off, evenly.
  double facility = 0;    ///< Spent on buildings and supply per unit spent on silicon.
  double power = 0;       ///< A year.
  double margin = 0;      ///< Share of revenue that is to be left. < 1.

  double Depreciation() const { return silicon / life_years; }
  double Revenue() const { return (Depreciation() * (1 + facility) + power) / (1 - margin); }
};

struct Range {
  double low = 0, high = 0;
};

/// What a kind of service costs per 1,000 queries. Ranges go from the cheapest to the dearest.
struct QueryCost {
  std::string name;
  double machine_per_hour = 0;
  Range machine_s_per_query;
  Range other_per_1000;  ///< Support, storage, licences.
  double price_per_1000 = 0;

  Range MachinePer1000() const;
  /// Share of the price that is left, the worst first.
  Range Margin() const;
};

struct Company {
  std::string name;
  double roles_cut = 0;
  double capex_per_year = 0;  ///< Billions.
  std::string target;
};

struct UnitEconomics {
  std::vector<Company> companies;
  RequiredRevenue required;  ///< Of the whole industry, billions.
  Range pay_per_role;        ///< A year.
  QueryCost old_way, new_way;
};

/// Errors: those of the files (restructuring.toml, unit_economics.toml), naming file and field.
absl::StatusOr<UnitEconomics> ReadUnitEconomics(const std::string& folder);

/// One line of a table: what, and its cells.
struct TableRow {
  std::vector<std::string> cells;
};
struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<TableRow> rows;
};

/// Company, roles cut, investment, target; then what follows: pay that is saved, and revenue that its machines need.
Table RestructuringTable(const UnitEconomics& inputs);
/// Hardware, cost per 1,000 queries, margin: old way, new way, and how many times more.
Table QueryTable(const UnitEconomics& inputs);

}  // namespace kvist::lab
