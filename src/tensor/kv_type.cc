#include "tensor/kv_type.h"

#include <array>

#include "base/check.h"

namespace kvist {
namespace {

struct KvTypeEntry {
  KvType type;
  std::string_view name;
  uint32_t scale_bytes;   ///< Of a page.
  uint32_t number_bytes;  ///< Of one key or value element.
};

/// Every type.
constexpr std::array kKvTypes{
    KvTypeEntry{KvType::kF16, "f16", 0, 2},
    KvTypeEntry{KvType::kQ8, "q8", kKvScaleBytes, 1},
};

const KvTypeEntry& EntryOf(KvType type) {
  for (const KvTypeEntry& entry : kKvTypes) {
    if (entry.type == type) return entry;
  }
  CheckFailed(__FILE__, __LINE__, "known type of keys and values");
}

}  // namespace

std::string_view KvTypeName(KvType type) {
  return EntryOf(type).name;
}

std::optional<KvType> FindKvType(std::string_view name) {
  for (const KvTypeEntry& entry : kKvTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

size_t KvPageBytes(KvType type, uint32_t width) {
  const KvTypeEntry& entry = EntryOf(type);
  const size_t bytes = entry.scale_bytes + size_t{width} * kKvPageTokens * entry.number_bytes;
  return (bytes + 63) / 64 * 64;
}

}  // namespace kvist
