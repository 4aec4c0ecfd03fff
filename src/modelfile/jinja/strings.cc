#include "modelfile/jinja/strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// A list under construction, each part paid for when it is added: a long text may have very many.
class Parts {
 public:
  explicit Parts(Runtime& runtime) : runtime_(runtime) {}

  absl::Status Add(std::string_view part) {
    KVIST_RETURN_IF_ERROR(runtime_.Spend(Runtime::kStepsPerItem));
    list_.push_back(part);
    return absl::OkStatus();
  }
  bool Reached(Int count) const { return count >= 0 && static_cast<Int>(list_.size()) >= count; }
  std::vector<std::string_view> Take(bool reversed) {
    if (reversed) std::reverse(list_.begin(), list_.end());
    return std::move(list_);
  }

 private:
  Runtime& runtime_;
  std::vector<std::string_view> list_;
};

absl::Status SplitSpace(std::string_view text, Int splits_max, Parts& parts) {
  for (;;) {
    text = Strip(text, nullptr, true, false);
    if (text.empty()) return absl::OkStatus();
    if (parts.Reached(splits_max)) return parts.Add(text);
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = DecodeAt(text, end);
      if (IsSpace(c.value)) break;
      end += c.bytes;
    }
    KVIST_RETURN_IF_ERROR(parts.Add(text.substr(0, end)));
    text.remove_prefix(end);
  }
}

absl::Status SplitSpaceFromRight(std::string_view text, Int splits_max, Parts& parts) {
  for (;;) {
    text = Strip(text, nullptr, false, true);
    if (text.empty()) return absl::OkStatus();
    if (parts.Reached(splits_max)) return parts.Add(text);
    size_t begin = text.size();
    while (begin > 0) {
      const size_t start = PreviousStart(text, begin);
      if (IsSpace(DecodeAt(text, start).value)) break;
      begin = start;
    }
    KVIST_RETURN_IF_ERROR(parts.Add(text.substr(begin)));
    text = text.substr(0, begin);
  }
}

absl::Status SplitBy(std::string_view text, std::string_view separator, Int splits_max, Parts& parts) {
  while (!parts.Reached(splits_max)) {
    const size_t found = text.find(separator);
    if (found == kNone) break;
    KVIST_RETURN_IF_ERROR(parts.Add(text.substr(0, found)));
    text.remove_prefix(found + separator.size());
  }
  return parts.Add(text);
}

absl::Status SplitByFromRight(std::string_view text, std::string_view separator, Int splits_max, Parts& parts) {
  while (!parts.Reached(splits_max)) {
    const size_t found = text.rfind(separator);
    if (found == kNone) break;
    KVIST_RETURN_IF_ERROR(parts.Add(text.substr(found + separator.size())));
    text = text.substr(0, found);
  }
  return parts.Add(text);
}

/// Underscores may stand between digits only; removes them. nullopt when one is misplaced.
std::optional<std::string> DropUnderscores(std::string_view text, bool letters_are_digits) {
  const auto is_digit = [letters_are_digits](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return letters_are_digits ? absl::ascii_isalnum(byte) : absl::ascii_isdigit(byte);
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return std::nullopt;
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> Replace(Runtime& runtime, std::string_view text, std::string_view old,
                                    std::string_view replacement, Int count) {
  std::string out;
  const auto put = [&](std::string_view part) -> absl::Status {
    KVIST_RETURN_IF_ERROR(runtime.SpendBytes(part.size(), out.size() + part.size()));
    out += part;
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.size() / Runtime::kBytesPerStep));
  size_t pos = 0;
  if (old.empty()) {
    for (; count != 0 && pos < text.size(); --count) {
      KVIST_RETURN_IF_ERROR(put(replacement));
      const size_t bytes = DecodeAt(text, pos).bytes;
      KVIST_RETURN_IF_ERROR(put(text.substr(pos, bytes)));
      pos += bytes;
    }
    if (count != 0) KVIST_RETURN_IF_ERROR(put(replacement));
  } else {
    for (; count != 0; --count) {
      const size_t found = text.find(old, pos);
      if (found == kNone) break;
      KVIST_RETURN_IF_ERROR(put(text.substr(pos, found - pos)));
      KVIST_RETURN_IF_ERROR(put(replacement));
      pos = found + old.size();
    }
  }
  KVIST_RETURN_IF_ERROR(put(text.substr(pos)));
  return out;
}

absl::StatusOr<std::vector<std::string_view>> Split(Runtime& runtime, std::string_view text,
                                                    const std::string_view* separator, Int splits_max,
                                                    bool from_right) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.size() / Runtime::kBytesPerStep));
  Parts parts(runtime);
  absl::Status status;
  if (separator == nullptr) {
    status = from_right ? SplitSpaceFromRight(text, splits_max, parts) : SplitSpace(text, splits_max, parts);
  } else {
    status = from_right ? SplitByFromRight(text, *separator, splits_max, parts)
                        : SplitBy(text, *separator, splits_max, parts);
  }
  KVIST_RETURN_IF_ERROR(status);
  return parts.Take(from_right);
}

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != kNone; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

