/// @file
/// Feeds arbitrary bytes to the GGUF reader and reads all that it gives out. Seeds: tests/fuzz/gguf/.

#include <cstdint>

#include "base/check.h"
#include "modelfile/gguf_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto file = kvist::ParseCase(bytes, "fuzz");
  if (file.ok()) {
    kvist::TouchEverything(**file);
  } else {
    // Nothing but these: a malformed file is never an internal error.
    KVIST_CHECK(absl::IsInvalidArgument(file.status()) || absl::IsUnimplemented(file.status()));
    KVIST_CHECK(file.status().message().substr(0, 4) == "fuzz");
  }
  return 0;
}
