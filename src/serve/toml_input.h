#pragma once

/// @file
/// TOML files of operators (tenants, prices) as the JSON tree that Fields reads with strict types, so that there is one
/// way to read configuration. Pure but for reading the file; any thread. Non-goals: flags (cli/settings.h).

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist::serve {

/// The tree of a TOML text; dates and times become strings. Errors: InvalidArgument, "PATH:LINE:COLUMN: what".
absl::StatusOr<boost::json::object> ParseToml(std::string_view text, const std::string& path);

/// The same of a file of up to 1 MiB. Errors: of reading it, too.
absl::StatusOr<boost::json::object> ReadTomlFile(const std::string& path);

}  // namespace kvist::serve
