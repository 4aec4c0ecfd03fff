#include "serve/tenant_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/status.h"
#include "serve/api_error.h"
#include "serve/json_input.h"
#include "serve/toml_input.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kRootFields[] = {"tenant"};
constexpr std::string_view kTenantFields[] = {"name",
                                              "keys",
                                              "admin",
                                              "requests_per_minute",
                                              "tokens_per_minute",
                                              "concurrent",
                                              "kv_blocks",
                                              "kv_share",
                                              "priority",
                                              "shared",
                                              "budget",
                                              "prices",
                                              "margin"};
constexpr std::string_view kBudgetFields[] = {"tokens_per_day", "tokens_per_month", "money_per_day", "money_per_month"};
constexpr std::string_view kMarginFields[] = {"floor", "below", "max_tokens", "requests_min"};
constexpr std::string_view kHashed = "sha256:";
constexpr size_t kKeyBytesMin = 8;  // Shorter ones can be guessed.
constexpr double kRateMax = 1e9;
constexpr double kMoneyMax = 1e12;

absl::StatusOr<KeyDigest> DigestOfEntry(const json::value& value, const std::string& place) {
  const auto bad = [&](std::string_view message) { return BadParam(place, Cat("'", place, "' ", message)); };
  if (!value.is_string()) return bad(Cat("must be a string, not ", JsonKindName(value)));
  const std::string_view text(value.get_string().data(), value.get_string().size());
  if (!text.starts_with(kHashed)) {
    if (text.size() < kKeyBytesMin) return bad(Cat("is shorter than ", kKeyBytesMin, " bytes"));
    return DigestOf(text);
  }
  const std::string_view hex = text.substr(kHashed.size());
  KeyDigest digest;
  if (hex.size() != 2 * digest.size() ||
      !std::ranges::all_of(hex, [](unsigned char c) { return absl::ascii_isxdigit(c); })) {
    return bad("must have 64 hexadecimal digits after 'sha256:'");
  }
  const std::string bytes = absl::HexStringToBytes(ToAbsl(hex));
  std::ranges::copy(bytes, digest.begin());
  return digest;
}

absl::Status ReadCount(const Fields& fields, std::string_view key, uint64_t max, uint64_t& out) {
  auto count = static_cast<int64_t>(out);
  KVIST_RETURN_IF_ERROR(fields.Read(key, 0, static_cast<int64_t>(max), count));
  out = static_cast<uint64_t>(count);
  return absl::OkStatus();
}

template <class Small>
absl::Status ReadCount(const Fields& fields, std::string_view key, Small& out) {
  uint64_t count = out;
  KVIST_RETURN_IF_ERROR(ReadCount(fields, key, std::numeric_limits<Small>::max(), count));
  out = static_cast<Small>(count);
  return absl::OkStatus();
}

absl::Status ReadBudget(const Fields& tenant, Budget& budget) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, tenant.ReadObject("budget"));
  if (given == nullptr) return absl::OkStatus();
  const Fields fields(*given, tenant.NameOf("budget"));
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kBudgetFields));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "tokens_per_day", INT64_MAX, budget.tokens_per_day));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "tokens_per_month", INT64_MAX, budget.tokens_per_month));
  KVIST_RETURN_IF_ERROR(fields.Read("money_per_day", 0, kMoneyMax, budget.money_per_day));
  return fields.Read("money_per_month", 0, kMoneyMax, budget.money_per_month);
}

absl::Status ReadMargin(const Fields& tenant, std::optional<MarginGate>& out) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, tenant.ReadObject("margin"));
  if (given == nullptr) return absl::OkStatus();
  const Fields fields(*given, tenant.NameOf("margin"));
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kMarginFields));
  MarginGate gate;
  if (fields.Find("floor") == nullptr) return fields.Bad("floor", "is missing");
  KVIST_RETURN_IF_ERROR(fields.Read("floor", -1e6, 1, gate.floor));
  std::string below = "refuse";
  KVIST_RETURN_IF_ERROR(fields.Read("below", below));
  if (below == "cap") {
    gate.below = BelowMargin::kCap;
  } else if (below == "demote") {
    gate.below = BelowMargin::kDemote;
  } else if (below != "refuse") {
    return fields.Bad("below", "must be 'refuse', 'cap' or 'demote'");
  }
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "max_tokens", gate.max_tokens));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "requests_min", INT64_MAX, gate.requests_min));
  if (gate.max_tokens == 0) return fields.Bad("max_tokens", "must be at least 1");
  out = gate;
  return absl::OkStatus();
}

absl::Status ReadKeys(const Fields& fields, std::vector<KeyDigest>& keys) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, fields.ReadArray("keys"));
  if (given == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < given->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const KeyDigest digest, DigestOfEntry((*given)[i], Cat(fields.NameOf("keys"), "[", i, "]")));
    keys.push_back(digest);
  }
  return absl::OkStatus();
}

