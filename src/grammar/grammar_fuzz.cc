/// @file
/// Feeds arbitrary bytes to the readers of grammars, schemas and patterns. Seeds: tests/fuzz/grammar/.

#include <cstddef>
#include <cstdint>

#include "grammar/fuzz_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvist::grammar::CheckGrammarInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
