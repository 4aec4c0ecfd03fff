#include "grammar/json_nodes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {

namespace json = boost::json;

namespace {

constexpr uint32_t kDigitsMax = 16;

struct ShortEscape {
  uint32_t code;
  std::string_view written;
};
constexpr ShortEscape kShortEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                         {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};

Node Digits(uint32_t min, uint32_t max) {
  return Repeat(Chars({{'0', '9'}}), min, max);
}

Node DigitBetween(char first, char last) {
  return Chars({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}});
}

/// As many digits as `bound` has, as a number at least (or at most) `bound`.
Node DigitsBeyond(std::string_view bound, bool at_least) {
  if (bound.empty()) return Literal("");
  const auto rest = static_cast<uint32_t>(bound.size() - 1);
  std::vector<Node> parts = {Sequence({Literal(bound.substr(0, 1)), DigitsBeyond(bound.substr(1), at_least)})};
  const char digit = bound[0];
  if (at_least && digit < '9') {
    parts.push_back(Sequence({DigitBetween(static_cast<char>(digit + 1), '9'), Digits(rest, rest)}));
  } else if (!at_least && digit > '0') {
    parts.push_back(Sequence({DigitBetween('0', static_cast<char>(digit - 1)), Digits(rest, rest)}));
  }
  return Choice(std::move(parts));
}

/// Numbers of equally many digits.
Node DigitsBetween(std::string_view least, std::string_view most) {
  if (least.empty()) return Literal("");
  if (least[0] == most[0]) {
    return Sequence({Literal(least.substr(0, 1)), DigitsBetween(least.substr(1), most.substr(1))});
  }
  const auto rest = static_cast<uint32_t>(least.size() - 1);
  std::vector<Node> parts = {Sequence({Literal(least.substr(0, 1)), DigitsBeyond(least.substr(1), true)}),
                             Sequence({Literal(most.substr(0, 1)), DigitsBeyond(most.substr(1), false)})};
  if (most[0] - least[0] > 1) {
    parts.push_back(
        Sequence({DigitBetween(static_cast<char>(least[0] + 1), static_cast<char>(most[0] - 1)), Digits(rest, rest)}));
  }
  return Choice(std::move(parts));
}

/// REQUIRES: 0 <= least <= most.
Node NaturalBetween(int64_t least, int64_t most) {
  std::vector<Node> parts;
  if (least == 0) parts.push_back(Literal("0"));
  int64_t first = 1;  // Of the numbers with as many digits.
  for (uint32_t digits = 1; digits <= 18; ++digits, first *= 10) {
    const int64_t low = std::max(least, first), high = std::min(most, first * 10 - 1);
    if (low <= high) parts.push_back(DigitsBetween(std::to_string(low), std::to_string(high)));
  }
  return Choice(std::move(parts));
}

}  // namespace

