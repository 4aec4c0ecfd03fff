#include "base/hash128.h"

// Compiled here, for the vectors of our floor: the library itself may be built for less.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvist {

Hash128 HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace kvist