absl::StatusOr<std::vector<std::string_view>> SplitLines(Runtime& runtime, std::string_view text, bool keep_ends) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.size() / Runtime::kBytesPerStep));
  Parts lines(runtime);
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (!IsLineBreak(c.value)) {
      pos += c.bytes;
      continue;
    }
    size_t next = pos + c.bytes;
    if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
    KVIST_RETURN_IF_ERROR(lines.Add(text.substr(begin, (keep_ends ? next : pos) - begin)));
    begin = pos = next;
  }
  if (begin < text.size()) KVIST_RETURN_IF_ERROR(lines.Add(text.substr(begin)));
  return lines.Take(false);
}

absl::StatusOr<std::string> Pad(Runtime& runtime, std::string_view text, Int width, std::string_view fill,
                                Alignment alignment) {
  const Int length = static_cast<Int>(CountCodePoints(text));
  const Int missing = width > length ? width - length : 0;
  const Int most = static_cast<Int>(runtime.limits().bytes_max) + 1;  // Enough to be refused.
  const size_t total = text.size() + static_cast<size_t>(std::min(missing, most)) * fill.size();
  KVIST_RETURN_IF_ERROR(runtime.SpendBytes(total, total));
  Int left = 0;
  if (alignment == Alignment::kRight) left = missing;
  if (alignment == Alignment::kCenter) left = missing / 2 + (missing & width & 1);  // As CPython does.
  std::string out;
  out.reserve(total);
  for (Int i = 0; i < left; ++i) out += fill;
  out += text;
  for (Int i = left; i < missing; ++i) out += fill;
  return out;
}

absl::StatusOr<Value> ListOfText(Runtime& runtime, const std::vector<std::string_view>& parts, bool safe) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    KVIST_ASSIGN_OR_RETURN(Value text, runtime.NewText(std::string(part), safe));
    items.push_back(std::move(text));
  }
  return runtime.NewList(std::move(items));
}

absl::StatusOr<std::optional<Int>> ParseInt(std::string_view text, Int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = Strip(text, nullptr, true, true);
  const bool negative = text.starts_with("-");
  if (negative || text.starts_with("+")) text.remove_prefix(1);
  const char mark = text.size() > 1 && text[0] == '0' ? absl::ascii_tolower(text[1]) : '\0';
  const int marked = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
  const bool has_prefix = marked != 0 && (base == marked || base == 0);
  if (has_prefix) {
    text.remove_prefix(2);
    if (text.starts_with("_")) text.remove_prefix(1);
  }
  if (base == 0) {
    base = has_prefix ? marked : 10;
    const bool zeros_only = text.find_first_not_of("0_") == kNone;
    if (!has_prefix && text.size() > 1 && text[0] == '0' && !zeros_only) return std::nullopt;
  }
  const std::optional<std::string> digits = DropUnderscores(text, true);
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  Int value = 0;
  bool overflow = false;
  for (const char raw : *digits) {
    const char c = absl::ascii_tolower(raw);
    const Int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    overflow = overflow || __builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, digit, &value);
  }
  // Counted downwards, because the smallest Int has no positive twin.
  if (!negative) overflow = overflow || __builtin_sub_overflow(Int{0}, value, &value);
  if (overflow) return Fail("an integer is too large");
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, nullptr, true, true);
  const std::optional<std::string> clean = DropUnderscores(text, false);
  if (!clean.has_value()) return std::nullopt;
  std::string digits = absl::AsciiStrToLower(*clean);
  const bool negative = digits.starts_with("-");
  if (negative || digits.starts_with("+")) digits.erase(0, 1);
  double value = 0;
  if (digits == "inf" || digits == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (digits == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    // from_chars alone would read a second sign, "nan(...)" and hexadecimal letters differently.
    if (digits.empty() || !(absl::ascii_isdigit(static_cast<unsigned char>(digits[0])) || digits[0] == '.')) {
      return std::nullopt;
    }
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ptr != digits.data() + digits.size()) return std::nullopt;
    if (parsed.ec == std::errc::result_out_of_range) {
      value = digits.find("e-") != std::string::npos ? 0 : std::numeric_limits<double>::infinity();
    } else if (parsed.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace kvist::jinja
