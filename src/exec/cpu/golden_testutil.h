#pragma once

/// @file
/// Reads golden files (tests/golden/README.md).

#include <boost/json.hpp>

#include <filesystem>
#include <vector>

#include "exec/cpu/executor_testutil.h"

namespace kvist::exec {

/// tests/golden of the source tree.
std::filesystem::path GoldenFolder();
boost::json::object ReadJson(const std::filesystem::path& path);
std::vector<TokenId> TokensOf(const boost::json::value& array);

}  // namespace kvist::exec
