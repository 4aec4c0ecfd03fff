#include "grammar/text_cursor.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "grammar/expression.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {
namespace {

std::optional<uint32_t> TakeNumber(TextCursor& cursor, int base, size_t digits_max) {
  const std::string_view rest = cursor.Rest().substr(0, digits_max);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  cursor.Skip(static_cast<size_t>(end - rest.data()));
  return value;
}

}  // namespace

absl::StatusOr<uint32_t> TextCursor::TakeCharacter() {
  const Utf8Char c = ReadUtf8(Rest());
  if (c.kind != Utf8Char::Kind::kValid) return Fault("this is not valid UTF-8");
  at_ += c.bytes;
  return c.code;
}

absl::StatusOr<uint32_t> TextCursor::TakeHex(uint32_t digits) {
  const size_t begin = at_;
  const std::optional<uint32_t> value = TakeNumber(*this, 16, digits);
  if (!value || at_ - begin != digits) return FaultAt(begin, Cat(digits, " hexadecimal digits are expected"));
  if (*value > kCharMax || (*value >= 0xD800 && *value <= 0xDFFF))
    return FaultAt(begin, "this number is no Unicode character");
  return *value;
}

std::optional<std::pair<uint32_t, uint32_t>> TextCursor::TakeCounts(uint32_t max) {
  const std::optional<uint32_t> least = TakeNumber(*this, 10, 9);
  if (!least) return std::nullopt;
  uint32_t most = *least;
  if (TakeIf(",")) {
    most = kUnbounded;
    if (!Rest().starts_with('}')) {
      const std::optional<uint32_t> number = TakeNumber(*this, 10, 9);
      if (!number) return std::nullopt;
      most = *number;
    }
  }
  if (!TakeIf("}") || *least > max || *least > most || (most > max && most != kUnbounded)) return std::nullopt;
  return std::pair(*least, most);
}

absl::Status TextCursor::FaultAt(size_t offset, std::string_view message) const {
  const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0.
  return absl::InvalidArgumentError(Cat("line ", line, ", column ", column, ": ", message));
}

}  // namespace kvist::grammar
