/// @file
/// Feeds arbitrary bytes to the reader of batches: each line is a request, a fault with its number, or empty; and what
/// is written about it is one line. Seeds: tests/fuzz/batch/.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "serve/batch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const kvist::serve::BatchInput input = kvist::serve::ParseBatch(text, 255);
  for (const auto& request : input.requests) {
    KVIST_CHECK(request.line > 0 && !request.custom_id.empty() && request.path.starts_with('/'));
    const std::string line = kvist::serve::BatchAnswerLine(request, 200, "", text);
    KVIST_CHECK(line.find('\n') == line.npos);
  }
  for (const auto& fault : input.faults) KVIST_CHECK(fault.line > 0 && !fault.message.empty());
  return 0;
}
