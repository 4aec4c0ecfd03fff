#include "kv/tier/store_format_testutil.h"

#include <xxhash.h>

#include <cstring>

#include "base/check.h"
#include "kv/tier/store_format.h"

namespace kvist::kv {

void SealPage(std::span<std::byte> page) {
  KVIST_CHECK(page.size() == kStorePage);
  const uint64_t checksum = XXH3_64bits(page.data(), kStorePage - sizeof(checksum));
  std::memcpy(page.data() + kStorePage - sizeof(checksum), &checksum, sizeof(checksum));
}

}  // namespace kvist::kv
