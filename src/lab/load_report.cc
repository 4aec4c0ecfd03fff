#include "lab/load_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <boost/json.hpp>

namespace kvist::lab {

namespace json = boost::json;

namespace {

std::string Row(std::string_view name, const Distribution& seconds) {
  if (seconds.count == 0) return {};
  return fmt::format("{:<22}{:>11.1f}{:>11.1f}{:>11.1f}{:>11.1f}{:>11.1f}\n", name, seconds.mean * 1e3,
                     seconds.p50 * 1e3, seconds.p90 * 1e3, seconds.p99 * 1e3, seconds.max * 1e3);
}

/// Messages that differ by numbers alone have one reason.
std::string WithoutNumbers(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      out += c;
    } else if (!out.ends_with('#')) {
      out += '#';
    }
  }
  return out;
}

std::string TenantRows(const LoadReport& report) {
  if (report.tenants.size() < 2) return {};
  std::string out = fmt::format("\n{:<22}{:>10}{:>10}{:>10}{:>14}{:>14}\n", "tenant", "requests", "answered", "good %",
                                "tokens/s", "TTFT P99 ms");
  for (size_t i = 0; i < report.tenants.size(); ++i) {
    const LoadFigures& figures = report.summary.tenants[i];
    out += fmt::format("{:<22}{:>10}{:>10}{:>10.1f}{:>14.1f}{:>14.1f}\n", report.tenants[i], figures.requests,
                       figures.answered(), 100 * figures.good_share(), figures.output_tokens_per_s,
                       figures.ttft_s.p99 * 1e3);
  }
  const LoadSummary& summary = report.summary;
  if (summary.all.answered() == 0) return out;  // Nothing was dealt out, fairly or not.
  out +=
      fmt::format("fairness of tokens/s: Jain {:.3f}, min/max {:.3f}; of good answers: Jain {:.3f}, min/max {:.3f}\n",
                  summary.jain_tokens, summary.min_max_tokens, summary.jain_good, summary.min_max_good);
  return out;
}

}  // namespace

json::object DistributionJson(const Distribution& seconds) {
  return {{"mean", seconds.mean * 1e3},
          {"p50", seconds.p50 * 1e3},
          {"p90", seconds.p90 * 1e3},
          {"p99", seconds.p99 * 1e3},
          {"max", seconds.max * 1e3}};
}

json::object FiguresJson(const LoadFigures& figures) {
  json::object outcomes;
  for (uint32_t i = 0; i < kLoadOutcomes; ++i) {
    const std::string_view name = LoadOutcomeName(static_cast<LoadOutcome>(i));
    outcomes[{name.data(), name.size()}] = figures.by_outcome[i];
  }
  return {{"requests", figures.requests},
          {"answered", figures.answered()},
          {"outcomes", std::move(outcomes)},
          {"ttft_ms", DistributionJson(figures.ttft_s)},
          {"tpot_ms", DistributionJson(figures.tpot_s)},
          {"itl_ms", DistributionJson(figures.itl_s)},
          {"e2e_ms", DistributionJson(figures.e2e_s)},
          {"dispatch_lag_ms", DistributionJson(figures.lag_s)},
          {"prompt_tokens", figures.prompt_tokens},
          {"cached_tokens", figures.cached_tokens},
          {"computed_tokens", figures.prompt_tokens - figures.cached_tokens},
          {"output_tokens", figures.output_tokens},
          {"output_tokens_per_s", figures.output_tokens_per_s},
          {"requests_per_s", figures.requests_per_s},
          {"good", figures.good},
          {"good_share", figures.good_share()},
          {"goodput_per_s", figures.goodput_per_s},
          {"tokens_counted_by", figures.counted_by_server ? "server" : "pieces"}};
}

