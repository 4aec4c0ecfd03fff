#pragma once

/// @file
/// The bytes of one GGUF file (one part of a split model) to checked tables. Internal to the reader (gguf.cc joins
/// parts and answers look-ups) and the writer. Pure: no I/O, no state.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist {

/// Of tensors' bytes in a file that does not say "general.alignment".
inline constexpr uint64_t kGgufAlignment = 32;

struct GgufPart {
  uint32_t version = 0;
  uint64_t alignment = 0;
  GgufFile::Metadata metadata;      ///< File order, keys unique.
  std::vector<GgufTensor> tensors;  ///< File order, names unique, bytes disjoint and inside the image.

  /// nullptr when absent. Linear.
  const GgufValue* Find(std::string_view key) const;
};

/// Everything is a view into `image`. Errors say offset, key or tensor, but not the file: the caller adds it.
absl::StatusOr<GgufPart> ParseGgufPart(std::span<const std::byte> image);

/// Bytes that a tensor takes. Errors (no place): dimensions not 1..4 in number, zero, overflowing or cutting a block.
absl::StatusOr<uint64_t> GgufTensorBytes(DType dtype, std::span<const uint64_t> dims);

/// `text` in quotes for an error message: shortened, with every byte that is not plain ASCII escaped.
std::string QuoteForMessage(std::string_view text);

}  // namespace kvist
