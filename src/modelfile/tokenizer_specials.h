#pragma once

/// @file
/// Finds whole entries (control and user-defined tokens) in raw text before any algorithm sees it: leftmost, then
/// longest, as SentencePiece and Hugging Face's added vocabulary do. Immutable. Threads: any. Cost: one table look-up a
/// byte where nothing begins, else at most the longest entry's length times log of their number.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvist {

class SpecialMatcher {
 public:
  struct Match {
    size_t begin, bytes;
    uint32_t id;
  };

  SpecialMatcher() = default;
  /// Text and id of every entry. Empty texts are left out; of equal ones the last id counts.
  explicit SpecialMatcher(std::vector<std::pair<std::string, uint32_t>> entries);

  /// First match at or after `from`, the longest one there. False when there is none.
  bool Find(std::string_view text, size_t from, Match& match) const;

 private:
  bool LongestAt(std::string_view text, Match& match) const;

  std::vector<std::pair<std::string, uint32_t>> entries_;  ///< Sorted by text, each once.
  std::array<uint32_t, 257> first_{};                      ///< entries_[first_[b], first_[b + 1]) begin with byte b.
};

}  // namespace kvist
