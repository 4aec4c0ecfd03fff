#pragma once

/// @file
/// Reads golden files (tests/golden/README.md).

#include <boost/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "exec/cpu/executor_testutil.h"

namespace kvist::exec {

/// tests/golden of the source tree.
std::filesystem::path GoldenFolder();
/// That of a model there.
std::string PathOf(const std::string& name);
boost::json::object ReadJson(const std::filesystem::path& path);
std::vector<TokenId> TokensOf(const boost::json::value& array);
/// Tokens that the models there know.
std::vector<TokenId> RandomTokens(size_t count, uint64_t seed, uint32_t vocab = 288);

}  // namespace kvist::exec
