#pragma once

/// @file
/// Strong ids and time. Errors are absl::Status and absl::StatusOr throughout.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace kvist {

/// Integer that carries its meaning: a PageId never mixes with a RequestId.
template <class Tag, class Rep>
struct Strong {
  Rep value{};
  friend constexpr auto operator<=>(Strong, Strong) = default;

  /// Abseil hash support, so that ids are keys of flat_hash_map.
  template <typename H>
  friend H AbslHashValue(H h, Strong id) {
    return H::combine(std::move(h), id.value);
  }
};

using PageId = Strong<struct PageIdTag, uint64_t>;        ///< Logical address: span:28 | layer:8 | lane:8 | block:20.
using SpanId = Strong<struct SpanIdTag, uint32_t>;        ///< Process-local; a span's content id is 128-bit and global.
using FrameId = Strong<struct FrameIdTag, uint32_t>;      ///< Index of a frame of the hot tier.
using RequestId = Strong<struct RequestIdTag, uint64_t>;  ///< Unique for the process lifetime.
using TenantId = Strong<struct TenantIdTag, uint32_t>;    ///< 0 = shared.
using TokenId = Strong<struct TokenIdTag, uint32_t>;      ///< Index into the vocabulary.
using StepId = Strong<struct StepIdTag, uint64_t>;        ///< Dense; increases by 1 per step.
using TimeNs = Strong<struct TimeNsTag, int64_t>;         ///< Nanoseconds on the injected Clock.

}  // namespace kvist
