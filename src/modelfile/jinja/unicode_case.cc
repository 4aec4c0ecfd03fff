#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

/// Upper-case code points first, first + stride, ..., last; each plus `delta` is its lower case.
/// Source: Unicode 14, UnicodeData.txt.
struct CaseRange {
  char32_t first, last;
  uint8_t stride;
  int32_t delta;
};

constexpr CaseRange kToLower[] = {
    {'A', 'Z', 1, 32},           {0xC0, 0xD6, 1, 32},         {0xD8, 0xDE, 1, 32},         {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1},        {0x139, 0x147, 2, 1},        {0x14A, 0x176, 2, 1},        {0x178, 0x178, 1, -121},
    {0x179, 0x17D, 2, 1},        {0x181, 0x181, 1, 210},      {0x182, 0x184, 2, 1},        {0x186, 0x186, 1, 206},
    {0x187, 0x187, 1, 1},        {0x189, 0x18A, 1, 205},      {0x18B, 0x18B, 1, 1},        {0x18E, 0x18E, 1, 79},
    {0x18F, 0x18F, 1, 202},      {0x190, 0x190, 1, 203},      {0x191, 0x191, 1, 1},        {0x193, 0x193, 1, 205},
    {0x194, 0x194, 1, 207},      {0x196, 0x196, 1, 211},      {0x197, 0x197, 1, 209},      {0x198, 0x198, 1, 1},
    {0x19C, 0x19C, 1, 211},      {0x19D, 0x19D, 1, 213},      {0x19F, 0x19F, 1, 214},      {0x1A0, 0x1A4, 2, 1},
    {0x1A6, 0x1A6, 1, 218},      {0x1A7, 0x1A7, 1, 1},        {0x1A9, 0x1A9, 1, 218},      {0x1AC, 0x1AC, 1, 1},
    {0x1AE, 0x1AE, 1, 218},      {0x1AF, 0x1AF, 1, 1},        {0x1B1, 0x1B2, 1, 217},      {0x1B3, 0x1B5, 2, 1},
    {0x1B7, 0x1B7, 1, 219},      {0x1B8, 0x1B8, 1, 1},        {0x1BC, 0x1BC, 1, 1},        {0x1C4, 0x1C4, 1, 2},
    {0x1C5, 0x1C5, 1, 1},        {0x1C7, 0x1C7, 1, 2},        {0x1C8, 0x1C8, 1, 1},        {0x1CA, 0x1CA, 1, 2},
    {0x1CB, 0x1DB, 2, 1},        {0x1DE, 0x1EE, 2, 1},        {0x1F1, 0x1F1, 1, 2},        {0x1F2, 0x1F4, 2, 1},
    {0x1F6, 0x1F6, 1, -97},      {0x1F7, 0x1F7, 1, -56},      {0x1F8, 0x21E, 2, 1},        {0x220, 0x220, 1, -130},
    {0x222, 0x232, 2, 1},        {0x23A, 0x23A, 1, 10795},    {0x23B, 0x23B, 1, 1},        {0x23D, 0x23D, 1, -163},
    {0x23E, 0x23E, 1, 10792},    {0x241, 0x241, 1, 1},        {0x243, 0x243, 1, -195},     {0x244, 0x244, 1, 69},
    {0x245, 0x245, 1, 71},       {0x246, 0x24E, 2, 1},        {0x370, 0x372, 2, 1},        {0x376, 0x376, 1, 1},
    {0x37F, 0x37F, 1, 116},      {0x386, 0x386, 1, 38},       {0x388, 0x38A, 1, 37},       {0x38C, 0x38C, 1, 64},
    {0x38E, 0x38F, 1, 63},       {0x391, 0x3A1, 1, 32},       {0x3A3, 0x3AB, 1, 32},       {0x3CF, 0x3CF, 1, 8},
    {0x3D8, 0x3EE, 2, 1},        {0x3F4, 0x3F4, 1, -60},      {0x3F7, 0x3F7, 1, 1},        {0x3F9, 0x3F9, 1, -7},
    {0x3FA, 0x3FA, 1, 1},        {0x3FD, 0x3FF, 1, -130},     {0x400, 0x40F, 1, 80},       {0x410, 0x42F, 1, 32},
    {0x460, 0x480, 2, 1},        {0x48A, 0x4BE, 2, 1},        {0x4C0, 0x4C0, 1, 15},       {0x4C1, 0x4CD, 2, 1},
    {0x4D0, 0x52E, 2, 1},        {0x531, 0x556, 1, 48},       {0x10A0, 0x10C5, 1, 7264},   {0x10C7, 0x10C7, 1, 7264},
    {0x10CD, 0x10CD, 1, 7264},   {0x13A0, 0x13EF, 1, 38864},  {0x13F0, 0x13F5, 1, 8},      {0x1C90, 0x1CBA, 1, -3008},
    {0x1CBD, 0x1CBF, 1, -3008},  {0x1E00, 0x1E94, 2, 1},      {0x1E9E, 0x1E9E, 1, -7615},  {0x1EA0, 0x1EFE, 2, 1},
    {0x1F08, 0x1F0F, 1, -8},     {0x1F18, 0x1F1D, 1, -8},     {0x1F28, 0x1F2F, 1, -8},     {0x1F38, 0x1F3F, 1, -8},
    {0x1F48, 0x1F4D, 1, -8},     {0x1F59, 0x1F5F, 2, -8},     {0x1F68, 0x1F6F, 1, -8},     {0x1F88, 0x1F8F, 1, -8},
    {0x1F98, 0x1F9F, 1, -8},     {0x1FA8, 0x1FAF, 1, -8},     {0x1FB8, 0x1FB9, 1, -8},     {0x1FBA, 0x1FBB, 1, -74},
    {0x1FBC, 0x1FBC, 1, -9},     {0x1FC8, 0x1FCB, 1, -86},    {0x1FCC, 0x1FCC, 1, -9},     {0x1FD8, 0x1FD9, 1, -8},
    {0x1FDA, 0x1FDB, 1, -100},   {0x1FE8, 0x1FE9, 1, -8},     {0x1FEA, 0x1FEB, 1, -112},   {0x1FEC, 0x1FEC, 1, -7},
    {0x1FF8, 0x1FF9, 1, -128},   {0x1FFA, 0x1FFB, 1, -126},   {0x1FFC, 0x1FFC, 1, -9},     {0x2126, 0x2126, 1, -7517},
    {0x212A, 0x212A, 1, -8383},  {0x212B, 0x212B, 1, -8262},  {0x2132, 0x2132, 1, 28},     {0x2160, 0x216F, 1, 16},
    {0x2183, 0x2183, 1, 1},      {0x24B6, 0x24CF, 1, 26},     {0x2C00, 0x2C2F, 1, 48},     {0x2C60, 0x2C60, 1, 1},
    {0x2C62, 0x2C62, 1, -10743}, {0x2C63, 0x2C63, 1, -3814},  {0x2C64, 0x2C64, 1, -10727}, {0x2C67, 0x2C6B, 2, 1},
    {0x2C6D, 0x2C6D, 1, -10780}, {0x2C6E, 0x2C6E, 1, -10749}, {0x2C6F, 0x2C6F, 1, -10783}, {0x2C70, 0x2C70, 1, -10782},
    {0x2C72, 0x2C72, 1, 1},      {0x2C75, 0x2C75, 1, 1},      {0x2C7E, 0x2C7F, 1, -10815}, {0x2C80, 0x2CE2, 2, 1},
    {0x2CEB, 0x2CED, 2, 1},      {0x2CF2, 0x2CF2, 1, 1},      {0xA640, 0xA66C, 2, 1},      {0xA680, 0xA69A, 2, 1},
    {0xA722, 0xA72E, 2, 1},      {0xA732, 0xA76E, 2, 1},      {0xA779, 0xA77B, 2, 1},      {0xA77D, 0xA77D, 1, -35332},
    {0xA77E, 0xA786, 2, 1},      {0xA78B, 0xA78B, 1, 1},      {0xA78D, 0xA78D, 1, -42280}, {0xA790, 0xA792, 2, 1},
    {0xA796, 0xA7A8, 2, 1},      {0xA7AA, 0xA7AA, 1, -42308}, {0xA7AB, 0xA7AB, 1, -42319}, {0xA7AC, 0xA7AC, 1, -42315},
    {0xA7AD, 0xA7AD, 1, -42305}, {0xA7AE, 0xA7AE, 1, -42308}, {0xA7B0, 0xA7B0, 1, -42258}, {0xA7B1, 0xA7B1, 1, -42282},
    {0xA7B2, 0xA7B2, 1, -42261}, {0xA7B3, 0xA7B3, 1, 928},    {0xA7B4, 0xA7C2, 2, 1},      {0xA7C4, 0xA7C4, 1, -48},
    {0xA7C5, 0xA7C5, 1, -42307}, {0xA7C6, 0xA7C6, 1, -35384}, {0xA7C7, 0xA7C9, 2, 1},      {0xA7D0, 0xA7D0, 1, 1},
    {0xA7D6, 0xA7D8, 2, 1},      {0xA7F5, 0xA7F5, 1, 1},      {0xFF21, 0xFF3A, 1, 32},     {0x10400, 0x10427, 1, 40},
    {0x104B0, 0x104D3, 1, 40},   {0x10570, 0x1057A, 1, 39},   {0x1057C, 0x1058A, 1, 39},   {0x1058C, 0x10592, 1, 39},
    {0x10594, 0x10595, 1, 39},   {0x10C80, 0x10CB2, 1, 64},   {0x118A0, 0x118BF, 1, 32},   {0x16E40, 0x16E5F, 1, 32},
    {0x1E900, 0x1E921, 1, 34},
};

