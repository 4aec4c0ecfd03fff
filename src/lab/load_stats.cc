#include "lab/load_stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/percentile.h"

namespace kvist::lab {
namespace {

/// Values of the requests of one group, before they are made figures.
struct Samples {
  std::vector<double> ttft, tpot, itl, e2e, lag;
};

void Add(const LoadRecord& record, const LoadGoal& goal, LoadFigures& figures, Samples& samples) {
  ++figures.by_outcome[static_cast<size_t>(record.outcome)];
  if (record.outcome == LoadOutcome::kInterrupted) return;
  ++figures.requests;
  samples.lag.push_back(record.lag_s());
  if (!record.answered()) return;
  samples.e2e.push_back(record.e2e_s());
  if (const auto ttft = record.ttft_s()) samples.ttft.push_back(*ttft);
  if (const auto tpot = record.tpot_s()) samples.tpot.push_back(*tpot);
  for (size_t i = 1; i < record.text_s.size(); ++i) samples.itl.push_back(record.text_s[i] - record.text_s[i - 1]);
  figures.prompt_tokens += record.prompt_tokens;
  figures.cached_tokens += record.cached_tokens;
  figures.output_tokens += record.output_tokens;
  figures.counted_by_server = figures.counted_by_server && record.counted_by_server;
  if (goal.Met(record)) ++figures.good;
}

void Close(double duration_s, LoadFigures& figures, Samples& samples) {
  figures.ttft_s = DistributionOf(std::move(samples.ttft));
  figures.tpot_s = DistributionOf(std::move(samples.tpot));
  figures.itl_s = DistributionOf(std::move(samples.itl));
  figures.e2e_s = DistributionOf(std::move(samples.e2e));
  figures.lag_s = DistributionOf(std::move(samples.lag));
  if (duration_s <= 0) return;
  figures.output_tokens_per_s = static_cast<double>(figures.output_tokens) / duration_s;
  figures.requests_per_s = static_cast<double>(figures.answered()) / duration_s;
  figures.goodput_per_s = static_cast<double>(figures.good) / duration_s;
}

uint32_t RunningMax(std::span<const LoadRecord> records) {
  std::vector<std::pair<double, int>> changes;
  for (const LoadRecord& record : records) {
    changes.emplace_back(record.sent_s, 1);
    changes.emplace_back(record.end_s, -1);
  }
  std::ranges::sort(changes);
  int running = 0, most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, running += change);
  return static_cast<uint32_t>(most);
}

}  // namespace

std::string_view LoadOutcomeName(LoadOutcome outcome) {
  constexpr std::string_view kNames[kLoadOutcomes] = {"answered",  "refused", "http_error",   "unreachable",
                                                      "timed_out", "cut_off", "stream_error", "interrupted"};
  return kNames[static_cast<size_t>(outcome)];
}

std::optional<double> LoadRecord::ttft_s() const {
  if (text_s.empty()) return std::nullopt;
  return text_s.front() - due_s;
}

std::optional<double> LoadRecord::tpot_s() const {
  if (text_s.empty() || output_tokens < 2) return std::nullopt;
  return (text_s.back() - text_s.front()) / (output_tokens - 1);
}

Distribution DistributionOf(std::vector<double> values) {
  if (values.empty()) return {};
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = Percentile(values, 0.5),
          .p90 = Percentile(values, 0.9),
          .p99 = Percentile(values, 0.99),
          .max = *std::ranges::max_element(values)};
}

double JainIndex(std::span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(values.size()) * squares);
}

double MinOverMax(std::span<const double> values) {
  if (values.empty()) return 1;
  const auto [min, max] = std::ranges::minmax(values);
  return max == 0 ? 1 : min / max;
}

bool LoadGoal::Met(const LoadRecord& record) const {
  if (!record.answered()) return false;
  if (ttft_s > 0 && record.ttft_s().value_or(record.e2e_s()) > ttft_s) return false;
  return tpot_s <= 0 || record.tpot_s().value_or(0) <= tpot_s;
}

LoadSummary SummariseLoad(std::span<const LoadRecord> records, uint32_t tenants_count, const LoadGoal& goal,
                          double duration_s) {
  LoadSummary summary{.duration_s = duration_s, .running_max = RunningMax(records)};
  summary.tenants.resize(tenants_count);
  Samples all;
  std::vector<Samples> by_tenant(tenants_count);
  for (const LoadRecord& record : records) {
    Add(record, goal, summary.all, all);
    if (record.tenant < tenants_count) Add(record, goal, summary.tenants[record.tenant], by_tenant[record.tenant]);
  }
  Close(duration_s, summary.all, all);
  std::vector<double> tokens, good;
  for (uint32_t i = 0; i < tenants_count; ++i) {
    Close(duration_s, summary.tenants[i], by_tenant[i]);
    tokens.push_back(summary.tenants[i].output_tokens_per_s);
    good.push_back(summary.tenants[i].good_share());
  }
  summary.jain_tokens = JainIndex(tokens);
  summary.min_max_tokens = MinOverMax(tokens);
  summary.jain_good = JainIndex(good);
  summary.min_max_good = MinOverMax(good);
  return summary;
}

}  // namespace kvist::lab
