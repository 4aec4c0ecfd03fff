#include "serve/prices.h"

#include <limits>

#include "base/status.h"
#include "serve/json_input.h"
#include "serve/toml_input.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kFields[] = {"currency", "machine", "kv", "price"};
constexpr std::string_view kMachineFields[] = {"cost_per_hour", "utilisation"};
constexpr std::string_view kKvFields[] = {"hot_per_gib_hour", "cold_memory_per_gib_hour", "drive_per_gib_hour"};
constexpr std::string_view kPriceFields[] = {"per_million_prompt_tokens", "per_million_cached_tokens",
                                             "per_million_generated_tokens", "subscription_per_month"};
constexpr double kMoneyMax = 1e12;
constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace

UsageTotals& UsageTotals::operator+=(const UsageTotals& other) {
  requests += other.requests;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  computed_tokens += other.computed_tokens;
  generated_tokens += other.generated_tokens;
  kv_hot_byte_s += other.kv_hot_byte_s;
  kv_cold_byte_s += other.kv_cold_byte_s;
  kv_drive_byte_s += other.kv_drive_byte_s;
  step_share_s += other.step_share_s;
  return *this;
}

double CostOf(const UsageTotals& usage, const Prices& prices) {
  return usage.step_share_s / 3600 * prices.machine_per_hour / prices.utilisation +
         (usage.kv_hot_byte_s * prices.kv_hot_per_gib_hour + usage.kv_cold_byte_s * prices.kv_cold_per_gib_hour +
          usage.kv_drive_byte_s * prices.kv_drive_per_gib_hour) /
             kGiB / 3600;
}

double TokenRevenueOf(const UsageTotals& usage, const Prices& prices) {
  const auto cached = static_cast<double>(usage.cached_tokens);
  return (static_cast<double>(usage.prompt_tokens) - cached) * 1e-6 * prices.per_million_prompt +
         cached * 1e-6 * prices.per_million_cached +
         static_cast<double>(usage.generated_tokens) * 1e-6 * prices.per_million_generated;
}

double MarginOf(double revenue, double cost) {
  if (cost <= 0) return 1;
  return revenue <= 0 ? -std::numeric_limits<double>::infinity() : (revenue - cost) / revenue;
}

absl::StatusOr<Prices> ReadPrices(const json::object& file) {
  Prices prices;
  const Fields root(file, "");
  KVIST_RETURN_IF_ERROR(root.RefuseUnknown(kFields));
  KVIST_RETURN_IF_ERROR(root.Read("currency", prices.currency));
  const json::object none;
  const auto section = [&](std::string_view name,
                           std::span<const std::string_view> known) -> absl::StatusOr<const json::object*> {
    KVIST_ASSIGN_OR_RETURN(const json::object* given, root.ReadObject(name));
    const json::object* object = given == nullptr ? &none : given;
    KVIST_RETURN_IF_ERROR(Fields(*object, std::string(name)).RefuseUnknown(known));
    return object;
  };
  KVIST_ASSIGN_OR_RETURN(const json::object* machine, section("machine", kMachineFields));
  const Fields machine_fields(*machine, "machine");
  KVIST_RETURN_IF_ERROR(machine_fields.Read("cost_per_hour", 0, kMoneyMax, prices.machine_per_hour));
  KVIST_RETURN_IF_ERROR(machine_fields.Read("utilisation", 1e-6, 1, prices.utilisation));
  KVIST_ASSIGN_OR_RETURN(const json::object* kv, section("kv", kKvFields));
  const Fields held(*kv, "kv");
  KVIST_RETURN_IF_ERROR(held.Read("hot_per_gib_hour", 0, kMoneyMax, prices.kv_hot_per_gib_hour));
  KVIST_RETURN_IF_ERROR(held.Read("cold_memory_per_gib_hour", 0, kMoneyMax, prices.kv_cold_per_gib_hour));
  KVIST_RETURN_IF_ERROR(held.Read("drive_per_gib_hour", 0, kMoneyMax, prices.kv_drive_per_gib_hour));
  KVIST_ASSIGN_OR_RETURN(const json::object* price, section("price", kPriceFields));
  const Fields asked(*price, "price");
  KVIST_RETURN_IF_ERROR(asked.Read("per_million_prompt_tokens", 0, kMoneyMax, prices.per_million_prompt));
  prices.per_million_cached = prices.per_million_prompt;
  KVIST_RETURN_IF_ERROR(asked.Read("per_million_cached_tokens", 0, kMoneyMax, prices.per_million_cached));
  KVIST_RETURN_IF_ERROR(asked.Read("per_million_generated_tokens", 0, kMoneyMax, prices.per_million_generated));
  KVIST_RETURN_IF_ERROR(asked.Read("subscription_per_month", 0, kMoneyMax, prices.subscription_per_month));
  return prices;
}

absl::StatusOr<Prices> ReadPriceFile(const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const json::object file, ReadTomlFile(path));
  absl::StatusOr<Prices> prices = ReadPrices(file);
  if (!prices.ok()) return Annotate(prices.status(), path);
  return prices;
}

}  // namespace kvist::serve
