/// @file
/// Parses and renders arbitrary bytes as a template with its variables. Seeds and dictionary:
/// tests/fuzz/chat_template/ and tests/fuzz/chat_template.dict.

#include <cstdint>

#include "modelfile/chat_template_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvist::RunTemplateFuzzInput(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
