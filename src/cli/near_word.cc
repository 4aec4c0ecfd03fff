#include "cli/near_word.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace kvist::cli {
namespace {

/// Letters to insert, delete or replace.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string NearWord(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = std::ranges::min_element(known, {}, [&](const std::string& k) { return Distance(word, k); });
  if (nearest == known.end() || Distance(word, *nearest) > 2) return "";
  return Cat(" (did you mean '", *nearest, "'?)");
}

}  // namespace kvist::cli