/// Upper cases that are not the inverse of kToLower.
struct CasePair {
  char32_t lower, upper;
};

constexpr CasePair kToUpperExtra[] = {
    {0xB5, 0x39C},    {0x131, 0x49},    {0x17F, 0x53},   {0x1C5, 0x1C4},  {0x1C8, 0x1C7},  {0x1CB, 0x1CA},
    {0x1F2, 0x1F1},   {0x345, 0x399},   {0x3C2, 0x3A3},  {0x3D0, 0x392},  {0x3D1, 0x398},  {0x3D5, 0x3A6},
    {0x3D6, 0x3A0},   {0x3F0, 0x39A},   {0x3F1, 0x3A1},  {0x3F5, 0x395},  {0x1C80, 0x412}, {0x1C81, 0x414},
    {0x1C82, 0x41E},  {0x1C83, 0x421},  {0x1C84, 0x422}, {0x1C85, 0x422}, {0x1C86, 0x42A}, {0x1C87, 0x462},
    {0x1C88, 0xA64A}, {0x1E9B, 0x1E60}, {0x1FBE, 0x399},
};

/// Upper cases of more than one code point (SpecialCasing.txt), save U+1F80 to U+1FAF, which follow a rule.
struct CaseSpecial {
  char32_t lower;
  std::array<char32_t, 3> upper;  ///< Zero-padded.
};

