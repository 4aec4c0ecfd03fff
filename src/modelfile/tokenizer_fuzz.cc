/// @file
/// Hostile vocabularies and arbitrary text for the tokenizers; the work is in tokenizer_testutil.cc, which a test also
/// runs over the corpus. Seeds: tests/fuzz/tokenizer/.

#include <cstdint>

#include "modelfile/tokenizer_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvist::FuzzTokenizer(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
