#pragma once

/// @file
/// Python's two ways to format: `template % values` and `template.format(...)`. Threads: that of the runtime.

#include <string_view>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

/// `format % values`. REQUIRES format.IsText(). `values` is a tuple, a dict (for %(name)s) or a single value.
absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values);

/// format.format(*positional, **named). REQUIRES format.IsText(). Attributes in field names obey the sandbox.
absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Value& format, const CallArgs& args);

}  // namespace kvist::jinja
