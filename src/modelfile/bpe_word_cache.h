#pragma once

/// @file
/// Remembers, during one Encode call, where the ids of a word already stand in the output: words repeat, merging them
/// again is waste. Direct-mapped and of fixed size, so that its cost is bounded whatever the text. Threads: one per
/// call.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/hash/hash.h"
#include "base/units.h"

namespace kvist {

class BpeWordCache {
 public:
  /// `text_bytes`: how much will be encoded; short texts get a small table or none.
  explicit BpeWordCache(size_t text_bytes) {
    if (text_bytes >= 256) slots_.resize(std::min<size_t>(std::bit_ceil(text_bytes / 16), kSlotsMax));
  }

  /// Appends the ids of the word [begin, begin + bytes) of `buffer` to `out`: copied when the word was seen, else by
  /// `encode()`. `buffer` may move between calls but never change what it held.
  template <class Encode>
  void Append(const char* buffer, size_t begin, size_t bytes, std::vector<TokenId>& out, const Encode& encode) {
    if (slots_.empty() || bytes > kWordBytesMax) return encode();
    const std::string_view word(buffer + begin, bytes);
    const size_t hash = absl::Hash<std::string_view>()(word);
    Slot& slot = slots_[hash & (slots_.size() - 1)];
    const auto tag = static_cast<uint32_t>(hash >> 32);
    if (slot.bytes == bytes && slot.tag == tag && std::string_view(buffer + slot.begin, bytes) == word) {
      const size_t to = out.size();
      out.resize(to + slot.ids_count);
      std::copy_n(out.begin() + slot.ids_begin, slot.ids_count, out.begin() + static_cast<ptrdiff_t>(to));
      return;
    }
    const size_t ids_begin = out.size();
    encode();
    slot = {tag, static_cast<uint32_t>(begin), static_cast<uint32_t>(ids_begin), static_cast<uint16_t>(bytes),
            static_cast<uint16_t>(out.size() - ids_begin)};
  }

 private:
  static constexpr size_t kSlotsMax = 1 << 14;      ///< 256 KiB.
  static constexpr size_t kWordBytesMax = 1 << 10;  ///< A word gives at most 3 ids a byte.

  struct Slot {
    uint32_t tag, begin, ids_begin;
    uint16_t bytes = 0, ids_count;
  };
  std::vector<Slot> slots_;
};

}  // namespace kvist
