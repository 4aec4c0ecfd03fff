#include "grammar/gbnf.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "grammar/text_cursor.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {
namespace {

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, const GbnfLimits& limits) : cursor_(text), limits_(limits) {}

  absl::StatusOr<Grammar> Parse() {
    SkipSpace();
    while (!cursor_.done()) KVIST_RETURN_IF_ERROR(ParseRule());
    for (const auto& [name, use] : rules_) {
      if (!use.defined) return cursor_.FaultAt(use.first_use, Cat("rule '", name, "' is not defined"));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return absl::InvalidArgumentError("there is no rule 'root'");
    return Grammar::Compile(set_, root->second.id);
  }

 private:
  struct NamedRule {
    RuleId id = 0;
    size_t first_use = 0;  ///< Offset.
    bool defined = false;
  };

  /// White space and comments.
  void SkipSpace() {
    while (!cursor_.done()) {
      if (cursor_.Peek() == '#') {
        while (!cursor_.done() && cursor_.Peek() != '\n') cursor_.Skip(1);
      } else if (std::string_view(" \t\r\n").find(cursor_.Peek()) != std::string_view::npos) {
        cursor_.Skip(1);
      } else {
        break;
      }
    }
  }

  std::string ReadName() {
    std::string name;
    while (!cursor_.done() && IsNameChar(cursor_.Peek())) name += cursor_.Take();
    return name;
  }

  NamedRule& Named(const std::string& name, size_t at) {
    const auto [it, inserted] = rules_.try_emplace(name);
    if (inserted) it->second = {.id = set_.Declare(name), .first_use = at};
    return it->second;
  }

  absl::Status ParseRule() {
    const size_t at = cursor_.offset();
    const std::string name = ReadName();
    if (name.empty()) return cursor_.Fault("a rule's name is expected");
    SkipSpace();
    if (!cursor_.TakeIf("::=")) return cursor_.Fault(Cat("'::=' is expected after the name '", name, "'"));
    SkipSpace();
    KVIST_ASSIGN_OR_RETURN(Node body, ParseChoice(0));
    if (!cursor_.done() && !AtRule()) return cursor_.Fault("a rule's name, or more of this rule, is expected");
    NamedRule& rule = Named(name, at);
    if (rule.defined) return cursor_.FaultAt(at, Cat("rule '", name, "' is defined twice"));
    rule.defined = true;
    set_.Define(rule.id, std::move(body));
    return absl::OkStatus();
  }

  /// A name with '::=' after it: the next rule begins.
  bool AtRule() {
    if (cursor_.done() || !IsNameChar(cursor_.Peek())) return false;
    const TextCursor here = cursor_;
    ReadName();
    SkipSpace();
    const bool found = cursor_.TakeIf("::=");
    cursor_ = here;
    return found;
  }

  absl::StatusOr<Node> ParseChoice(uint32_t nesting) {
    if (nesting > limits_.nesting_max) {
      return cursor_.Fault(Cat("parentheses are nested more than ", limits_.nesting_max, " deep"));
    }
    std::vector<Node> parts;
    do {
      SkipSpace();
      KVIST_ASSIGN_OR_RETURN(Node part, ParseSequence(nesting));
      parts.push_back(std::move(part));
    } while (cursor_.TakeIf("|"));
    return Choice(std::move(parts));
  }

  absl::StatusOr<Node> ParseSequence(uint32_t nesting) {
    std::vector<Node> parts;
    while (!cursor_.done() && cursor_.Peek() != '|' && cursor_.Peek() != ')' && !AtRule()) {
      KVIST_ASSIGN_OR_RETURN(Node part, ParseItem(nesting));
      SkipSpace();
      KVIST_RETURN_IF_ERROR(ParseRepetitions(part));
      parts.push_back(std::move(part));
    }
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Node> ParseItem(uint32_t nesting) {
    const size_t at = cursor_.offset();
    if (cursor_.TakeIf("\"")) return ParseLiteral(at);
    if (cursor_.TakeIf("[")) return ParseChars(at);
    if (cursor_.TakeIf(".")) return Chars({{0, kCharMax}});
    if (cursor_.TakeIf("(")) {
      KVIST_ASSIGN_OR_RETURN(Node inner, ParseChoice(nesting + 1));
      if (!cursor_.TakeIf(")")) return cursor_.FaultAt(at, "this '(' has no ')'");
      return inner;
    }
    if (IsNameChar(cursor_.Peek())) return Rule(Named(ReadName(), at).id);
    return cursor_.Fault("a string, a set of characters, a rule's name or '(' is expected");
  }

  absl::StatusOr<Node> ParseLiteral(size_t at) {
    std::string bytes;
    while (true) {
      if (cursor_.done() || cursor_.Peek() == '\n') return cursor_.FaultAt(at, "this string has no end");
      if (cursor_.TakeIf("\"")) return Literal(bytes);
      KVIST_ASSIGN_OR_RETURN(const uint32_t code, ReadChar());
      AppendUtf8(code, bytes);
    }
  }

  absl::StatusOr<Node> ParseChars(size_t at) {
    const bool negated = cursor_.TakeIf("^");
    std::vector<CharRange> ranges;
    while (true) {
      if (cursor_.done()) return cursor_.FaultAt(at, "this '[' has no ']'");
      if (cursor_.TakeIf("]")) break;
      const size_t range_at = cursor_.offset();
      KVIST_ASSIGN_OR_RETURN(const uint32_t first, ReadChar());
      uint32_t last = first;
      if (cursor_.Rest().starts_with('-') && !cursor_.Rest().starts_with("-]")) {
        cursor_.Skip(1);
        KVIST_ASSIGN_OR_RETURN(last, ReadChar());
      }
      if (last < first) return cursor_.FaultAt(range_at, "this range ends before it begins");
      ranges.push_back({first, last});
    }
    return negated ? NotChars(std::move(ranges)) : Chars(std::move(ranges));
  }

  /// One character, or an escape that stands for one.
  absl::StatusOr<uint32_t> ReadChar() {
    if (cursor_.done()) return cursor_.Fault("a character is expected");
    if (!cursor_.TakeIf("\\")) return cursor_.TakeCharacter();
    if (cursor_.done()) return cursor_.Fault("a character is expected after '\\'");
    const char escape = cursor_.Take();
    switch (escape) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return cursor_.TakeHex(2);
      case 'u':
        return cursor_.TakeHex(4);
      case 'U':
        return cursor_.TakeHex(8);
      default:
        if (std::string_view("\\\"[]-^").find(escape) != std::string_view::npos)
          return static_cast<unsigned char>(escape);
        return cursor_.Fault(
            "unknown escape; \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH and \\UHHHHHHHH are known");
    }
  }

  /// What may follow an item: * + ? {m} {m,} {m,n}, also several.
  absl::Status ParseRepetitions(Node& part) {
    for (uint32_t signs = 0;; ++signs, SkipSpace()) {
      if (signs > kSignsMax) return cursor_.Fault(Cat("more than ", kSignsMax, " repetitions of one item"));
      if (cursor_.TakeIf("*")) {
        part = Repeat(std::move(part), 0, kUnbounded);
      } else if (cursor_.TakeIf("+")) {
        part = Repeat(std::move(part), 1, kUnbounded);
      } else if (cursor_.TakeIf("?")) {
        part = Optional(std::move(part));
      } else if (!cursor_.done() && cursor_.Peek() == '{') {
        const size_t at = cursor_.offset();
        cursor_.Skip(1);
        const std::optional<std::pair<uint32_t, uint32_t>> counts = cursor_.TakeCounts(limits_.repetitions_max);
        if (!counts) {
          return cursor_.FaultAt(at,
                                 Cat("{m}, {m,} or {m,n} with m <= n <= ", limits_.repetitions_max, " is expected"));
        }
        part = Repeat(std::move(part), counts->first, counts->second);
      } else {
        return absl::OkStatus();
      }
    }
  }

  static constexpr uint32_t kSignsMax = 4;

  TextCursor cursor_;
  const GbnfLimits limits_;
  RuleSet set_;
  absl::flat_hash_map<std::string, NamedRule> rules_;
};

}  // namespace

absl::StatusOr<Grammar> ParseGbnf(std::string_view text, const GbnfLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return absl::InvalidArgumentError(Cat("the grammar has ", text.size(), " bytes, more than ", limits.bytes_max));
  }
  return Parser(text, limits).Parse();
}

}  // namespace kvist::grammar
