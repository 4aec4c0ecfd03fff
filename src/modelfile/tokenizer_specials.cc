#include "modelfile/tokenizer_specials.h"

#include <algorithm>

namespace kvist {

SpecialMatcher::SpecialMatcher(std::vector<std::pair<std::string, uint32_t>> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const auto& e) { return e.first.empty(); });
  // Equal texts: the highest id first, then only that one is kept.
  std::sort(entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  entries_.erase(
      std::unique(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      entries_.end());
  for (const auto& [text, id] : entries_) ++first_[static_cast<uint8_t>(text[0]) + 1];
  for (size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

bool SpecialMatcher::Find(std::string_view text, size_t from, Match& match) const {
  if (entries_.empty()) return false;
  for (; from < text.size(); ++from) {
    const auto b = static_cast<uint8_t>(text[from]);
    if (first_[b] == first_[b + 1]) continue;
    match.begin = from;
    if (LongestAt(text, match)) return true;
  }
  return false;
}

bool SpecialMatcher::LongestAt(std::string_view text, Match& match) const {
  const std::string_view rest = text.substr(match.begin);
  const auto b = static_cast<uint8_t>(rest[0]);
  auto low = entries_.begin() + first_[b], high = entries_.begin() + first_[b + 1];
  match.bytes = 0;
  // [low, high) are the entries that agree with the text's first `depth` bytes; the shortest sorts first.
  for (size_t depth = 1; low != high; ++depth) {
    if (low->first.size() == depth) {
      match.bytes = depth;
      match.id = low->second;
      ++low;
    }
    if (depth == rest.size()) break;
    const char next = rest[depth];
    const auto less = [depth](const auto& e, char c) {
      return static_cast<uint8_t>(e.first[depth]) < static_cast<uint8_t>(c);
    };
    const auto more = [depth](char c, const auto& e) {
      return static_cast<uint8_t>(c) < static_cast<uint8_t>(e.first[depth]);
    };
    low = std::lower_bound(low, high, next, less);
    high = std::upper_bound(low, high, next, more);
  }
  return match.bytes > 0;
}

}  // namespace kvist
