#include "modelfile/tokenizer_utf8.h"

#include <cstring>

namespace kvist {

Utf8Char ReadUtf8(std::string_view text) {
  using enum Utf8Char::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {kValid, 1, lead};
  const uint32_t no_code = 0x110000u + lead;
  // Number of bytes and the range of the second one (Unicode 15, table 3-7); later ones are 80..BF.
  uint8_t length = 0, low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kInvalid, 1, no_code};
  }
  uint32_t code = lead & (0x7F >> length);
  for (uint8_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {kIncomplete, i, no_code};
    if (byte(i) < low || byte(i) > high) return {kInvalid, i, no_code};
    code = code << 6 | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {kValid, length, code};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Char c = ReadUtf8(text.substr(at));
    if (c.kind != Utf8Char::Kind::kValid) return at;
    at += c.bytes;
  }
  return at;
}

void AppendUtf8(uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (code >> shift & 0x3F))); };
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void TakeCharacters(std::string& pending, bool last, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    out.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Char c = ReadUtf8(rest);
    if (c.kind == Utf8Char::Kind::kIncomplete && !last) break;
    out.append(kReplacementUtf8);
    rest.remove_prefix(c.bytes);
  }
  pending.erase(0, pending.size() - rest.size());
}

}  // namespace kvist
