#pragma once

/// @file
/// The arithmetic of claims: figures picked from JSON rows that runs print, put together to the one figure that a
/// claim states.
///
///   100 * (1 - mean([policy=fair].e2e_ms.mean) / mean([policy=fcfs].e2e_ms.mean))
///
/// `[key=value, ...].path` is the number at `path` of each row whose fields (dotted paths, too) have these values; a
/// row without the path is passed over. Numbers, + - * /, brackets, and functions of such lists: min, max, mean, sum,
/// count, median, and mean(list, weights); abs of each. Where a single figure is wanted, a list must have one value.
/// Pure; any thread. Non-goals: running anything (claim_run.h).

#include <span>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist::lab {

/// The figure of `expression` over `rows`. Errors: InvalidArgument with the column for what cannot be read; NotFound
/// where no row has what is asked for; FailedPrecondition for a list where one figure is wanted, and for no finite
/// result.
absl::StatusOr<double> EvaluateClaim(std::string_view expression, std::span<const boost::json::object> rows);

/// Whether the expression can be read, whatever the rows will be. Errors: InvalidArgument.
absl::Status CheckClaimExpression(std::string_view expression);

}  // namespace kvist::lab
