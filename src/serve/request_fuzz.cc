/// @file
/// Feeds arbitrary bytes to the parsers of request bodies. Seeds: tests/fuzz/request/.

#include <cstddef>
#include <cstdint>

#include "serve/request_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvist::serve::CheckRequest({reinterpret_cast<const char*>(data), size});
  return 0;
}
