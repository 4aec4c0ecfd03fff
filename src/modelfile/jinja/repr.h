#pragma once

/// @file
/// Values as text: Python's str(), repr() and json.dumps(), and JSON as values. Threads: that of the runtime.

#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

/// str(value): what `{{ value }}` prints; undefined prints nothing.
absl::Status AppendText(Runtime& runtime, const Value& value, std::string& out);
/// The value itself when it is text already (safe or not), else its str().
absl::StatusOr<Value> ToText(Runtime& runtime, const Value& value);

/// repr(value).
absl::Status AppendRepr(Runtime& runtime, const Value& value, std::string& out);

std::string IntText(Int value);
/// repr() of a float: shortest digits that read back as the same double.
std::string FloatText(double value);
/// `value` with exactly `digits` after the point, as "%.*f" and "%.*e" give; correctly rounded.
std::string FixedText(double value, int digits);
std::string ScientificText(double value, int digits);

/// Options of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;                 ///< Of one level, when multiline.
  std::string item_separator = ", ";  ///< "," when multiline, unless given.
  std::string key_separator = ": ";
};

/// json.dumps(value). Errors: a value that JSON lacks.
absl::StatusOr<std::string> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

/// JSON as Python's json.loads gives it.
absl::StatusOr<Value> FromJson(Runtime& runtime, const boost::json::value& json);

}  // namespace kvist::jinja
