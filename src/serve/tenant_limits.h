#pragma once

/// @file
/// What one tenant has taken and may still take: requests and tokens per minute as buckets that fill steadily, requests
/// at once, budgets of the day and the month, and the month's margin. Time is the injected Clock, days are the wall
/// clock's (UTC). Threads: any. Non-goals: who the tenant is (tenants.h), what is written down (metering.h).
///
/// Tokens: a prompt's are taken when it is known, an output's as it was generated when the request ends, so that what
/// is taken is what is reported. An output may leave the bucket below zero; the next request waits until that is made
/// up for.

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "serve/prices.h"
#include "serve/tenant_config.h"

namespace kvist::serve {

/// Holds up to `capacity`, full at first, and fills by its capacity a minute. No bound while capacity is 0. Not
/// synchronised.
class TokenBucket {
 public:
  /// What is inside at `now`; may be negative.
  double Level(double capacity, TimeNs now);
  /// Seconds until `amount` (capacity at most) is inside; 0 = it is.
  double Wait(double amount, double capacity, TimeNs now);
  void Take(double amount, double capacity, TimeNs now);

 private:
  double level_ = 0;
  TimeNs at_ = kTimeNever;  ///< Never = not yet asked: full.
};

/// What a request that may come in is bound by.
struct Entry {
  uint32_t max_tokens = UINT32_MAX;  ///< Output tokens.
  uint8_t priority_min = 0;          ///< The most urgent it may be.
};

class TenantLimits {
 public:
  explicit TenantLimits(const Clock& clock) : clock_(clock) {}

  /// A request begins to come in: takes its place, and one request of the minute's. Errors: ResourceExhausted with code
  /// (rate_limit_exceeded, concurrency_limit_exceeded, insufficient_quota) and the seconds after which to try again;
  /// FailedPrecondition (HTTP 402) with code margin_below_floor. Then nothing is taken.
  absl::StatusOr<Entry> Enter(const TenantConfig& config, int64_t now_unix_s);
  /// Its place is free again.
  void Leave();

  /// Takes a prompt's tokens. A prompt that is larger than the minute's tokens waits for a full bucket. Errors:
  /// ResourceExhausted, code rate_limit_exceeded; then none are taken.
  absl::Status TakePrompt(const TenantConfig& config, uint32_t tokens);
  /// What a request used that has ended; its prompt's tokens were taken from the bucket before.
  void Charge(const TenantConfig& config, const UsageTotals& used, int64_t now_unix_s);
  /// What was used before this process: of the day and of the month that `now_unix_s` is in.
  void SetPast(const UsageTotals& day, const UsageTotals& month, int64_t now_unix_s);

  /// x-ratelimit-* as OpenAI sends them; none where there is no bound.
  void AddHeaders(const TenantConfig& config, std::vector<std::pair<std::string, std::string>>& headers);

  uint32_t concurrent() const;

 private:
  absl::Status CheckBudget(const TenantConfig& config, int64_t now_unix_s);
  absl::Status CheckMargin(const TenantConfig& config, Entry& entry) const;
  void TurnPeriods(int64_t now_unix_s);

  const Clock& clock_;
  mutable std::mutex mutex_;  ///< Guards the rest. Nothing waits while it is held.
  TokenBucket requests_, tokens_;
  uint32_t concurrent_ = 0;
  int64_t day_begin_s_ = 0, month_begin_s_ = 0;
  UsageTotals day_, month_;
};

/// First second of the day, of the month and of the next month (UTC) of a moment.
int64_t DayBegin(int64_t unix_s);
int64_t MonthBegin(int64_t unix_s);
int64_t NextMonthBegin(int64_t unix_s);

/// "6m0s", "1.5s", "12ms": durations as OpenAI's headers have them.
std::string DurationText(double seconds);

}  // namespace kvist::serve
