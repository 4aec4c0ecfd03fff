#include "modelfile/jinja/unicode.h"

#include <algorithm>
#include <bitset>
#include <iterator>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"

namespace kvist::jinja {
namespace {

bool IsContinuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

/// A character class that PCRE2's Unicode tables know. Built once; reading is safe from any thread.
class CharClass {
 public:
  explicit CharClass(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_ANCHORED | PCRE2_DOTALL, &error, &offset, nullptr);
    KVIST_CHECK(code_ != nullptr);
    for (char32_t c = 0x80; c < kTableEnd; ++c) table_[c] = Matches(c);
  }
  CharClass(const CharClass&) = delete;
  CharClass& operator=(const CharClass&) = delete;

  bool Contains(char32_t c) const { return c < kTableEnd ? table_[c] : Matches(c); }

 private:
  /// Planes 0 and 1: nearly all text. Asking PCRE2 costs an allocation.
  static constexpr char32_t kTableEnd = 0x20000;

  bool Matches(char32_t c) const {
    if (c >= 0xD800 && c < 0xE000) return false;
    std::string text;
    AppendUtf8(c, text);
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    const int rc = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                               match, nullptr);
    pcre2_match_data_free(match);
    return rc >= 0;
  }

  pcre2_code* code_;  ///< Lives as long as the process.
  std::bitset<kTableEnd> table_;
};

/// Digits that are not decimals: Numeric_Type=Digit of Unicode 14's DerivedNumericType.txt.
struct DigitRange {
  char32_t first, last;
};
constexpr DigitRange kOtherDigits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

bool AsciiAlpha(char32_t c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool AsciiDigit(char32_t c) {
  return c >= '0' && c <= '9';
}

bool HasOnly(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (other(c.value)) return false;
    found = found || wanted(c.value);
    pos += c.bytes;
  }
  return found;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return {lead, 1};
  const uint8_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || pos + length > text.size()) return {0xFFFD, 1};
  char32_t value = lead & (0xFF >> (length + 1));
  for (uint8_t i = 1; i < length; ++i) {
    if (!IsContinuation(byte(pos + i))) return {0xFFFD, 1};
    value = value << 6 | (byte(pos + i) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {0xFFFD, 1};
  return {value, length};
}

size_t PreviousStart(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    const size_t start = end - length;
    if (IsContinuation(static_cast<unsigned char>(text[start]))) continue;
    return DecodeAt(text, start).bytes == length ? start : end - 1;
  }
  return end - 1;
}

void AppendUtf8(char32_t value, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (c.value == 0xFFFD && c.bytes == 1) return pos;
    pos += c.bytes;
  }
  return std::string_view::npos;
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) pos += DecodeAt(text, pos).bytes;
  return count;
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; index > 0 && pos < text.size(); --index) pos += DecodeAt(text, pos).bytes;
  return pos;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsAlpha(char32_t c) {
  if (c < 0x80) return AsciiAlpha(c);
  static const CharClass letters("\\p{L}");
  return letters.Contains(c);
}

bool IsDecimal(char32_t c) {
  if (c < 0x80) return AsciiDigit(c);
  static const CharClass decimals("\\p{Nd}");
  return decimals.Contains(c);
}

bool IsDigit(char32_t c) {
  if (c < 0x80) return AsciiDigit(c);
  return IsDecimal(c) || std::any_of(std::begin(kOtherDigits), std::end(kOtherDigits),
                                     [c](const DigitRange& range) { return c >= range.first && c <= range.last; });
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return AsciiDigit(c);
  static const CharClass numbers("\\p{N}");
  return numbers.Contains(c);
}

bool IsWord(char32_t c) {
  if (c < 0x80) return AsciiAlpha(c) || AsciiDigit(c) || c == '_';
  static const CharClass words("[\\p{L}\\p{N}]");
  return words.Contains(c);
}

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  static const CharClass hidden("[\\p{C}\\p{Z}]");
  return !(c >= 0xD800 && c < 0xE000) && !hidden.Contains(c);
}

bool IsNameStart(char32_t c) {
  if (c < 0x80) return AsciiAlpha(c) || c == '_';
  static const CharClass starts("\\p{XID_Start}");
  return starts.Contains(c);
}

bool IsNameRest(char32_t c) {
  if (c < 0x80) return AsciiAlpha(c) || AsciiDigit(c) || c == '_';
  static const CharClass rest("\\p{XID_Continue}");
  return rest.Contains(c);
}

bool IsUpper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  static const CharClass uppers("\\p{Uppercase}");
  return uppers.Contains(c);
}

bool IsLower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  static const CharClass lowers("\\p{Lowercase}");
  return lowers.Contains(c);
}

bool IsTitleCase(char32_t c) {
  if (c < 0x80) return false;
  static const CharClass titles("\\p{Lt}");
  return titles.Contains(c);
}

bool HasOnlyLower(std::string_view text) {
  return HasOnly(text, IsLower, IsUpper);
}
bool HasOnlyUpper(std::string_view text) {
  return HasOnly(text, IsUpper, IsLower);
}

std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const auto strips = [chars](std::string_view all, size_t pos, CodePoint c) {
    if (chars == nullptr) return IsSpace(c.value);
    return chars->find(all.substr(pos, c.bytes)) != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const CodePoint c = DecodeAt(text, begin);
    if (!strips(text, begin, c)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    const size_t start = PreviousStart(text, end);
    if (!strips(text, start, DecodeAt(text, start))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace kvist::jinja
