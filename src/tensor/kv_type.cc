#include "tensor/kv_type.h"

#include <array>

#include "base/check.h"

namespace kvist {
namespace {

struct KvTypeEntry {
  KvType type;
  std::string_view name;
  uint32_t scale_bytes;   ///< Of one scale for each token of a page.
  uint32_t number_bytes;  ///< Of one element.
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

/// @param scales  of each token.
size_t PageBytes(KvType type, uint32_t width, size_t scales) {
  const KvTypeEntry& entry = EntryOf(type);
  const size_t bytes = scales * entry.scale_bytes + size_t{width} * kKvPageTokens * entry.number_bytes;
  return (bytes + 63) / 64 * 64;
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

size_t KvKeyPageBytes(KvType type, uint32_t width) {
  return PageBytes(type, width, (size_t{width} + kKvKeyBlock - 1) / kKvKeyBlock);
}

size_t KvValuePageBytes(KvType type, uint32_t width) {
  return PageBytes(type, width, 1);
}

}  // namespace kvist
