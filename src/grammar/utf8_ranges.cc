#include "grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {
namespace {

/// Both ends have equally many bytes.
void AddSameLength(CharRange range, std::vector<std::vector<ByteRange>>& out) {
  std::string first, last;
  AppendUtf8(range.first, first);
  AppendUtf8(range.last, last);
  // Below the first byte in which they differ, every continuation must be whole: 80..BF in all places.
  for (uint32_t place = 1; place < first.size(); ++place) {
    const uint32_t mask = (1u << (6 * place)) - 1;  // Bits of the last `place` bytes.
    if ((range.first & ~mask) == (range.last & ~mask)) continue;
    if ((range.first & mask) != 0) {
      AddSameLength({range.first, range.first | mask}, out);
      AddSameLength({(range.first | mask) + 1, range.last}, out);
      return;
    }
    if ((range.last & mask) != mask) {
      AddSameLength({range.first, (range.last & ~mask) - 1}, out);
      AddSameLength({range.last & ~mask, range.last}, out);
      return;
    }
  }
  std::vector<ByteRange> bytes;
  for (size_t i = 0; i < first.size(); ++i) {
    bytes.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  }
  out.push_back(std::move(bytes));
}

}  // namespace

std::vector<std::vector<ByteRange>> Utf8Ranges(CharRange range) {
  constexpr CharRange kLengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kCharMax}};
  std::vector<std::vector<ByteRange>> out;
  for (const CharRange& length : kLengths) {
    const CharRange part{std::max(range.first, length.first), std::min(range.last, length.last)};
    if (part.first <= part.last) AddSameLength(part, out);
  }
  return out;
}

}  // namespace kvist::grammar
