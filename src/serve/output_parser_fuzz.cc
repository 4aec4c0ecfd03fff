/// @file
/// Feeds arbitrary bytes to the parsers of outputs. Seeds: tests/fuzz/output_parser/.

#include <cstddef>
#include <cstdint>

#include "serve/output_parser_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvist::serve::CheckOutput({reinterpret_cast<const char*>(data), size});
  return 0;
}
