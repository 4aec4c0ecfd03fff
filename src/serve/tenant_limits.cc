#include "serve/tenant_limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {
namespace {

using std::chrono::sys_days;
using std::chrono::year_month_day;

constexpr double kMinute = 60;

sys_days DayOf(int64_t unix_s) {
  return std::chrono::floor<std::chrono::days>(std::chrono::sys_seconds(std::chrono::seconds(unix_s)));
}

int64_t SecondOf(sys_days day) {
  return std::chrono::sys_seconds(day).time_since_epoch().count();
}

absl::Status TooMuch(std::string_view code, double retry_s, std::string_view message) {
  return WithRetry(WithCode(absl::ResourceExhaustedError(ToAbsl(message)), code), retry_s);
}

}  // namespace

int64_t DayBegin(int64_t unix_s) {
  return SecondOf(DayOf(unix_s));
}

int64_t MonthBegin(int64_t unix_s) {
  const year_month_day day(DayOf(unix_s));
  return SecondOf(sys_days(day.year() / day.month() / 1));
}

int64_t NextMonthBegin(int64_t unix_s) {
  const year_month_day day(DayOf(unix_s));
  return SecondOf(sys_days((day.year() / day.month() + std::chrono::months(1)) / 1));
}

std::string DurationText(double seconds) {
  if (seconds <= 0) return "0s";
  const auto ms = static_cast<int64_t>(std::ceil(std::min(seconds, 1e9) * 1e3));
  if (ms < 1000) return fmt::format("{}ms", ms);
  if (ms < 60'000) return fmt::format("{:g}s", static_cast<double>(ms) / 1e3);
  const int64_t whole = (ms + 999) / 1000;
  if (whole < 3600) return fmt::format("{}m{}s", whole / 60, whole % 60);
  return fmt::format("{}h{}m{}s", whole / 3600, whole / 60 % 60, whole % 60);
}

double TokenBucket::Level(double capacity, TimeNs now) {
  if (at_ == kTimeNever) level_ = capacity;
  const double passed = at_ == kTimeNever ? 0 : Seconds(std::max<int64_t>(now - at_, 0));
  level_ = std::min(level_ + passed * capacity / kMinute, capacity);
  at_ = now;
  return level_;
}

double TokenBucket::Wait(double amount, double capacity, TimeNs now) {
  if (capacity <= 0) return 0;
  const double missing = std::min(amount, capacity) - Level(capacity, now);
  return missing <= 1e-9 * capacity ? 0 : missing * kMinute / capacity;
}

void TokenBucket::Take(double amount, double capacity, TimeNs now) {
  if (capacity <= 0) return;
  Level(capacity, now);
  level_ -= amount;
}

absl::StatusOr<Entry> TenantLimits::Enter(const TenantConfig& config, int64_t now_unix_s) {
  std::lock_guard lock(mutex_);
  const TimeNs now = clock_.Now();
  TurnPeriods(now_unix_s);
  Entry entry{.priority_min = config.priority};
  if (config.concurrent > 0 && concurrent_ >= config.concurrent) {
    return TooMuch("concurrency_limit_exceeded", 1,
                   Cat("tenant '", config.name, "' may have ", config.concurrent, " requests at once"));
  }
  if (const double wait = requests_.Wait(1, config.requests_per_minute, now); wait > 0) {
    return TooMuch("rate_limit_exceeded", wait,
                   Cat("tenant '", config.name, "' may send ", config.requests_per_minute, " requests a minute"));
  }
  if (const double wait = tokens_.Wait(1, config.tokens_per_minute, now); wait > 0) {
    return TooMuch("rate_limit_exceeded", wait,
                   Cat("tenant '", config.name, "' may use ", config.tokens_per_minute, " tokens a minute"));
  }
  KVIST_RETURN_IF_ERROR(CheckBudget(config, now_unix_s));
  KVIST_RETURN_IF_ERROR(CheckMargin(config, entry));
  requests_.Take(1, config.requests_per_minute, now);
  ++concurrent_;
  return entry;
}

void TenantLimits::Leave() {
  std::lock_guard lock(mutex_);
  --concurrent_;
}

uint32_t TenantLimits::concurrent() const {
  std::lock_guard lock(mutex_);
  return concurrent_;
}

absl::Status TenantLimits::TakePrompt(const TenantConfig& config, uint32_t tokens) {
  std::lock_guard lock(mutex_);
  const TimeNs now = clock_.Now();
  if (const double wait = tokens_.Wait(tokens, config.tokens_per_minute, now); wait > 0) {
    return TooMuch("rate_limit_exceeded", wait,
                   Cat("the prompt has ", tokens, " tokens; tenant '", config.name, "' may use ",
                       config.tokens_per_minute, " a minute"));
  }
  tokens_.Take(tokens, config.tokens_per_minute, now);
  return absl::OkStatus();
}

void TenantLimits::Charge(const TenantConfig& config, const UsageTotals& used, int64_t now_unix_s) {
  std::lock_guard lock(mutex_);
  TurnPeriods(now_unix_s);
  tokens_.Take(static_cast<double>(used.generated_tokens), config.tokens_per_minute, clock_.Now());
  day_ += used;
  month_ += used;
}

void TenantLimits::SetPast(const UsageTotals& day, const UsageTotals& month, int64_t now_unix_s) {
  std::lock_guard lock(mutex_);
  TurnPeriods(now_unix_s);
  day_ += day;
  month_ += month;
}

/// Begins counting anew where a day or a month is over. A clock that goes back changes nothing.
void TenantLimits::TurnPeriods(int64_t now_unix_s) {
  if (const int64_t day = DayBegin(now_unix_s); day > day_begin_s_) {
    day_begin_s_ = day;
    day_ = {};
  }
  if (const int64_t month = MonthBegin(now_unix_s); month > month_begin_s_) {
    month_begin_s_ = month;
    month_ = {};
  }
}

absl::Status TenantLimits::CheckBudget(const TenantConfig& config, int64_t now_unix_s) {
  const Budget& budget = config.budget;
  const auto check = [&](std::string_view period, const UsageTotals& used, uint64_t tokens_max, double money_max,
                         int64_t end_s) -> absl::Status {
    const auto retry = static_cast<double>(end_s - now_unix_s);
    if (tokens_max > 0 && used.tokens() >= tokens_max) {
      return TooMuch("insufficient_quota", retry,
                     Cat("tenant '", config.name, "' has used its ", tokens_max, " tokens of the ", period));
    }
    if (money_max > 0 && config.prices && TokenRevenueOf(used, *config.prices) >= money_max) {
      return TooMuch(
          "insufficient_quota", retry,
          Cat("tenant '", config.name, "' has used its ", money_max, " ", config.prices->currency, " of the ", period));
    }
    return absl::OkStatus();
  };
  constexpr int64_t kDay = 86400;
  KVIST_RETURN_IF_ERROR(check("day", day_, budget.tokens_per_day, budget.money_per_day, day_begin_s_ + kDay));
  return check("month", month_, budget.tokens_per_month, budget.money_per_month, NextMonthBegin(now_unix_s));
}

absl::Status TenantLimits::CheckMargin(const TenantConfig& config, Entry& entry) const {
  if (!config.margin || !config.prices || month_.requests < config.margin->requests_min) return absl::OkStatus();
  const MarginGate& gate = *config.margin;
  const double revenue = TokenRevenueOf(month_, *config.prices) + config.prices->subscription_per_month;
  const double margin = MarginOf(revenue, CostOf(month_, *config.prices));
  if (margin >= gate.floor) return absl::OkStatus();
  switch (gate.below) {
    case BelowMargin::kCap:
      entry.max_tokens = gate.max_tokens;
      break;
    case BelowMargin::kDemote:
      entry.priority_min = UINT8_MAX;
      break;
    case BelowMargin::kRefuse:
      return WithHttpStatus(WithCode(absl::FailedPreconditionError(
                                         fmt::format("serving tenant '{}' has a margin of {:.1f} % this month, below "
                                                     "the floor of {:.1f} %",
                                                     config.name, margin * 100, gate.floor * 100)),
                                     "margin_below_floor"),
                            402);
  }
  return absl::OkStatus();
}

void TenantLimits::AddHeaders(const TenantConfig& config, std::vector<std::pair<std::string, std::string>>& headers) {
  std::lock_guard lock(mutex_);
  const TimeNs now = clock_.Now();
  const auto add = [&](std::string_view what, double capacity, TokenBucket& bucket) {
    if (capacity <= 0) return;
    const double level = bucket.Level(capacity, now);
    headers.emplace_back(Cat("x-ratelimit-limit-", what), fmt::format("{:.0f}", std::floor(capacity)));
    headers.emplace_back(Cat("x-ratelimit-remaining-", what), fmt::format("{:.0f}", std::max(std::floor(level), 0.0)));
    headers.emplace_back(Cat("x-ratelimit-reset-", what), DurationText(bucket.Wait(capacity, capacity, now)));
  };
  add("requests", config.requests_per_minute, requests_);
  add("tokens", config.tokens_per_minute, tokens_);
}

}  // namespace kvist::serve