Node JsonChar(const std::vector<CharRange>& ranges) {
  std::vector<CharRange> away = Complement(ranges);  // Written otherwise, or not meant.
  away.insert(away.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  std::vector<Node> parts = {NotChars(std::move(away))};
  for (const ShortEscape& escape : kShortEscapes) {
    const bool meant = std::ranges::any_of(
        ranges, [&](const CharRange& r) { return r.first <= escape.code && escape.code <= r.last; });
    if (meant) parts.push_back(Literal(escape.written));
  }
  return Choice(std::move(parts));
}

Node JsonInteger(std::optional<int64_t> least, std::optional<int64_t> most) {
  if (!least && !most) {
    return Sequence({Optional(Literal("-")),
                     Choice({Literal("0"), Sequence({DigitBetween('1', '9'), Digits(0, kDigitsMax - 1)})})});
  }
  constexpr int64_t kFar = 999'999'999'999'999'999;
  const int64_t low = least.value_or(-kFar), high = most.value_or(kFar);
  KVIST_CHECK(low <= high && low >= -kFar && high <= kFar);
  std::vector<Node> parts;
  if (high >= 0) parts.push_back(NaturalBetween(std::max<int64_t>(low, 0), high));
  if (low < 0) parts.push_back(Sequence({Literal("-"), NaturalBetween(std::max<int64_t>(-high, 1), -low)}));
  return Choice(std::move(parts));
}

Node JsonNumber(bool negative) {
  const Node whole = Choice({Literal("0"), Sequence({DigitBetween('1', '9'), Digits(0, kDigitsMax - 1)})});
  const Node fraction = Sequence({Literal("."), Digits(1, kDigitsMax)});
  const Node exponent = Sequence({Chars({{'e', 'e'}, {'E', 'E'}}), Optional(Chars({{'+', '+'}, {'-', '-'}})),
                                  DigitBetween('1', '9'), Digits(0, 1)});
  std::vector<Node> parts = {whole, Optional(fraction), Optional(exponent)};
  if (negative) parts.insert(parts.begin(), Optional(Literal("-")));
  return Sequence(std::move(parts));
}

std::string JsonLiteral(const json::value& value) {
  if (const json::array* array = value.if_array()) {
    std::string text = "[";
    for (const json::value& element : *array) {
      if (text.size() > 1) text += kComma;
      text += JsonLiteral(element);
    }
    return text + "]";
  }
  if (const json::object* object = value.if_object()) {
    std::string text = "{";
    for (const auto& member : *object) {
      if (text.size() > 1) text += kComma;
      text += json::serialize(json::string(member.key()));
      text += kColon;
      text += JsonLiteral(member.value());
    }
    return text + "}";
  }
  return json::serialize(value);
}

Node JsonRules::AnyChar() {
  if (!char_) {
    const Node hex = Chars({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
    // A surrogate alone is no character, and a pair need not be written so.
    const Node code =
        Choice({Sequence({Chars({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), Repeat(hex, 3, 3)}),
                Sequence({Chars({{'D', 'D'}, {'d', 'd'}}), Chars({{'0', '7'}}), Repeat(hex, 2, 2)})});
    char_ = rules_.Add("char", Choice({JsonChar({{0, kCharMax}}), Literal("\\/"), Sequence({Literal("\\u"), code})}));
  }
  return Rule(*char_);
}

Node JsonRules::String(uint32_t min, uint32_t max) {
  return Sequence({Literal("\""), Repeat(AnyChar(), min, max), Literal("\"")});
}

Node JsonRules::Space() {
  if (!space_) {
    const Node line = Sequence({Literal("\n"), Choice({Repeat(Literal(" "), 0, 32), Repeat(Literal("\t"), 1, 8)})});
    space_ = rules_.Add("space", Choice({Literal(""), Literal(" "), line}));
  }
  return Rule(*space_);
}

void JsonRules::MakeValues() {
  if (value_) return;
  value_ = rules_.Declare("value");
  const Node space = Space(), value = Rule(*value_);
  const Node comma = Sequence({space, Literal(","), space});
  const Node member = Sequence({AnyString(), space, Literal(":"), space, value});
  const auto list = [&](std::string_view open, const Node& one, std::string_view close) {
    const Node more = Repeat(Sequence({comma, one}), 0, kUnbounded);
    return Sequence({Literal(open), space, Optional(Sequence({one, more, space})), Literal(close)});
  };
  object_ = rules_.Add("object", list("{", member, "}"));
  const RuleId array = rules_.Add("array", list("[", value, "]"));
  rules_.Define(*value_, Choice({Rule(*object_), Rule(array), AnyString(), JsonNumber(true), Literal("true"),
                                 Literal("false"), Literal("null")}));
}

Node JsonRules::AnyValue() {
  MakeValues();
  return Rule(*value_);
}

Node JsonRules::AnyObject() {
  MakeValues();
  return Rule(*object_);
}

Node TextThrough(RuleSet& rules, std::string_view mark) {
  std::vector<uint32_t> chars;
  for (std::string_view rest = mark; !rest.empty();) {
    const Utf8Char c = ReadUtf8(rest);
    KVIST_CHECK(c.kind == Utf8Char::Kind::kValid);
    chars.push_back(c.code);
    rest.remove_prefix(c.bytes);
  }
  // One rule for each beginning of the mark that the text may end with (Knuth, Morris and Pratt, 1977).
  std::vector<RuleId> states;
  for (size_t i = 0; i < chars.size(); ++i) states.push_back(rules.Declare(Cat("text before ", mark)));
  for (size_t at = 0; at < chars.size(); ++at) {
    std::vector<CharRange> others;
    std::vector<Node> parts;
    for (const uint32_t next : chars) {
      if (std::ranges::find(others, next, &CharRange::first) != others.end()) continue;
      others.push_back({next, next});
      std::vector<uint32_t> read(chars.begin(), chars.begin() + static_cast<ptrdiff_t>(at));
      read.push_back(next);
      size_t length = read.size();  // Of the longest beginning of the mark that the text now ends with.
      while (!std::equal(read.end() - static_cast<ptrdiff_t>(length), read.end(), chars.begin())) --length;
      const Node one = Chars({{next, next}});
      parts.push_back(length == chars.size() ? one : Sequence({one, Rule(states[length])}));
    }
    parts.push_back(Sequence({NotChars(others), Rule(states[0])}));
    rules.Define(states[at], Choice(std::move(parts)));
  }
  return Rule(states[0]);
}

}  // namespace kvist::grammar
