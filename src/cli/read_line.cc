#include "cli/read_line.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "platform/interrupt.h"

namespace kvist::cli {

std::optional<std::string> ReadLine(std::string_view prompt) {
  while (true) {
    fmt::print(stderr, "{}", prompt);
    std::fflush(stderr);
    char* buffer = nullptr;
    size_t capacity = 0;
    errno = 0;
    const ssize_t length = ::getline(&buffer, &capacity, stdin);
    std::optional<std::string> line;
    if (length >= 0) line.emplace(buffer, static_cast<size_t>(length));
    std::free(buffer);
    if (length < 0) {
      fmt::print(stderr, "\n");
      if (!Interrupted()) return std::nullopt;
      std::clearerr(stdin);
      ClearInterrupt();
      continue;
    }
    if (line->ends_with('\n')) line->pop_back();
    return line;
  }
}

}  // namespace kvist::cli
