#pragma once

/// @file
/// UTF-8 as the tokenizers need it: one character at a time, without trust. Strict (RFC 3629: no surrogates, no
/// overlong forms, nothing above U+10FFFF). Non-goals: normalisation, character properties.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvist {

/// The start of a byte string, read as one character.
struct Utf8Char {
  enum class Kind : uint8_t {
    kValid,       ///< `bytes` bytes are the character `code`.
    kIncomplete,  ///< All bytes that there are begin a character that more bytes could complete.
    kInvalid,  ///< `bytes` bytes (1..3) can never become a character: the maximal subpart of Unicode 15, section 3.9.
  };
  Kind kind;
  uint8_t bytes;
  uint32_t code;  ///< Code point; for the other kinds 0x110000 + first byte, which is no code point.
};

/// REQUIRES: !text.empty().
Utf8Char ReadUtf8(std::string_view text);

/// Length in bytes of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

/// Appends a code point. REQUIRES: a Unicode scalar value.
void AppendUtf8(uint32_t code, std::string& out);

/// Moves the whole characters at the front of `pending` to the end of `out`, U+FFFD for each maximal subpart that can
/// be none. An incomplete character at the end stays in `pending`; when `last` it is replaced too.
void TakeCharacters(std::string& pending, bool last, std::string& out);

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  ///< U+FFFD.
inline constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";    ///< U+2581, how SentencePiece spells a space.

}  // namespace kvist
