#include "modelfile/jinja/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/strings.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

std::string ToBase(unsigned __int128 value, unsigned base, bool upper) {
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.push_back(digits[static_cast<size_t>(value % base)]);
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

/// Separators between groups of digits in the whole part of `number`.
std::string Group(std::string_view number, char separator, size_t group) {
  size_t whole = 0;
  while (whole < number.size() && absl::ascii_isxdigit(static_cast<unsigned char>(number[whole])) &&
         !(group == 3 && absl::ascii_isalpha(static_cast<unsigned char>(number[whole])))) {
    ++whole;
  }
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(number[i]);
  }
  return out.append(number.substr(whole));
}

/// Sign, prefix and digits padded to the width.
absl::StatusOr<std::string> PadNumber(Runtime& runtime, std::string_view sign, std::string_view digits,
                                      const FormatSpec& spec) {
  if (spec.align != '=') {
    FormatSpec text = spec;
    text.precision = -1;
    if (text.align == '\0') text.align = '>';
    return FormatText(runtime, Cat(sign, digits), text);
  }
  if (spec.grouping != '\0' && spec.fill == "0" && spec.width > 0) {
    return Fail("zero padding together with digit groups is not supported");
  }
  const Int width = std::max<Int>(0, spec.width - static_cast<Int>(sign.size()));
  KVIST_ASSIGN_OR_RETURN(const std::string padded, Pad(runtime, digits, width, spec.fill, Alignment::kRight));
  return Cat(sign, padded);
}

std::string_view SignOf(bool negative, char style) {
  if (negative) return "-";
  return style == '+' ? "+" : style == ' ' ? " " : "";
}

/// Like %.*g, but always with a point or an exponent; for that, exponents begin one digit earlier.
std::string GeneralDigits(double value, int precision) {
  std::string scientific = ScientificText(value, precision - 1);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent >= -4 && exponent < precision - 1) {
    std::string out = absl::StrFormat("%.*g", precision, value);
    return absl::StrContains(out, '.') ? out : out + ".0";
  }
  size_t digits = e;
  if (absl::StrContains(scientific, '.')) {
    while (scientific[digits - 1] == '0') --digits;
    if (scientific[digits - 1] == '.') --digits;
  }
  return scientific.erase(digits, e - digits);
}

/// Digits of a finite, non-negative float.
std::string FloatDigits(double value, const FormatSpec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      return spec.alternate ? absl::StrFormat("%#.*e", precision, value) : absl::StrFormat("%.*e", precision, value);
    case 'E':
      return spec.alternate ? absl::StrFormat("%#.*E", precision, value) : absl::StrFormat("%.*E", precision, value);
    case 'g':
      return spec.alternate ? absl::StrFormat("%#.*g", precision, value) : absl::StrFormat("%.*g", precision, value);
    case 'G':
      return spec.alternate ? absl::StrFormat("%#.*G", precision, value) : absl::StrFormat("%.*G", precision, value);
    case '%':
      return Cat(FixedText(value * 100, precision), "%");
    case '\0':
      return spec.precision < 0 ? FloatText(value) : GeneralDigits(value, std::max(precision, 1));
    default:
      return spec.alternate ? absl::StrFormat("%#.*f", precision, value) : FixedText(value, precision);
  }
}

}  // namespace

absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view spec) {
  FormatSpec out;
  const std::string_view whole = spec;
  const auto skip = [&spec](char c) {
    const bool found = spec.starts_with(std::string_view(&c, 1));
    if (found) spec.remove_prefix(1);
    return found;
  };
  const auto number = [&spec, whole](Int& value) -> absl::Status {
    for (value = 0; !spec.empty() && absl::ascii_isdigit(static_cast<unsigned char>(spec[0])); spec.remove_prefix(1)) {
      value = value * 10 + (spec[0] - '0');
      if (value > Int{1} << 40) return Fail("a number is too large in the format '", whole, "'");
    }
    return absl::OkStatus();
  };
  bool fill_given = false;
  const size_t first = spec.empty() ? 0 : DecodeAt(spec, 0).bytes;
  if (first > 0 && spec.size() > first && IsAlign(spec[first])) {
    fill_given = true;
    out.fill = spec.substr(0, first);
    out.align = spec[first];
    spec.remove_prefix(first + 1);
  } else if (!spec.empty() && IsAlign(spec[0])) {
    out.align = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty() && (spec[0] == '+' || spec[0] == '-' || spec[0] == ' ')) {
    out.sign = spec[0];
    spec.remove_prefix(1);
  }
  out.alternate = skip('#');
  out.zero = !fill_given && skip('0');
  if (out.zero) out.fill = "0";
  KVIST_RETURN_IF_ERROR(number(out.width));
  if (!spec.empty() && (spec[0] == ',' || spec[0] == '_')) {
    out.grouping = spec[0];
    spec.remove_prefix(1);
  }
  if (skip('.')) {
    if (spec.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(spec[0]))) {
      return Fail("the precision is missing in the format '", whole, "'");
    }
    Int precision = 0;
    KVIST_RETURN_IF_ERROR(number(precision));
    out.precision = static_cast<int>(std::min<Int>(precision, 1 << 30));
  }
  if (!spec.empty()) {
    out.type = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty()) return Fail("the format '", whole, "' is not understood");
  return out;
}

