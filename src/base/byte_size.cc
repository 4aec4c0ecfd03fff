#include "base/byte_size.h"

#include <charconv>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace kvist {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr double kKi = 1024, kKilo = 1000;
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"m", kKi* kKi},
    {"g", kKi* kKi* kKi},
    {"t", kKi* kKi* kKi* kKi},
    {"kib", kKi},
    {"mib", kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"kb", kKilo},
    {"mb", kKilo* kKilo},
    {"gb", kKilo* kKilo* kKilo},
    {"tb", kKilo* kKilo* kKilo* kKilo},
};

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return absl::InvalidArgumentError(Cat("\"", text, "\" is not an amount of memory such as 4GiB or 512MiB", why));
  };
  double number = 0;
  const char* end = text.data() + text.size();
  // Only plain decimals: from_chars would also read "inf" and "-1".
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) return bad("");
  auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return bad("");
  while (rest != end && *rest == ' ') ++rest;
  const std::string name = absl::AsciiStrToLower(absl::string_view(rest, static_cast<size_t>(end - rest)));
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    const double bytes = number * unit.bytes;
    if (!(bytes < 0x1p63)) return bad(": too large");
    return static_cast<uint64_t>(bytes);
  }
  return bad("");
}

std::string FormatByteSize(uint64_t bytes) {
  if (bytes < 1024) return Cat(bytes, " B");
  constexpr std::string_view kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, value < 99.95 ? "%.1f" : "%.0f", value);
  return Cat(text, " ", kNames[unit]);
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace kvist
