#pragma once

/// @file
/// How keys and values lie in the pages of KV memory: two bytes a number, or one and scales.
/// kernels/kernel_table.h says what is in a page. Pure; this header stays free of inline functions, as the kernels
/// include it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvist {

inline constexpr uint32_t kKvPageTokens = 16;                             ///< Tokens of a page.
inline constexpr uint32_t kKvKeyBlock = 32;                               ///< Dimensions of a key that share a scale.
inline constexpr uint32_t kKvScaleBytes = kKvPageTokens * sizeof(float);  ///< One scale for each token of a page.

enum class KvType : uint8_t {
  kF16,  ///< 16-bit floats.
  kQ8,   ///< Integers of 8 bits; an f32 scale for every kKvKeyBlock dimensions of a key and for each value.
};

/// "f16", "q8".
std::string_view KvTypeName(KvType type);

/// Nothing for another name.
std::optional<KvType> FindKvType(std::string_view name);

/// Bytes of a page of keys or of values of one head, `width` numbers a token; multiples of 64.
size_t KvKeyPageBytes(KvType type, uint32_t width);
size_t KvValuePageBytes(KvType type, uint32_t width);

}  // namespace kvist
