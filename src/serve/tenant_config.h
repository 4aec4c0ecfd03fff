#pragma once

/// @file
/// Who the tenants are and what each may take: the file that --tenants names, as plain data. Pure but for reading price
/// files; any thread. Non-goals: counting what they take (tenant_limits.h). Format: docs/serving.md, "Tenants".

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "serve/access.h"
#include "serve/prices.h"

namespace kvist::serve {

/// What may be used up in a calendar day or month (UTC); 0 = no bound.
struct Budget {
  uint64_t tokens_per_day = 0, tokens_per_month = 0;
  double money_per_day = 0, money_per_month = 0;  ///< By the tenant's price file, subscription left out.
};

/// What becomes of requests while the month's margin is below the floor.
enum class BelowMargin : uint8_t { kRefuse, kCap, kDemote };

struct MarginGate {
  double floor = 0;  ///< Share of revenue.
  BelowMargin below = BelowMargin::kRefuse;
  uint32_t max_tokens = 64;    ///< With kCap: most output tokens.
  uint64_t requests_min = 20;  ///< So many of a month are let through before its margin means anything.
};

struct TenantConfig {
  std::string name;
  std::vector<KeyDigest> keys;
  bool admin = false;              ///< Sees what all tenants have and use.
  double requests_per_minute = 0;  ///< 0 = no bound; likewise below.
  double tokens_per_minute = 0;
  uint32_t concurrent = 0;  ///< Requests at once.
  uint32_t kv_blocks = 0;   ///< Blocks that its running requests may hold.
  double kv_share = 0;      ///< The same as a share of all blocks.
  uint8_t priority = 0;     ///< The most urgent that its requests may be.
  std::string shared;       ///< Group that shares cached text; "" = nobody else sees the tenant's.
  Budget budget;
  std::optional<Prices> prices;
  std::optional<MarginGate> margin;

  /// Most blocks by both bounds; 0 = no bound.
  uint32_t KvBlocksMax(uint32_t blocks_count) const;
};

/// @param file  the tree of a tenants file
/// @param path  of the file: price files are named relative to it, and errors begin with it
/// Errors: InvalidArgument for unknown fields, wrong types, names or keys that come twice; those of price files.
absl::StatusOr<std::vector<TenantConfig>> ReadTenants(const boost::json::object& file, const std::string& path);
absl::StatusOr<std::vector<TenantConfig>> ReadTenantsFile(const std::string& path);

/// A name of a tenant or a group: 1 to 63 of letters, digits, '.', '-' and '_'.
bool IsTenantName(std::string_view name);

}  // namespace kvist::serve