constexpr CaseSpecial kToUpperSpecial[] = {
    {0xDF, {0x53, 0x53}},
    {0x149, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, 0x399}},
    {0x1FB3, {0x391, 0x399}},
    {0x1FB4, {0x386, 0x399}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}},
    {0x1FBC, {0x391, 0x399}},
    {0x1FC2, {0x1FCA, 0x399}},
    {0x1FC3, {0x397, 0x399}},
    {0x1FC4, {0x389, 0x399}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}},
    {0x1FCC, {0x397, 0x399}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}},
    {0x1FF3, {0x3A9, 0x399}},
    {0x1FF4, {0x38F, 0x399}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}},
    {0x1FFC, {0x3A9, 0x399}},
    {0xFB00, {0x46, 0x46}},
    {0xFB01, {0x46, 0x49}},
    {0xFB02, {0x46, 0x4C}},
    {0xFB03, {0x46, 0x46, 0x49}},
    {0xFB04, {0x46, 0x46, 0x4C}},
    {0xFB05, {0x53, 0x54}},
    {0xFB06, {0x53, 0x54}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

char32_t SimpleLower(char32_t c) {
  const auto* range = std::upper_bound(std::begin(kToLower), std::end(kToLower), c,
                                       [](char32_t value, const CaseRange& row) { return value < row.first; });
  if (range == std::begin(kToLower)) return c;
  --range;
  if (c > range->last || (c - range->first) % range->stride != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + range->delta);
}

/// Inverse of kToLower with the extra rows, sorted by lower case.
std::vector<CasePair> UpperPairs() {
  std::vector<CasePair> pairs(std::begin(kToUpperExtra), std::end(kToUpperExtra));
  for (const CaseRange& range : kToLower) {
    for (char32_t c = range.first; c <= range.last; c += range.stride) pairs.push_back({SimpleLower(c), c});
  }
  // Of two upper cases the first stays: an extra row before a range, K before the Kelvin sign.
  std::stable_sort(pairs.begin(), pairs.end(), [](CasePair a, CasePair b) { return a.lower < b.lower; });
  return pairs;
}

char32_t SimpleUpper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  static const std::vector<CasePair> pairs = UpperPairs();
  const auto found =
      std::lower_bound(pairs.begin(), pairs.end(), c, [](CasePair pair, char32_t value) { return pair.lower < value; });
  return found != pairs.end() && found->lower == c ? found->upper : c;
}

