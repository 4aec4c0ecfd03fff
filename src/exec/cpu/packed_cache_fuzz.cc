/// @file
/// Feeds arbitrary bytes to the parser of packed caches, as they are and with the right checksum. Seeds:
/// tests/fuzz/packed_cache/.

#include <cstdint>

#include "base/check.h"
#include "exec/cpu/packed_cache_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string image(reinterpret_cast<const char*>(data), size);
  for (int sealed = 0; sealed < 2; ++sealed) {
    const absl::Status status = kvist::exec::CheckPackedImage(image);
    // Nothing but these: a malformed file is never an internal error.
    KVIST_CHECK(status.ok() || absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
                absl::IsDataLoss(status));
    kvist::exec::SealPackedImage(image);
  }
  return 0;
}
