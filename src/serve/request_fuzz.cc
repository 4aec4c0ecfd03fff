/// @file
/// Feeds arbitrary bytes to the parsers of request bodies, of all protocols. Seeds: tests/fuzz/request/ and
/// tests/fuzz/protocols/.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "serve/request_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  kvist::serve::CheckRequest(body);
  kvist::serve::CheckProtocolRequest(body);
  return 0;
}
