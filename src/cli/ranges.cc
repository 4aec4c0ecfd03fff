#include "cli/ranges.h"

#include <charconv>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace kvist::cli {

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const std::string range = fmt::format("{} to {}", min, max);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end || value < min || value > max) {
          return fmt::format("{} is not a whole number from {}", text.empty() ? "\"\"" : text, range);
        }
        text = std::to_string(value);
        return "";
      },
      max<kCountMax ? range : min> 0 ? fmt::format("from {}", min) : "");
}

CLI::Validator Number(double min, double max) {
  const std::string range = fmt::format("{} to {}", min, max);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        const bool inside = value >= min && value <= max;  // Not so for NaN.
        if (error == std::errc() && stop == end && inside) return "";
        return fmt::format("{} is not a number from {}", text.empty() ? "\"\"" : text, range);
      },
      range);
}

}  // namespace kvist::cli