absl::StatusOr<std::string> FormatText(Runtime& runtime, std::string_view text, const FormatSpec& spec) {
  if (spec.precision >= 0) text = text.substr(0, OffsetOf(text, static_cast<size_t>(spec.precision)));
  switch (spec.align) {
    case '>':
      return Pad(runtime, text, spec.width, spec.fill, Alignment::kRight);
    case '^': {
      // Unlike str.center: the odd one goes to the right.
      const Int length = static_cast<Int>(CountCodePoints(text));
      const Int left = spec.width > length ? (spec.width - length) / 2 : 0;
      KVIST_ASSIGN_OR_RETURN(const std::string half, Pad(runtime, text, length + left, spec.fill, Alignment::kRight));
      return Pad(runtime, half, spec.width, spec.fill, Alignment::kLeft);
    }
    default:
      return Pad(runtime, text, spec.width, spec.fill, Alignment::kLeft);
  }
}

absl::StatusOr<std::string> FormatInt(Runtime& runtime, Int value, const FormatSpec& spec) {
  const bool negative = value < 0;
  const auto magnitude = negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = ToBase(magnitude, base, spec.type == 'X');
  if (spec.precision > static_cast<int>(digits.size())) {  // Only %-formats have one.
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.grouping == ',' && base != 10) return Fail("',' groups decimal digits only");
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string sign(SignOf(negative, spec.sign));
  if (spec.alternate && base != 10) sign += Cat("0", std::string(1, spec.type));
  return PadNumber(runtime, sign, digits, spec);
}

absl::StatusOr<std::string> FormatFloat(Runtime& runtime, double value, const FormatSpec& spec) {
  if (spec.precision > kPrecisionMax) return Fail("a precision of more than ", kPrecisionMax, " is not supported");
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  std::string digits;
  if (std::isnan(value) || std::isinf(value)) {
    digits = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    if (spec.type == '%') digits += "%";
  } else {
    digits = FloatDigits(std::fabs(value), spec);
    if (spec.grouping != '\0') digits = Group(digits, spec.grouping, 3);
  }
  const bool negative = std::signbit(value) && !std::isnan(value);
  return PadNumber(runtime, SignOf(negative, spec.sign), digits, spec);
}

absl::StatusOr<std::string> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  const std::string_view type(&spec.type, spec.type == '\0' ? 0 : 1);
  const auto is_one_of = [type](std::string_view types) { return types.find(type) != std::string_view::npos; };
  if (value.IsText()) {
    if (!type.empty() && type != "s") return Fail("the format type '", type, "' is not known for a str");
    const bool numeric = spec.align == '=' || spec.sign != '\0' || spec.alternate || spec.grouping != '\0';
    if (numeric) return Fail("the format does not fit a str");
    return FormatText(runtime, value.str(), spec);
  }
  if (!value.IsNumber()) return Fail("a ", TypeName(value), " takes no format");
  FormatSpec number = spec;
  if (spec.zero && spec.align == '\0') number.align = '=';
  if (value.IsIntegral() && is_one_of("dxXob")) {
    if (spec.precision >= 0) return Fail("an int takes no precision");
    return FormatInt(runtime, value.integer(), number);
  }
  if (value.IsIntegral() && type == "c") {
    const Int code = value.integer();
    const bool misfit = spec.sign != '\0' || spec.alternate || spec.grouping != '\0' || spec.precision >= 0;
    if (misfit) return Fail("the format does not fit a character");
    if (code < 0 || code > 0x10FFFF) return Fail("a character code is out of range");
    std::string text;
    AppendUtf8(static_cast<char32_t>(code), text);
    return PadNumber(runtime, "", text, number);
  }
  if (is_one_of("eEfFgG%")) {
    if (spec.alternate && type.empty()) return Fail("'#' without a type is not supported for a float");
    return FormatFloat(runtime, value.number(), number);
  }
  return Fail("the format type '", type, "' is not known for a ", TypeName(value));
}

}  // namespace kvist::jinja
