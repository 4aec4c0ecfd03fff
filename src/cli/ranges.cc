#include "cli/ranges.h"

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/byte_size.h"

namespace kvist::cli {
namespace {

/// True when `text` is a number and nothing else.
template <class T>
bool Parse(std::string_view text, T& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

/// What --help shows beside the type.
std::string HelpOf(uint64_t min, uint64_t max) {
  if (max != kCountMax && max != UINT64_MAX) return fmt::format("[{}, {}]", min, max);
  return min == 0 ? "" : fmt::format("[{}, ...]", min);
}

std::string Refusal(std::string_view text, std::string_view wanted) {
  return fmt::format("{} is not a {}", text.empty() ? "\"\"" : text, wanted);
}

}  // namespace

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const std::string wanted = fmt::format("whole number from {} to {}", min, max);
  const auto check = [min, max, wanted](std::string& text) -> std::string {
    uint64_t value = 0;
    if (!Parse(text, value) || value < min || value > max) return Refusal(text, wanted);
    text = std::to_string(value);
    return "";
  };
  return {check, HelpOf(min, max)};
}

CLI::Validator Number(double min, double max) {
  const std::string wanted = fmt::format("number from {} to {}", min, max);
  const auto check = [min, max, wanted](std::string& text) -> std::string {
    double value = 0;
    const bool inside = Parse(text, value) && value >= min && value <= max;  // Not so for NaN.
    return inside ? "" : Refusal(text, wanted);
  };
  return {check, fmt::format("[{}, {}]", min, max)};
}

CLI::Validator ByteSize(uint64_t min, uint64_t max) {
  const auto check = [min, max](std::string& text) -> std::string {
    const absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
    if (!bytes.ok()) return std::string(bytes.status().message());
    if (*bytes >= min && *bytes <= max) return "";
    return max == INT64_MAX ? fmt::format("{} is less than {}", text, FormatByteSize(min))
                            : fmt::format("{} is not from {} to {}", text, FormatByteSize(min), FormatByteSize(max));
  };
  return {check, std::string(kByteSizeName)};
}

}  // namespace kvist::cli
