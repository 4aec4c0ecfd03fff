#pragma once

/// @file
/// The program's log: lines for people, or one JSON object per line for machines. Lines of spdlog::info and its like
/// come out in the same form; Log adds named values, such as the request a line is about. Threads: any, after SetUpLog.
/// Never the text of a prompt or an answer.

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

#include <spdlog/spdlog.h>

namespace kvist::telemetry {

enum class LogFormat : uint8_t { kText, kJson };

/// A named value of a line. Names are lower_case; "time", "level" and "message" are taken.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double, bool> value;
};

/// From now on the default log writes to standard error in this form. Call before other threads log.
/// Text: "06:10:21 info message name=value". JSON: {"time":"2026-11-30T06:10:21.042Z","level":"info","message":...,
/// name: value}, in UTC.
void SetUpLog(LogFormat format, spdlog::level::level_enum level);

/// One line with named values; nothing when the level is off.
void Log(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields);

/// As SetUpLog makes them; for tests and other sinks.
std::unique_ptr<spdlog::formatter> NewLogFormatter(LogFormat format);

}  // namespace kvist::telemetry
