#pragma once

/// @file
/// How long clients wish tokens to stay cached: "retain" under "kvist" in the body and on messages. Pure functions; any
/// thread. Format: docs/serving.md, "Keeping".

#include <vector>

#include "absl/status/status.h"
#include "kv/retention.h"
#include "serve/json_input.h"

namespace kvist::serve {

/// Ranges that one request may name.
inline constexpr size_t kRetainRangesMax = 1024;

enum class RetainForm : uint8_t {
  kWhole,   ///< The name of a class, or an object.
  kRanges,  ///< Also an array of objects with "begin" and "end".
};

/// Reads "retain" of a "kvist" object; adds nothing when it is not given. Errors: InvalidArgument naming the member;
/// whether ranges lie in the text is not looked at.
absl::Status ReadRetain(const Fields& own, RetainForm form, std::vector<kv::RetainRange>& ranges);

}  // namespace kvist::serve