absl::Status ReadMoney(const Fields& fields, const std::string& path, TenantConfig& tenant) {
  KVIST_RETURN_IF_ERROR(ReadBudget(fields, tenant.budget));
  KVIST_RETURN_IF_ERROR(ReadMargin(fields, tenant.margin));
  std::string prices;
  KVIST_RETURN_IF_ERROR(fields.Read("prices", prices));
  if (!prices.empty()) {
    KVIST_ASSIGN_OR_RETURN(tenant.prices, ReadPriceFile((std::filesystem::path(path).parent_path() / prices).string()));
  }
  if (tenant.prices) return absl::OkStatus();
  if (tenant.margin) return fields.Bad("margin", "needs 'prices'");
  const Budget& budget = tenant.budget;
  if (budget.money_per_day > 0 || budget.money_per_month > 0) return fields.Bad("budget", "in money needs 'prices'");
  return absl::OkStatus();
}

absl::StatusOr<TenantConfig> ReadTenant(const Fields& fields, const std::string& path) {
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kTenantFields));
  TenantConfig tenant;
  if (fields.Find("name") == nullptr) return fields.Bad("name", "is missing");
  KVIST_RETURN_IF_ERROR(fields.Read("name", tenant.name));
  constexpr std::string_view kNameRule = "must be 1 to 63 letters, digits, '.', '-' or '_'";
  if (!IsTenantName(tenant.name)) return fields.Bad("name", kNameRule);
  KVIST_RETURN_IF_ERROR(ReadKeys(fields, tenant.keys));
  KVIST_RETURN_IF_ERROR(fields.Read("admin", tenant.admin));
  KVIST_RETURN_IF_ERROR(fields.Read("requests_per_minute", 0, kRateMax, tenant.requests_per_minute));
  KVIST_RETURN_IF_ERROR(fields.Read("tokens_per_minute", 0, kRateMax, tenant.tokens_per_minute));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "concurrent", tenant.concurrent));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "kv_blocks", tenant.kv_blocks));
  KVIST_RETURN_IF_ERROR(fields.Read("kv_share", 0, 1, tenant.kv_share));
  KVIST_RETURN_IF_ERROR(ReadCount(fields, "priority", tenant.priority));
  KVIST_RETURN_IF_ERROR(fields.Read("shared", tenant.shared));
  if (!tenant.shared.empty() && !IsTenantName(tenant.shared)) return fields.Bad("shared", kNameRule);
  KVIST_RETURN_IF_ERROR(ReadMoney(fields, path, tenant));
  return tenant;
}

absl::StatusOr<std::vector<TenantConfig>> ReadAll(const json::object& file, const std::string& path) {
  const Fields root(file, "");
  KVIST_RETURN_IF_ERROR(root.RefuseUnknown(kRootFields));
  KVIST_ASSIGN_OR_RETURN(const json::array* given, root.ReadArray("tenant"));
  if (given == nullptr || given->empty()) return absl::InvalidArgumentError("there is no [[tenant]]");
  std::vector<TenantConfig> tenants;
  std::set<std::string> names;
  std::set<KeyDigest> keys;
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string place = Cat("tenant[", i, "]");
    if (!(*given)[i].is_object()) return BadParam(place, Cat("'", place, "' must be a table"));
    const Fields fields((*given)[i].get_object(), place);
    KVIST_ASSIGN_OR_RETURN(TenantConfig tenant, ReadTenant(fields, path));
    if (!names.insert(tenant.name).second) return fields.Bad("name", Cat("'", tenant.name, "' is there twice"));
    for (size_t k = 0; k < tenant.keys.size(); ++k) {
      if (!keys.insert(tenant.keys[k]).second) return fields.Bad("keys", Cat("[", k, "] is there twice"));
    }
    tenants.push_back(std::move(tenant));
  }
  return tenants;
}

}  // namespace

uint32_t TenantConfig::KvBlocksMax(uint32_t blocks_count) const {
  uint32_t blocks = kv_blocks;
  if (kv_share > 0) {
    const auto share = static_cast<uint32_t>(std::max(std::floor(kv_share * blocks_count), 1.0));
    blocks = blocks == 0 ? share : std::min(blocks, share);
  }
  return blocks;
}

bool IsTenantName(std::string_view name) {
  const auto allowed = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= 63 && std::ranges::all_of(name, allowed);
}

absl::StatusOr<std::vector<TenantConfig>> ReadTenants(const json::object& file, const std::string& path) {
  absl::StatusOr<std::vector<TenantConfig>> tenants = ReadAll(file, path);
  if (!tenants.ok()) return Annotate(tenants.status(), path);
  return tenants;
}

absl::StatusOr<std::vector<TenantConfig>> ReadTenantsFile(const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const json::object file, ReadTomlFile(path));
  return ReadTenants(file, path);
}

}  // namespace kvist::serve
