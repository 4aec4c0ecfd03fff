#include "grammar/schema_object.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "base/check.h"
#include "base/status.h"
#include "grammar/json_nodes.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {
namespace {

std::string Quoted(std::string_view name) {
  return boost::json::serialize(boost::json::string(name));
}

/// Characters that a name may have without an escape.
Node PlainChars(std::vector<CharRange> but) {
  but.insert(but.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return NotChars(std::move(but));
}

std::vector<uint32_t> CodesOf(std::string_view text) {
  std::vector<uint32_t> codes;
  while (!text.empty()) {
    const Utf8Char c = ReadUtf8(text);
    codes.push_back(c.code);
    text.remove_prefix(c.bytes);
  }
  return codes;
}

/// A name, without escapes, that is none of `taken` (increasing, from their place `at`), then the quotation mark.
/// Without escapes there is one way to write a name, so that what is written otherwise is another name.
Node OtherName(const std::vector<std::vector<uint32_t>>& taken, size_t at) {
  const Node end = Literal("\"");
  if (taken.empty()) return Sequence({Repeat(PlainChars({}), 0, kUnbounded), end});
  std::vector<Node> parts;
  std::vector<CharRange> begun;
  const bool is_taken = taken.front().size() == at;
  for (size_t i = is_taken ? 1 : 0; i < taken.size();) {
    const uint32_t next = taken[i][at];
    std::vector<std::vector<uint32_t>> same;
    for (; i < taken.size() && taken[i][at] == next; ++i) same.push_back(taken[i]);
    begun.push_back({next, next});
    if (next >= 0x20 && next != '"' && next != '\\') {
      parts.push_back(Sequence({Chars({{next, next}}), OtherName(same, at + 1)}));
    }
  }
  parts.push_back(Sequence({PlainChars(begun), Repeat(PlainChars({}), 0, kUnbounded), end}));
  if (!is_taken) parts.push_back(end);
  return Choice(std::move(parts));
}

}  // namespace

Node ObjectNode(RuleSet& rules, const ObjectShape& shape, std::string_view path) {
  const Node comma = Literal(kComma);
  // What may follow once something stands, and while nothing does; from the last member to the first.
  Node rest = Literal("}"), first = rest;
  if (shape.others != nullptr) {
    std::vector<std::vector<uint32_t>> taken;
    for (const ObjectShape::Member& member : shape.members) taken.push_back(CodesOf(member.name));
    std::ranges::sort(taken);
    taken.erase(std::ranges::unique(taken).begin(), taken.end());
    const RuleId value = rules.Add(Cat(path, " other"), shape.others);
    const RuleId other =
        rules.Add(Cat(path, " others"), Sequence({Literal("\""), OtherName(taken, 0), Literal(kColon), Rule(value)}));
    const Node more = Repeat(Sequence({comma, Rule(other)}), 0, kUnbounded);
    rest = Sequence({more, Literal("}")});
    first = Sequence({Optional(Sequence({Rule(other), more})), Literal("}")});
  }
  for (size_t i = shape.members.size(); i-- > 0;) {
    const ObjectShape::Member& member = shape.members[i];
    const Node pair = Sequence({Literal(Quoted(member.name)), Literal(kColon), member.value});
    const RuleId pair_rule = rules.Add(Cat(path, "/properties/", member.name), pair);
    const Node after = Rule(rules.Add(Cat(path, " after ", member.name), rest));
    const Node without = first;
    first = Sequence({Rule(pair_rule), after});
    rest = Sequence({comma, Rule(pair_rule), after});
    if (member.required) continue;
    first = Choice({first, Rule(rules.Add(Cat(path, " without ", member.name), without))});
    rest = Choice({rest, after});
  }
  return Rule(rules.Add(std::string(path), Sequence({Literal("{"), first})));
}

Node ArrayNode(RuleSet& rules, const ArrayShape& shape, std::string_view path) {
  KVIST_CHECK(shape.min <= shape.max);
  const auto fixed = static_cast<uint32_t>(shape.first.size());
  const Node comma = Literal(kComma), close = Literal("]");
  Node tail = close;  // After the last of the first elements.
  if (shape.others != nullptr && shape.max > fixed) {
    const Node other = Rule(rules.Add(Cat(path, "/items"), shape.others));
    const uint32_t min = shape.min - std::min(shape.min, fixed);
    const uint32_t max = shape.max == kUnbounded ? kUnbounded : shape.max - fixed;
    if (fixed > 0) {
      tail = Sequence({Repeat(Sequence({comma, other}), min, max), close});
    } else {
      const uint32_t more_min = min > 0 ? min - 1 : 0, more_max = max == kUnbounded ? kUnbounded : max - 1;
      const Node list = Sequence({other, Repeat(Sequence({comma, other}), more_min, more_max)});
      tail = Sequence({min > 0 ? list : Optional(list), close});
    }
  }
  for (uint32_t i = std::min(fixed, shape.max); i-- > 0;) {
    const Node element =
        Sequence({i > 0 ? comma : Literal(""), shape.first[i], Rule(rules.Add(Cat(path, " after ", i), tail))});
    tail = shape.min > i ? element : Choice({element, close});
  }
  return Rule(rules.Add(std::string(path), Sequence({Literal("["), tail})));
}

}  // namespace kvist::grammar
