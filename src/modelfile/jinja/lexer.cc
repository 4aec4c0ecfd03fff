#include "modelfile/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

bool IsAsciiDigit(char c) {
  return c >= '0' && c <= '9';
}

/// "\r\n" and "\r" become "\n"; one newline at the end is dropped (keep_trailing_newline is off).
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {
    line_starts_.push_back(0);
    for (size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '\n') line_starts_.push_back(i + 1);
    }
  }

  absl::StatusOr<std::vector<Token>> Run() {
    if (const size_t bad = FindInvalidUtf8(text_); bad != std::string_view::npos) {
      return SyntaxError(PositionOf(bad), "the template is not valid UTF-8");
    }
    while (pos_ < text_.size()) KVIST_RETURN_IF_ERROR(LexData());
    Push(TokenKind::kEnd, text_.size());
    return std::move(tokens_);
  }

 private:
  static constexpr size_t kNone = std::string_view::npos;

  Position PositionOf(size_t offset) const {
    const auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
    const size_t line = static_cast<size_t>(next - line_starts_.begin());
    return {static_cast<uint32_t>(line), static_cast<uint32_t>(offset - line_starts_[line - 1] + 1)};
  }

  Token& Push(TokenKind kind, size_t offset, std::string text = "") {
    tokens_.push_back(Token{kind, PositionOf(offset), std::move(text)});
    return tokens_.back();
  }

  bool At(size_t pos, std::string_view expected) const { return text_.substr(pos).starts_with(expected); }

  size_t SkipSpace(size_t pos) const {
    while (pos < text_.size()) {
      const CodePoint c = DecodeAt(text_, pos);
      if (!IsSpace(c.value)) break;
      pos += c.bytes;
    }
    return pos;
  }

  /// Moves to `end` and remembers whether the consumed part ended a line.
  void ConsumeTo(size_t end) {
    line_starting_ = end > 0 && end > pos_ && text_[end - 1] == '\n';
    pos_ = end;
  }

  /// Emits the text up to a tag that starts at `end`, with the white space that its sign and lstrip_blocks take away.
  void PushData(size_t end, char sign, bool is_output) {
    std::string_view data = text_.substr(pos_, end - pos_);
    if (sign == '-') {
      data = Strip(data, nullptr, false, true);
    } else if (sign != '+' && !is_output) {
      const size_t newline = data.rfind('\n');
      const size_t line = newline == kNone ? 0 : newline + 1;
      const bool at_line_start = line > 0 || line_starting_;
      if (at_line_start && Strip(data.substr(line), nullptr, true, false).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) Push(TokenKind::kData, pos_, std::string(data));
  }

  char SignAt(size_t pos) const {
    return pos < text_.size() && (text_[pos] == '-' || text_[pos] == '+') ? text_[pos] : '\0';
  }

  /// Text up to the next tag, and the tag.
  absl::Status LexData() {
    size_t begin = pos_;
    for (;; ++begin) {
      begin = text_.find('{', begin);
      if (begin == kNone || begin + 1 >= text_.size()) break;
      const char next = text_[begin + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    if (begin == kNone || begin + 1 >= text_.size()) {
      Push(TokenKind::kData, pos_, std::string(text_.substr(pos_)));
      pos_ = text_.size();
      return absl::OkStatus();
    }
    const char kind = text_[begin + 1];
    const char sign = SignAt(begin + 2);
    PushData(begin, sign, kind == '{');
    if (kind == '%') {
      if (const std::optional<size_t> raw_end = MatchRawBegin(begin)) return LexRaw(begin, *raw_end);
    }
    const size_t inside = begin + 2 + (sign == '\0' ? 0 : 1);
    if (kind == '#') return LexComment(begin, inside);
    Push(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, begin);
    ConsumeTo(inside);
    return LexTag(kind == '{');
  }

  absl::Status LexComment(size_t begin, size_t inside) {
    const size_t end = text_.find("#}", inside);
    if (end == kNone) return SyntaxError(PositionOf(begin), "the comment has no end");
    const char sign = end > inside ? text_[end - 1] : '\0';
    ConsumeTo(AfterEnd(end + 2, sign));
    return absl::OkStatus();
  }

  /// Where text goes on after a tag end at `pos`: `-` eats white space, `+` nothing, else trim_blocks one newline.
  size_t AfterEnd(size_t pos, char sign) const {
    if (sign == '-') return SkipSpace(pos);
    return sign != '+' && At(pos, "\n") ? pos + 1 : pos;
  }

  /// End of `{% raw %}` at `begin`, where the raw text starts. No newline is trimmed after it.
  std::optional<size_t> MatchRawBegin(size_t begin) const {
    size_t pos = begin + 2;
    if (SignAt(pos) != '\0') ++pos;
    pos = SkipSpace(pos);
    if (!At(pos, "raw")) return std::nullopt;
    pos = SkipSpace(pos + 3);
    if (At(pos, "-%}")) return SkipSpace(pos + 3);
    if (At(pos, "%}")) return pos + 2;
    return std::nullopt;
  }

  absl::Status LexRaw(size_t begin, size_t inside) {
    ConsumeTo(inside);
    for (size_t tag = text_.find("{%", inside); tag != kNone; tag = text_.find("{%", tag + 1)) {
      size_t pos = tag + 2;
      const char sign = SignAt(pos);
      if (sign != '\0') ++pos;
      pos = SkipSpace(pos);
      if (!At(pos, "endraw")) continue;
      pos = SkipSpace(pos + 6);
      const char end_sign = SignAt(pos);
      if (end_sign != '\0') ++pos;
      if (!At(pos, "%}")) continue;
      PushData(tag, sign, false);
      ConsumeTo(AfterEnd(pos + 2, end_sign));
      return absl::OkStatus();
    }
    return SyntaxError(PositionOf(begin), "the raw block has no {% endraw %}");
  }

  /// Tokens of one {{ }} or {% %}, its end included.
  absl::Status LexTag(bool is_output) {
    std::string open;  // Brackets not yet closed.
    while (pos_ < text_.size()) {
      if (open.empty() && LexTagEnd(is_output)) return absl::OkStatus();
      const CodePoint c = DecodeAt(text_, pos_);
      if (IsSpace(c.value)) {
        ConsumeTo(SkipSpace(pos_));
      } else if (LexFloat() || LexInteger()) {
        if (overflow_) return SyntaxError(tokens_.back().at, "the number is too large");
      } else if (IsWord(c.value)) {
        KVIST_RETURN_IF_ERROR(LexName());
      } else if (c.value == '\'' || c.value == '"') {
        KVIST_RETURN_IF_ERROR(LexString(text_[pos_]));
      } else {
        KVIST_RETURN_IF_ERROR(LexOperator(open));
      }
    }
    return absl::OkStatus();
  }

  bool LexTagEnd(bool is_output) {
    char sign = SignAt(pos_);
    if (is_output && sign == '+') sign = '\0';
    const size_t end = pos_ + (sign == '\0' ? 0 : 1);
    if (!At(end, is_output ? "}}" : "%}")) return false;
    Push(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, pos_);
    ConsumeTo(is_output && sign == '\0' ? end + 2 : AfterEnd(end + 2, sign));
    return true;
  }

  /// Digits with single underscores between them, from `pos`; returns the end, `pos` when there are none.
  size_t SkipDigits(size_t pos) const {
    while (pos < text_.size() && IsAsciiDigit(text_[pos])) {
      ++pos;
      if (pos + 1 < text_.size() && text_[pos] == '_' && IsAsciiDigit(text_[pos + 1])) ++pos;
    }
    return pos;
  }

  bool LexFloat() {
    const size_t whole = SkipDigits(pos_);
    if (whole == pos_ || (pos_ > 0 && text_[pos_ - 1] == '.')) return false;
    size_t end = whole;
    bool is_float = false;
    if (At(end, ".") && SkipDigits(end + 1) > end + 1) {
      end = SkipDigits(end + 1);
      is_float = true;
    }
    if (At(end, "e") || At(end, "E")) {
      const size_t exponent = end + 1 + (SignAt(end + 1) == '\0' ? 0 : 1);
      if (SkipDigits(exponent) > exponent) {
        end = SkipDigits(exponent);
        is_float = true;
      }
    }
    if (!is_float) return false;
    const std::string digits = absl::StrReplaceAll(ToAbsl(text_.substr(pos_, end - pos_)), {{"_", ""}});
    double value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ec == std::errc::result_out_of_range) value = FloatOutOfRange(digits);
    Push(TokenKind::kFloat, pos_).number = value;
    ConsumeTo(end);
    return true;
  }

  /// Python reads 1e999 as infinity and 1e-999 as 0.
  static double FloatOutOfRange(const std::string& digits) {
    const size_t e = digits.find_first_of("eE");
    const bool tiny = e != std::string::npos && e + 1 < digits.size() && digits[e + 1] == '-';
    return tiny ? 0 : HUGE_VAL;
  }

  bool LexInteger() {
    if (!IsAsciiDigit(text_[pos_])) return false;
    int base = 10;
    size_t end = pos_;
    if (text_[pos_] == '0') {
      const char mark = pos_ + 1 < text_.size() ? absl::ascii_tolower(text_[pos_ + 1]) : '\0';
      const int marked = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 10;
      if (marked != 10 && SkipDigitsOf(pos_ + 2, marked) > pos_ + 2) {
        base = marked;
        end = SkipDigitsOf(pos_ + 2, marked);
      } else {
        while (At(end, "0") || (At(end, "_0") && end > pos_)) end += At(end, "0") ? 1 : 2;
      }
    } else {
      end = SkipDigits(pos_);
    }
    Int value = 0;
    for (size_t i = base == 10 ? pos_ : pos_ + 2; i < end; ++i) {
      if (text_[i] == '_') continue;
      if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, DigitValue(i), &value)) {
        overflow_ = true;
        value = 0;
        break;
      }
    }
    Push(TokenKind::kInteger, pos_).integer = value;
    ConsumeTo(end);
    return true;
  }

  Int DigitValue(size_t pos) const {
    const char c = absl::ascii_tolower(text_[pos]);
    return IsAsciiDigit(c) ? c - '0' : c - 'a' + 10;
  }

  /// Like SkipDigits, in another base; an underscore may also come first.
  size_t SkipDigitsOf(size_t pos, int base) const {
    const auto is_digit = [this, base](size_t at) {
      return at < text_.size() && absl::ascii_isxdigit(static_cast<unsigned char>(text_[at])) && DigitValue(at) < base;
    };
    for (;;) {
      if (is_digit(pos)) {
        ++pos;
      } else if (At(pos, "_") && is_digit(pos + 1)) {
        pos += 2;
      } else {
        return pos;
      }
    }
  }

  absl::Status LexName() {
    size_t end = pos_;
    bool valid = true;
    while (end < text_.size()) {
      const CodePoint c = DecodeAt(text_, end);
      if (!IsWord(c.value)) break;
      valid = valid && (end == pos_ ? IsNameStart(c.value) : IsNameRest(c.value));
      end += c.bytes;
    }
    if (!valid) return SyntaxError(PositionOf(pos_), "a character cannot be part of a name");
    Push(TokenKind::kName, pos_, std::string(text_.substr(pos_, end - pos_)));
    ConsumeTo(end);
    return absl::OkStatus();
  }

  absl::Status LexOperator(std::string& open) {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const std::string_view rest = text_.substr(pos_);
    size_t length = 1;
    for (const std::string_view pair : kPairs) {
      if (rest.starts_with(pair)) length = 2;
    }
    const char c = rest[0];
    if (length == 1 && !absl::StrContains("+-/*%~[](){}><=.:|,;", c)) {
      const size_t bytes = DecodeAt(rest, 0).bytes;
      return SyntaxError(PositionOf(pos_), "unexpected character '", rest.substr(0, bytes), "'");
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != opening) {
        return SyntaxError(PositionOf(pos_), "'", rest.substr(0, 1), "' closes nothing that is open");
      }
      open.pop_back();
    }
    Push(TokenKind::kOperator, pos_, std::string(rest.substr(0, length)));
    ConsumeTo(pos_ + length);
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return SyntaxError(PositionOf(pos_), "the string has no end");
    std::string value;
    for (size_t pos = pos_ + 1; pos < end;) {
      if (text_[pos] != '\\') {
        value.push_back(text_[pos++]);
      } else {
        KVIST_ASSIGN_OR_RETURN(pos, Unescape(pos, end, value));
      }
    }
    Push(TokenKind::kString, pos_, std::move(value));
    ConsumeTo(end + 1);
    return absl::OkStatus();
  }

  /// The escape sequence at `pos`, which is a backslash and not the last byte of the literal. Returns its end.
  absl::StatusOr<size_t> Unescape(size_t pos, size_t end, std::string& out) const {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[pos + 1];
    if (c == '\n') return pos + 2;  // A line that goes on.
    if (const size_t letter = kLetters.find(c); letter != kNone) {
      out.push_back(kValues[letter]);
      return pos + 2;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t next = pos + 1;
      for (; next < end && next < pos + 4 && text_[next] >= '0' && text_[next] <= '7'; ++next) {
        value = value * 8 + static_cast<char32_t>(text_[next] - '0');
      }
      AppendUtf8(value, out);
      return next;
    }
    if (c == 'N') return SyntaxError(PositionOf(pos), "\\N{...} is not supported");
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {  // Not an escape: both characters stay.
      out.push_back('\\');
      return pos + 1;
    }
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const size_t at = pos + 2 + i;
      if (at >= end || !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at]))) {
        return SyntaxError(PositionOf(pos), "\\", std::string(1, c), " needs ", digits, " hexadecimal digits");
      }
      value = value * 16 + static_cast<char32_t>(DigitValue(at));
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return SyntaxError(PositionOf(pos), "the escape is no Unicode character");
    }
    AppendUtf8(value, out);
    return pos + 2 + digits;
  }

  const std::string source_;
  const std::string_view text_;  ///< All of source_.
  std::vector<size_t> line_starts_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  bool line_starting_ = true;  ///< The part before pos_ ended with a newline, or there is none.
  bool overflow_ = false;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace kvist::jinja
