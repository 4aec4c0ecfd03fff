#pragma once

/// @file
/// What serving costs and what it earns: a price file, and cost and revenue of usage by it. Pure; any thread.
/// Non-goals: exchange rates, taxes. Format: docs/serving.md, "Usage and cost".

#include <cstdint>
#include <string>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist::serve {

/// Amounts are in `currency`.
struct Prices {
  std::string currency = "USD";
  double machine_per_hour = 0;     ///< Of the whole machine, busy or not.
  double utilisation = 1;          ///< Share of its hours in which steps run; the rest is paid by those. (0, 1].
  double kv_hot_per_gib_hour = 0;  ///< Of memory held, on top of the machine's time;
  double kv_cold_per_gib_hour = 0, kv_drive_per_gib_hour = 0;  ///< of what lies in the tiers below it.
  double per_million_prompt = 0;                               ///< Asked for prompt tokens that were computed,
  double per_million_cached = 0;                               ///< for those that were found in the cache,
  double per_million_generated = 0;
  double subscription_per_month = 0;  ///< Asked whatever is used.
};

/// What money depends on, of one request or of many.
struct UsageTotals {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  double kv_hot_byte_s = 0, kv_cold_byte_s = 0, kv_drive_byte_s = 0;
  double step_share_s = 0;

  uint64_t tokens() const { return prompt_tokens + generated_tokens; }
  UsageTotals& operator+=(const UsageTotals& other);
};

/// Cost = step time * machine price / utilisation + memory and drive; without what it costs to be there when nobody
/// comes.
double CostOf(const UsageTotals& usage, const Prices& prices);

/// What is asked for tokens. Subscriptions are beside it.
double TokenRevenueOf(const UsageTotals& usage, const Prices& prices);

/// Share of revenue that is left after cost; minus infinity where there is cost and no revenue, 1 where there is
/// neither.
double MarginOf(double revenue, double cost);

/// Errors: InvalidArgument, naming the field.
absl::StatusOr<Prices> ReadPrices(const boost::json::object& file);
absl::StatusOr<Prices> ReadPriceFile(const std::string& path);

}  // namespace kvist::serve