std::vector<LoadFault> FaultsOf(const LoadResult& result) {
  std::vector<LoadFault> faults;
  std::vector<std::string> shapes;  // [faults]
  for (const LoadRecord& record : result.records) {
    if (record.answered() || record.outcome == LoadOutcome::kInterrupted) continue;
    const std::string shape = WithoutNumbers(record.why);
    size_t known = 0;
    while (known < faults.size() && !(faults[known].outcome == record.outcome &&
                                      faults[known].status == record.status && shapes[known] == shape)) {
      ++known;
    }
    constexpr size_t kKindsMax = 50;  // Who answers may put anything into its messages.
    if (known == kKindsMax) --known;
    if (known == faults.size()) {
      faults.push_back({.outcome = record.outcome, .status = record.status, .why = record.why});
      shapes.push_back(shape);
    }
    ++faults[known].count;
    faults[known].differ |= faults[known].why != record.why;
  }
  std::ranges::stable_sort(faults, std::ranges::greater{}, &LoadFault::count);
  return faults;
}

json::object LoadJson(const LoadReport& report) {
  const LoadSummary& summary = report.summary;
  json::object out = FiguresJson(summary.all);
  out["url"] = report.url;
  out["model"] = report.model;
  out["duration_s"] = summary.duration_s;
  out["running_max"] = summary.running_max;
  out["interrupted"] = report.result.interrupted;
  out["slo"] = {{"ttft_ms", report.goal.ttft_s * 1e3}, {"tpot_ms", report.goal.tpot_s * 1e3}};
  json::array errors;
  for (const LoadFault& fault : FaultsOf(report.result)) {
    errors.push_back({{"outcome", LoadOutcomeName(fault.outcome)},
                      {"status", fault.status},
                      {"message", fault.why},
                      {"count", fault.count}});
  }
  out["errors"] = std::move(errors);
  if (report.tenants.size() > 1) {
    json::array tenants;
    for (size_t i = 0; i < report.tenants.size(); ++i) {
      json::object tenant = FiguresJson(summary.tenants[i]);
      tenant["name"] = report.tenants[i];
      tenants.push_back(std::move(tenant));
    }
    out["tenants"] = std::move(tenants);
    if (summary.all.answered() > 0) {
      out["fairness"] = {{"jain_tokens", summary.jain_tokens},
                         {"min_max_tokens", summary.min_max_tokens},
                         {"jain_good", summary.jain_good},
                         {"min_max_good", summary.min_max_good}};
    }
  }
  out["settings"] = report.settings;
  return out;
}

std::string LoadTable(const LoadReport& report) {
  const LoadFigures& all = report.summary.all;
  std::string out = fmt::format("{} of {} requests answered in {:.1f} s by {}, at most {} at once\n", all.answered(),
                                all.requests, report.summary.duration_s, report.url, report.summary.running_max);
  out += fmt::format("{:.1f} output tokens/s ({}), {:.2f} answers/s; prompts of {} tokens, {} of them cached\n",
                     all.output_tokens_per_s, all.counted_by_server ? "as the server counts" : "pieces of text",
                     all.requests_per_s, all.prompt_tokens, all.cached_tokens);
  if (report.goal.ttft_s > 0 || report.goal.tpot_s > 0) {
    out += fmt::format("{} good answers ({:.1f} %), {:.2f}/s\n", all.good, 100 * all.good_share(), all.goodput_per_s);
  }
  out += fmt::format("\n{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "ms", "mean", "P50", "P90", "P99", "max");
  out += Row("first token (TTFT)", all.ttft_s) + Row("per token (TPOT)", all.tpot_s) +
         Row("between tokens (ITL)", all.itl_s) + Row("whole answer", all.e2e_s) + Row("sent too late by", all.lag_s);
  out += TenantRows(report);
  for (const LoadFault& fault : FaultsOf(report.result)) {
    out += fmt::format("\n{} x {}{}{}{}", fault.count, LoadOutcomeName(fault.outcome),
                       fault.status > 0 ? fmt::format(" ({})", fault.status) : "",
                       fault.differ        ? ", such as: "
                       : fault.why.empty() ? ""
                                           : ": ",
                       fault.why);
  }
  if (!out.ends_with('\n')) out += '\n';
  if (report.result.interrupted) out += "\ninterrupted: what had not ended is in no figure\n";
  return out;
}

}  // namespace kvist::lab
