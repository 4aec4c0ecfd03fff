/// @file
/// Feeds arbitrary bytes to the reader of event streams: pieces of any size give the same events. Seeds:
/// tests/fuzz/event_stream/.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "serve/event_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto read = [text](size_t piece) {
    kvist::serve::EventStreamReader reader;
    std::string events;
    for (size_t at = 0; at < text.size(); at += piece) {
      const absl::Status status =
          reader.Feed(text.substr(at, piece), [&](std::string_view name, std::string_view data) {
            events.append(name).append("\x01").append(data).append("\x02");
          });
      KVIST_CHECK(status.ok());
    }
    return events;
  };
  KVIST_CHECK(read(text.size()) == read(1 + bytes[0] % 16));
  return 0;
}
