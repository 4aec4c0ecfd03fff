/// @file
/// Feeds arbitrary bytes to the parser of traces. Seeds: tests/fuzz/trace/.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "workload/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = kvist::workload::ParseTrace({reinterpret_cast<const char*>(data), size}, 3);
  if (!trace.ok()) {
    KVIST_CHECK(!trace.status().message().empty());
    return 0;
  }
  for (const kvist::workload::TraceRequest& request : trace->requests) {
    KVIST_CHECK(request.block_hashes.size() * trace->block_tokens <= request.input_tokens);
  }
  return 0;
}