void AppendUpper(char32_t c, std::string& out) {
  if (c < 0x80) return out.push_back(static_cast<char>(SimpleUpper(c)));
  if (c >= 0x1F80 && c <= 0x1FAF) {  // Alpha, eta and omega with a subscript iota, which becomes a letter of its own.
    constexpr char32_t kBases[] = {0x1F08, 0x1F28, 0x1F68};
    AppendUtf8(kBases[(c - 0x1F80) / 16] + (c & 7), out);
    return AppendUtf8(0x399, out);
  }
  for (const CaseSpecial& special : kToUpperSpecial) {
    if (special.lower != c) continue;
    for (const char32_t part : special.upper) {
      if (part != 0) AppendUtf8(part, out);
    }
    return;
  }
  AppendUtf8(SimpleUpper(c), out);
}

void AppendTitle(char32_t c, std::string& out) {
  if (c >= 0x10D0 && c <= 0x10FF) return AppendUtf8(c, out);  // Georgian has no title case.
  if (c >= 0x1C4 && c <= 0x1CC) return AppendUtf8((c - 0x1C4) / 3 * 3 + 0x1C5, out);
  if (c >= 0x1F1 && c <= 0x1F3) return AppendUtf8(0x1F2, out);
  if (IsTitleCase(c)) return AppendUtf8(c, out);
  const char32_t simple = SimpleUpper(c);
  if (simple != c && c >= 0x1F80 && c <= 0x1FFC) return AppendUtf8(simple, out);
  std::string upper;
  AppendUpper(c, upper);
  const CodePoint first = DecodeAt(upper, 0);
  if (first.bytes == upper.size() || c == 0x149) {
    out += upper;
    return;
  }
  AppendUtf8(first.value, out);
  out += ToLower(std::string_view(upper).substr(first.bytes));
}

bool IsCased(char32_t c) {
  return IsUpper(c) || IsLower(c) || IsTitleCase(c);
}

/// Marks that do not end a word for the final-sigma rule; the common ones of Case_Ignorable.
bool IsCaseIgnorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xAF ||
         c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) || c == 0x2019;
}

/// SpecialCasing.txt: capital sigma at the end of a word.
bool IsFinalSigma(std::string_view text, size_t pos, size_t next) {
  size_t before = pos;
  bool cased_before = false;
  while (before > 0 && !cased_before) {
    before = PreviousStart(text, before);
    const char32_t c = DecodeAt(text, before).value;
    if (IsCaseIgnorable(c)) continue;
    if (!IsCased(c)) return false;
    cased_before = true;
  }
  if (!cased_before) return false;
  while (next < text.size()) {
    const CodePoint c = DecodeAt(text, next);
    if (!IsCaseIgnorable(c.value)) return !IsCased(c.value);
    next += c.bytes;
  }
  return true;
}

void AppendLower(std::string_view text, size_t pos, CodePoint c, std::string& out) {
  if (c.value == 0x130) {
    out += "i\xCC\x87";
  } else if (c.value == 0x3A3 && IsFinalSigma(text, pos, pos + c.bytes)) {
    AppendUtf8(0x3C2, out);
  } else {
    AppendUtf8(SimpleLower(c.value), out);
  }
}

/// Walks `text`, copying invalid bytes, and calls append(pos, code point) for the others.
template <class Append>
std::string Map(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (c.value == 0xFFFD) {
      out += text.substr(pos, c.bytes);
    } else {
      append(pos, c, out);
    }
    pos += c.bytes;
  }
  return out;
}

}  // namespace

std::string ToUpper(std::string_view text) {
  return Map(text, [](size_t, CodePoint c, std::string& out) { AppendUpper(c.value, out); });
}

std::string ToLower(std::string_view text) {
  return Map(text, [text](size_t pos, CodePoint c, std::string& out) { AppendLower(text, pos, c, out); });
}

std::string Capitalize(std::string_view text) {
  return Map(text, [text](size_t pos, CodePoint c, std::string& out) {
    if (pos == 0) {
      AppendTitle(c.value, out);
    } else {
      AppendLower(text, pos, c, out);
    }
  });
}

std::string ToTitle(std::string_view text) {
  bool in_word = false;
  return Map(text, [text, &in_word](size_t pos, CodePoint c, std::string& out) {
    if (in_word) {
      AppendLower(text, pos, c, out);
    } else {
      AppendTitle(c.value, out);
    }
    in_word = IsCased(c.value);
  });
}

std::string SwapCase(std::string_view text) {
  return Map(text, [text](size_t pos, CodePoint c, std::string& out) {
    if (IsUpper(c.value)) {
      AppendLower(text, pos, c, out);
    } else if (IsLower(c.value)) {
      AppendUpper(c.value, out);
    } else {
      AppendUtf8(c.value, out);
    }
  });
}

}  // namespace kvist::jinja
