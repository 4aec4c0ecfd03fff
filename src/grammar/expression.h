#pragma once

/// @file
/// What a grammar is made of before it is compiled: expressions over Unicode characters, and rules that name each
/// other. Expressions are immutable and may be shared. Threads: any. Non-goals: matching (matcher.h), reading a text
/// (gbnf.h, regex.h, json_schema.h).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace kvist::grammar {

using RuleId = uint32_t;
inline constexpr uint32_t kUnbounded = UINT32_MAX;

/// Characters first..last.
struct CharRange {
  uint32_t first = 0, last = 0;
  friend bool operator==(const CharRange&, const CharRange&) = default;
};
inline constexpr uint32_t kCharMax = 0x10FFFF;

struct Expression;
using Node = std::shared_ptr<const Expression>;

struct Expression {
  enum class Kind : uint8_t { kLiteral, kChars, kSequence, kChoice, kRepeat, kRule };
  Kind kind = Kind::kLiteral;
  std::string literal;            ///< kLiteral: bytes; empty = nothing.
  std::vector<CharRange> ranges;  ///< kChars: increasing, apart. Surrogates never match.
  std::vector<Node> parts;        ///< kSequence, kChoice; one of kRepeat.
  uint32_t min = 0, max = 0;      ///< kRepeat.
  RuleId rule = 0;                ///< kRule.
};

Node Literal(std::string_view bytes);
/// One character of the ranges, in any order and overlapping. None = nothing matches.
Node Chars(std::vector<CharRange> ranges);
/// One character of none of the ranges.
Node NotChars(std::vector<CharRange> ranges);
/// No parts = the empty text.
Node Sequence(std::vector<Node> parts);
/// No parts = nothing matches.
Node Choice(std::vector<Node> parts);
/// REQUIRES: min <= max.
Node Repeat(Node what, uint32_t min, uint32_t max);
inline Node Optional(Node what) {
  return Repeat(std::move(what), 0, 1);
}
Node Rule(RuleId rule);

/// A control token, which no text can spell: a byte that UTF-8 does not know, then its id. See TokenTable.
std::string ControlBytes(TokenId token);
inline constexpr unsigned char kControlMark = 0xFF;
inline constexpr size_t kControlBytes = 4;

/// Increasing, apart, without surrogates.
std::vector<CharRange> Normalized(std::vector<CharRange> ranges);
std::vector<CharRange> Complement(std::vector<CharRange> ranges);

/// Rules under construction.
class RuleSet {
 public:
  /// @param name  for errors
  RuleId Declare(std::string name) {
    bodies_.push_back(nullptr);
    names_.push_back(std::move(name));
    return static_cast<RuleId>(bodies_.size() - 1);
  }
  void Define(RuleId rule, Node body) { bodies_.at(rule) = std::move(body); }
  RuleId Add(std::string name, Node body) {
    const RuleId rule = Declare(std::move(name));
    Define(rule, std::move(body));
    return rule;
  }
  const std::vector<Node>& bodies() const { return bodies_; }
  const std::string& name(RuleId rule) const { return names_.at(rule); }

 private:
  std::vector<Node> bodies_;  ///< nullptr = declared only.
  std::vector<std::string> names_;
};

}  // namespace kvist::grammar
