#include "grammar/expression.h"

#include <algorithm>
#include <utility>

namespace kvist::grammar {
namespace {

constexpr CharRange kSurrogates{0xD800, 0xDFFF};

Node Make(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}

}  // namespace

std::vector<CharRange> Normalized(std::vector<CharRange> ranges) {
  std::vector<CharRange> cut;
  for (const CharRange& range : ranges) {
    if (range.first < kSurrogates.first) cut.push_back({range.first, std::min(range.last, kSurrogates.first - 1)});
    if (range.last > kSurrogates.last)
      cut.push_back({std::max(range.first, kSurrogates.last + 1), std::min(range.last, kCharMax)});
  }
  std::erase_if(cut, [](const CharRange& r) { return r.first > r.last; });
  std::ranges::sort(cut, {}, &CharRange::first);
  std::vector<CharRange> merged;
  for (const CharRange& range : cut) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<CharRange> Complement(std::vector<CharRange> ranges) {
  std::vector<CharRange> rest;
  uint32_t next = 0;
  for (const CharRange& range : Normalized(std::move(ranges))) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCharMax) rest.push_back({next, kCharMax});
  return Normalized(std::move(rest));
}

Node Literal(std::string_view bytes) {
  Expression e{.kind = Expression::Kind::kLiteral};
  e.literal = bytes;
  return Make(std::move(e));
}

Node Chars(std::vector<CharRange> ranges) {
  Expression e{.kind = Expression::Kind::kChars};
  e.ranges = Normalized(std::move(ranges));
  return Make(std::move(e));
}

Node NotChars(std::vector<CharRange> ranges) {
  return Chars(Complement(std::move(ranges)));
}

Node Sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  Expression e{.kind = Expression::Kind::kSequence};
  e.parts = std::move(parts);
  return Make(std::move(e));
}

Node Choice(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  Expression e{.kind = Expression::Kind::kChoice};
  e.parts = std::move(parts);
  return Make(std::move(e));
}

Node Repeat(Node what, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return what;
  Expression e{.kind = Expression::Kind::kRepeat};
  e.parts.push_back(std::move(what));
  e.min = min;
  e.max = max;
  return Make(std::move(e));
}

Node Rule(RuleId rule) {
  Expression e{.kind = Expression::Kind::kRule};
  e.rule = rule;
  return Make(std::move(e));
}

std::string ControlBytes(TokenId token) {
  // Three bytes hold more ids than any vocabulary has.
  return {static_cast<char>(kControlMark), static_cast<char>(token.value >> 16), static_cast<char>(token.value >> 8),
          static_cast<char>(token.value)};
}

}  // namespace kvist::grammar
