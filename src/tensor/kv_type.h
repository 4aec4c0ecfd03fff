#pragma once

/// @file
/// How keys and values lie in the pages of KV memory: two bytes a number, or one with a scale for each token and head.
/// kernels/kernel_table.h says what is in a page. Pure; this header stays free of inline functions, as the kernels
/// include it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvist {

inline constexpr uint32_t kKvPageTokens = 16;                             ///< Tokens of a page.
inline constexpr uint32_t kKvScaleBytes = kKvPageTokens * sizeof(float);  ///< Scales at the start of a page of kQ8.

enum class KvType : uint8_t {
  kF16,  ///< 16-bit floats.
  kQ8,   ///< Integers of 8 bits and an f32 scale per token and head.
};

/// "f16", "q8".
std::string_view KvTypeName(KvType type);

/// Nothing for another name.
std::optional<KvType> FindKvType(std::string_view name);

/// Bytes of a page of keys or values whose rows have `width` numbers; a multiple of 64.
size_t KvPageBytes(KvType type, uint32_t width);

}  // namespace kvist
