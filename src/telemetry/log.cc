#include "telemetry/log.h"

#include <chrono>
#include <ctime>
#include <memory>
#include <span>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <boost/json.hpp>

namespace kvist::telemetry {
namespace {

/// Of the line that this thread is writing: spdlog formats a line on the thread that logs it.
thread_local std::span<const LogField> line_fields;

/// Quoted where a reader could not see where it ends.
std::string TextOf(const LogField& field) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    const bool plain = !text->empty() && text->find_first_of(" \t\r\n\"=") == std::string_view::npos;
    return plain ? std::string(*text) : boost::json::serialize(boost::json::string(*text));
  }
  if (const auto* number = std::get_if<double>(&field.value)) return fmt::format("{:.6g}", *number);
  if (const auto* whole = std::get_if<int64_t>(&field.value)) return std::to_string(*whole);
  return std::get<bool>(field.value) ? "true" : "false";
}

boost::json::value JsonOf(const LogField& field) {
  return std::visit([](const auto& value) { return boost::json::value(value); }, field.value);
}

class TextFields final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    for (const LogField& field : line_fields)
      fmt::format_to(std::back_inserter(out), " {}={}", field.name, TextOf(field));
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<TextFields>(); }
};

class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(line.time.time_since_epoch()).count();
    const std::tm utc = fmt::gmtime(static_cast<std::time_t>(since / 1000));
    const auto level = spdlog::level::to_string_view(line.level);
    boost::json::object object = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", utc, since % 1000)},
                                  {"level", boost::json::string_view(level.data(), level.size())},
                                  {"message", boost::json::string_view(line.payload.data(), line.payload.size())}};
    for (const LogField& field : line_fields) object[field.name] = JsonOf(field);
    const std::string text = boost::json::serialize(object);
    out.append(text.data(), text.data() + text.size());
    out.push_back('\n');
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonLines>(); }
};

}  // namespace

std::unique_ptr<spdlog::formatter> NewLogFormatter(LogFormat format) {
  if (format == LogFormat::kJson) return std::make_unique<JsonLines>();
  auto text = std::make_unique<spdlog::pattern_formatter>();
  text->add_flag<TextFields>('*').set_pattern("%H:%M:%S %^%l%$ %v%*");
  return text;
}

void SetUpLog(LogFormat format, spdlog::level::level_enum level) {
  auto log = std::make_shared<spdlog::logger>("kvist", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  log->set_formatter(NewLogFormatter(format));
  log->set_level(level);
  spdlog::set_default_logger(std::move(log));
}

void Log(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields) {
  line_fields = {fields.begin(), fields.size()};
  spdlog::log(level, "{}", message);
  line_fields = {};
}

}  // namespace kvist::telemetry
