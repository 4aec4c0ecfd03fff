#pragma once

/// @file
/// What several schemas say together ("allOf"), as one schema; references inside one document. Pure; any thread.

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist::grammar {

/// Keywords that describe and do not demand.
bool IsAnnotation(std::string_view key);

/// A number of any JSON kind; nullopt = none.
std::optional<double> NumberOf(const boost::json::value& value);

/// As JSON Schema has it: 1.0 is an integer, an integer is a number.
bool HasType(const boost::json::value& value, std::string_view type);

/// Where a reference inside the document ("#", "#/$defs/x") leads. Errors: InvalidArgument, beginning with `path`.
absl::StatusOr<const boost::json::value*> Resolve(const boost::json::value& root, std::string_view reference,
                                                  std::string_view path);

/// `schema` without its "allOf": merged with each of its parts, references among them followed. Errors:
/// InvalidArgument, beginning with `path`, where the demands cannot be said in one schema, or have too many parts;
/// Cancelled.
absl::StatusOr<boost::json::object> MergeAllOf(const boost::json::object& schema, const boost::json::value& root,
                                               std::string_view path, const std::stop_token& stop);

/// Cancelled once a stop is requested.
absl::Status Unless(const std::stop_token& stop);

}  // namespace kvist::grammar
