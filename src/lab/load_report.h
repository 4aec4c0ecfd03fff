#pragma once

/// @file
/// Shows what a load test found: one JSON object, a table for a terminal, or a page with plots (load_html.h). Pure; any
/// thread.

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "lab/load_run.h"
#include "lab/load_stats.h"

namespace kvist::lab {

struct LoadReport {
  std::string url, model;
  std::vector<std::string> tenants;  ///< Their names; one empty name = there are none.
  LoadGoal goal;
  LoadResult result;
  LoadSummary summary;
  boost::json::object settings;  ///< How it was run, for the reader.
};

/// Seconds, as milliseconds.
boost::json::object DistributionJson(const Distribution& seconds);
/// Of a run or a tenant: the fields that scripts rely on, times in ms.
boost::json::object FiguresJson(const LoadFigures& figures);
/// The same of the whole report, with what it was run with.
boost::json::object LoadJson(const LoadReport& report);

/// Lines of text, at most 100 wide.
std::string LoadTable(const LoadReport& report);

/// What went wrong: kind, status and words but for the numbers in them, with how often, most frequent first.
struct LoadFault {
  LoadOutcome outcome;
  int status;
  std::string why;      ///< Of the first.
  bool differ = false;  ///< Others have other words.
  uint64_t count = 0;
};
std::vector<LoadFault> FaultsOf(const LoadResult& result);

}  // namespace kvist::lab
