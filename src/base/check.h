#pragma once

/// @file
/// Assertions for programmer errors. They stay on in production: a broken invariant stops the process
/// with the place and the condition instead of serving a wrong answer. Expected failures are absl::Status.

namespace kvist {

/// Prints "file:line: check failed: text" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* text);

}  // namespace kvist

/// Aborts unless `condition` holds.
#define KVIST_CHECK(condition)                              \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::kvist::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
