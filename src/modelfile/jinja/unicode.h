#pragma once

/// @file
/// Text as Python's str sees it: code points, white space, upper and lower case, character classes; over UTF-8 bytes.
/// Bytes that are not valid UTF-8 count as one code point each, so that every function is total.
/// Threads: any. Non-goals: normalisation, graphemes, locales.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvist::jinja {

/// One decoded code point and the bytes it took (1..4). A byte that starts no valid sequence: U+FFFD, 1 byte.
struct CodePoint {
  char32_t value;
  uint8_t bytes;
};

/// The code point that starts at `pos`. REQUIRES: pos < text.size().
CodePoint DecodeAt(std::string_view text, size_t pos);

/// Byte offset where the code point that ends at `end` starts. REQUIRES: 0 < end <= text.size().
size_t PreviousStart(std::string_view text, size_t end);

void AppendUtf8(char32_t value, std::string& out);

/// Offset of the first byte that is not part of valid UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

size_t CountCodePoints(std::string_view text);

/// Byte offset of code point number `index` (text.size() when there are fewer). O(bytes).
size_t OffsetOf(std::string_view text, size_t index);

/// str.isspace of one code point (also what `\s` and strip() mean).
bool IsSpace(char32_t c);
/// A place where splitlines() splits; "\r\n" is one break and the caller's affair.
bool IsLineBreak(char32_t c);
bool IsAlpha(char32_t c);      ///< Letters of any script.
bool IsDecimal(char32_t c);    ///< Decimal digits of any script.
bool IsDigit(char32_t c);      ///< Decimals and superscript or circled digits.
bool IsNumeric(char32_t c);    ///< Every number character.
bool IsWord(char32_t c);       ///< `\w`: letters, numbers, underscore.
bool IsPrintable(char32_t c);  ///< repr() shows it as it is.
bool IsNameStart(char32_t c);  ///< May begin an identifier.
bool IsNameRest(char32_t c);   ///< May continue an identifier.
bool IsUpper(char32_t c);      ///< Has a lower case and is not it; title-case digraphs excluded.
bool IsLower(char32_t c);

bool IsTitleCase(char32_t c);  ///< Digraphs such as U+01C5 that are upper case at the front only.

/// str.islower, str.isupper: some character has case, and all that have it have this one.
bool HasOnlyLower(std::string_view text);
bool HasOnlyUpper(std::string_view text);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalize(std::string_view text);  ///< First in title case, the others lower.
std::string ToTitle(std::string_view text);     ///< str.title: every run of cased characters capitalised.
std::string SwapCase(std::string_view text);

/// strip() of the characters in `chars`; white space when null. Which ends is said by the flags.
std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace kvist::jinja
