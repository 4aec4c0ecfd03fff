#include "grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "grammar/text_cursor.h"

namespace kvist::grammar {
namespace {

constexpr size_t kPatternBytesMax = 4096;
constexpr uint32_t kNestingMax = 32;
constexpr uint32_t kRepetitionsMax = 1000;

using Ranges = std::vector<CharRange>;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}, {0xFEFF, 0xFEFF}};
const Ranges kAny = {{0, kCharMax}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/// The set that \d and the like stand for.
std::optional<Ranges> NamedSet(char name) {
  switch (name) {
    case 'd':
      return kDigits;
    case 'D':
      return Complement(kDigits);
    case 'w':
      return kWord;
    case 'W':
      return Complement(kWord);
    case 's':
      return kSpace;
    case 'S':
      return Complement(kSpace);
    default:
      return std::nullopt;
  }
}

class Parser {
 public:
  Parser(std::string_view pattern, RegexMatch match, const CharWriter& write)
      : cursor_(pattern), match_(match), write_(write) {}

  absl::StatusOr<Node> Parse() {
    KVIST_ASSIGN_OR_RETURN(Node whole, ParseChoice(0));
    if (!cursor_.done()) return cursor_.Fault("this ')' has no '('");
    return whole;
  }

 private:
  /// Anchors belong to the alternatives of the outermost level, where they can be honoured by writing nothing.
  absl::StatusOr<Node> ParseChoice(uint32_t nesting) {
    if (nesting > kNestingMax) return cursor_.Fault(Cat("groups are nested more than ", kNestingMax, " deep"));
    std::vector<Node> parts;
    do {
      const bool from_start = nesting == 0 && cursor_.TakeIf("^");
      KVIST_ASSIGN_OR_RETURN(Node part, ParseSequence(nesting));
      const bool to_end = nesting == 0 && cursor_.TakeIf("$");
      if (nesting == 0 && match_ == RegexMatch::kFind) {
        const Node anything = Repeat(write_(kAny), 0, kUnbounded);
        part = Sequence({from_start ? Literal("") : anything, std::move(part), to_end ? Literal("") : anything});
      }
      parts.push_back(std::move(part));
    } while (cursor_.TakeIf("|"));
    return Choice(std::move(parts));
  }

  absl::StatusOr<Node> ParseSequence(uint32_t nesting) {
    std::vector<Node> parts;
    while (!cursor_.done() && cursor_.Peek() != '|' && cursor_.Peek() != ')') {
      if (cursor_.Peek() == '$') {
        const std::string_view rest = cursor_.Rest().substr(1);
        if (nesting == 0 && (rest.empty() || rest[0] == '|')) break;
        return cursor_.Fault("'$' is only supported at the end of the pattern");
      }
      KVIST_ASSIGN_OR_RETURN(Node part, ParseItem(nesting));
      KVIST_RETURN_IF_ERROR(ParseRepetition(part));
      parts.push_back(std::move(part));
    }
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Node> ParseItem(uint32_t nesting) {
    const size_t at = cursor_.offset();
    if (cursor_.TakeIf("(")) {
      if (cursor_.TakeIf("?") && !cursor_.TakeIf(":")) {
        return cursor_.FaultAt(at, "only groups of the forms (...) and (?:...) are supported");
      }
      KVIST_ASSIGN_OR_RETURN(Node inner, ParseChoice(nesting + 1));
      if (!cursor_.TakeIf(")")) return cursor_.FaultAt(at, "this '(' has no ')'");
      return inner;
    }
    if (cursor_.TakeIf("[")) return ParseClass(at);
    if (cursor_.TakeIf(".")) return write_(Complement(kLineEnds));
    const char c = cursor_.Peek();
    if (c == '^') return cursor_.Fault("'^' is only supported at the start of the pattern");
    if (std::string_view("*+?{}]").find(c) != std::string_view::npos) {
      return cursor_.Fault(Cat("nothing to repeat or close before '", std::string_view(&c, 1), "'"));
    }
    KVIST_ASSIGN_OR_RETURN(const Ranges set, ParseChar());
    return write_(set);
  }

  /// A character, or an escape for one or for a set.
  absl::StatusOr<Ranges> ParseChar() {
    if (cursor_.done()) return cursor_.Fault("a character is expected");
    if (!cursor_.TakeIf("\\")) {
      KVIST_ASSIGN_OR_RETURN(const uint32_t code, cursor_.TakeCharacter());
      return Ranges{{code, code}};
    }
    if (cursor_.done()) return cursor_.Fault("a character is expected after '\\'");
    const char escape = cursor_.Take();
    if (std::optional<Ranges> named = NamedSet(escape)) return *std::move(named);
    uint32_t code = static_cast<unsigned char>(escape);
    if (escape == 'x' || escape == 'u') {
      KVIST_ASSIGN_OR_RETURN(code, cursor_.TakeHex(escape == 'x' ? 2 : 4));
    } else if (const size_t control = std::string_view("tnvfr").find(escape); control != std::string_view::npos) {
      code = static_cast<uint32_t>("\t\n\v\f\r"[control]);
    } else if (code >= 0x80 || code == '_' || (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') ||
               (code >= 'a' && code <= 'z')) {
      return cursor_.Fault(Cat("the escape \\", std::string_view(&escape, code < 0x80 ? 1 : 0), " is not supported"));
    }
    return Ranges{{code, code}};
  }

  absl::StatusOr<Node> ParseClass(size_t at) {
    const bool negated = cursor_.TakeIf("^");
    Ranges all;
    while (true) {
      if (cursor_.done()) return cursor_.FaultAt(at, "this '[' has no ']'");
      if (cursor_.TakeIf("]")) break;
      const size_t range_at = cursor_.offset();
      KVIST_ASSIGN_OR_RETURN(Ranges set, ParseChar());
      if (cursor_.Rest().starts_with('-') && !cursor_.Rest().starts_with("-]")) {
        cursor_.Skip(1);
        KVIST_ASSIGN_OR_RETURN(const Ranges last, ParseChar());
        const auto is_one = [](const Ranges& r) { return r.size() == 1 && r[0].first == r[0].last; };
        if (!is_one(set) || !is_one(last) || last[0].first < set[0].first) {
          return cursor_.FaultAt(range_at, "this range of characters is not one");
        }
        set = {{set[0].first, last[0].first}};
      }
      all.insert(all.end(), set.begin(), set.end());
    }
    return write_(negated ? Complement(std::move(all)) : Normalized(std::move(all)));
  }

  absl::Status ParseRepetition(Node& part) {
    const size_t at = cursor_.offset();
    std::pair<uint32_t, uint32_t> counts;
    if (cursor_.TakeIf("*")) {
      counts = {0, kUnbounded};
    } else if (cursor_.TakeIf("+")) {
      counts = {1, kUnbounded};
    } else if (cursor_.TakeIf("?")) {
      counts = {0, 1};
    } else if (cursor_.TakeIf("{")) {
      const std::optional<std::pair<uint32_t, uint32_t>> given = cursor_.TakeCounts(kRepetitionsMax);
      if (!given) {
        return cursor_.FaultAt(at, Cat("{m}, {m,} or {m,n} with m <= n <= ", kRepetitionsMax, " is expected"));
      }
      counts = *given;
    } else {
      return absl::OkStatus();
    }
    cursor_.TakeIf("?");  // As few as possible: which match is found does not matter here.
    part = Repeat(std::move(part), counts.first, counts.second);
    return absl::OkStatus();
  }

  TextCursor cursor_;
  const RegexMatch match_;
  const CharWriter& write_;
};

}  // namespace

absl::StatusOr<Node> ParseRegex(std::string_view pattern, RegexMatch match, const CharWriter& write) {
  if (pattern.size() > kPatternBytesMax) {
    return absl::InvalidArgumentError(Cat("the pattern has ", pattern.size(), " bytes, more than ", kPatternBytesMax));
  }
  return Parser(pattern, match, write).Parse();
}

}  // namespace kvist::grammar
