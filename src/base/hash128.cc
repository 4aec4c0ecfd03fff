#include "base/hash128.h"

#include <xxhash.h>

namespace kvist {

Hash128 HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace kvist
