#pragma once

/// @file
/// GET /kvist/usage: what was used, by tenant, day, model or request, with cost and margin where prices are known. The
/// same text is what `kvist cost --json` prints. Threads: any. API: docs/serving.md, "Usage and cost".

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "serve/prices.h"
#include "serve/usage_db.h"

namespace kvist::serve {

/// First second of a day "2026-11-30" (UTC), or a count of seconds since 1970. Errors: InvalidArgument, naming `what`.
absl::StatusOr<int64_t> ParseMoment(std::string_view text, std::string_view what);

/// "tenant,day": none twice. Errors: InvalidArgument.
absl::StatusOr<std::vector<UsageGroup>> ParseGroups(std::string_view text);

/// Of a query string: from, to (before it), group_by (tenant when not given), tenant. Errors: InvalidArgument, also for
/// other names.
absl::StatusOr<UsageQuery> ParseUsageQuery(std::string_view query_string);

/// Prices of a tenant by name; nullopt = not known.
using PricesOf = std::function<std::optional<Prices>(const std::string& tenant)>;

/// What a row costs and earns by its tenant's prices. Subscriptions are months', not rows': left out here.
struct Money {
  std::string currency;
  double cost = 0, revenue = 0;
  double margin() const { return MarginOf(revenue, cost); }
};
std::optional<Money> MoneyOf(const UsageSum& sum, const PricesOf& prices);

/// {"object": "kvist.usage", "from", "to", "group_by", "data": [...]}. Money is in rows that are one tenant's.
std::string UsageBody(const UsageQuery& query, const std::vector<UsageSum>& sums, const PricesOf& prices);

}  // namespace kvist::serve
