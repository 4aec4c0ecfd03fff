#pragma once

/// @file
/// The parts that JSON is made of, as expressions. Numbers have bounded lengths, so that no output can go on for ever
/// inside one. Pure; any thread. Format: RFC 8259.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "grammar/expression.h"

namespace kvist::grammar {

/// Between members and elements, and after names, where the layout is fixed: as Python's json.dumps writes.
inline constexpr std::string_view kComma = ", ";
inline constexpr std::string_view kColon = ": ";

/// One character of the ranges as it stands inside a string: itself, or its short escape where it needs one.
Node JsonChar(const std::vector<CharRange>& ranges);

/// An integer from `least` to `most`; absent = as many as 16 digits tell.
/// REQUIRES: bounds within +-10^17, least <= most.
Node JsonInteger(std::optional<int64_t> least, std::optional<int64_t> most);

/// @param negative  may have a sign
Node JsonNumber(bool negative);

/// A value as it is written with the fixed layout.
std::string JsonLiteral(const boost::json::value& value);

/// Rules that several places of a grammar share, each made when it is first asked for.
class JsonRules {
 public:
  explicit JsonRules(RuleSet& rules) : rules_(rules) {}

  /// One character of a string, or any escape of one.
  Node AnyChar();
  Node AnyString() { return String(0, kUnbounded); }
  /// Of so many characters.
  Node String(uint32_t min, uint32_t max);
  /// Any value, with white space as people lay JSON out: at most one line break, and at most 32 spaces or tabs.
  Node AnyValue();
  Node AnyObject();

 private:
  Node Space();
  void MakeValues();

  RuleSet& rules_;
  std::optional<RuleId> char_, space_, value_, object_;
};

/// Text in which `mark` does not occur, then `mark`. REQUIRES: `mark` is valid UTF-8, not empty.
Node TextThrough(RuleSet& rules, std::string_view mark);

}  // namespace kvist::grammar
