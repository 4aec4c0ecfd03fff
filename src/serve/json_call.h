#pragma once

/// @file
/// One call written as a JSON object with a name and arguments, read byte by byte; arguments are passed on as they
/// come. Threads: one.

#include <optional>
#include <string>
#include <string_view>

#include "serve/output_parser.h"

namespace kvist::serve::internal {

/// One JSON value, read byte by byte: knows where it ends. Brackets must match; what is between them is not checked.
class JsonSpan {
 public:
  enum class Step : uint8_t { kInside, kLast, kFault };
  /// The next byte belongs to the value, ends it, or cannot stand here. A number or word has no last byte of its own:
  /// see EndsBefore.
  Step Read(char byte);
  /// A number or word is over before this byte.
  bool EndsBefore(char byte) const;
  bool begun() const { return begun_; }
  bool is_object() const { return begun_ && first_ == '{'; }
  bool is_string() const { return begun_ && first_ == '"'; }

 private:
  std::string open_;  ///< Brackets.
  char first_ = 0;
  bool begun_ = false, in_string_ = false, escaped_ = false;
};

/// A string of JSON with its quotation marks, decoded; nullopt = it is none.
std::optional<std::string> DecodeJsonString(std::string_view quoted);

class JsonCall {
 public:
  enum class Step : uint8_t { kMore, kDone, kFault };
  /// Arguments are called "arguments" or "parameters".
  /// @param only_known_names  another name makes it no call
  JsonCall(const OutputSyntax& syntax, bool only_known_names) : syntax_(syntax), only_known_names_(only_known_names) {}

  Step Read(char byte, PartList& parts);

 private:
  enum class At : uint8_t { kBefore, kKeyOrEnd, kKey, kColon, kValue, kAfterValue };

  bool KeepsName();
  Step EndValue();
  Step EndCall(PartList& parts);
  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  const OutputSyntax& syntax_;
  const bool only_known_names_;
  At at_ = At::kBefore;
  std::string key_, value_, name_, arguments_;
  JsonSpan span_;
  bool streaming_ = false;
};

}  // namespace kvist::serve::internal
