#pragma once

/// @file
/// Reading a text from front to back, with errors that name line and column. Pure.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace kvist::grammar {

class TextCursor {
 public:
  /// `text` must outlive this.
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  size_t offset() const { return at_; }
  std::string_view Rest() const { return text_.substr(at_); }
  /// REQUIRES: !done(), here and in Take.
  char Peek() const { return text_[at_]; }
  char Take() { return text_[at_++]; }
  void Skip(size_t bytes) { at_ += bytes; }
  /// Skips `what` if the text goes on with it.
  bool TakeIf(std::string_view what) {
    if (!Rest().starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  /// The next character. Errors: no valid UTF-8. REQUIRES: !done().
  absl::StatusOr<uint32_t> TakeCharacter();
  /// Hexadecimal digits, as many. Errors: too few, or no Unicode character.
  absl::StatusOr<uint32_t> TakeHex(uint32_t digits);
  /// After '{': "m}", "m,}" or "m,n}", with m <= n <= max; nullopt for anything else. {m,} is to kUnbounded.
  std::optional<std::pair<uint32_t, uint32_t>> TakeCounts(uint32_t max);

  /// InvalidArgument "line L, column C: ...".
  absl::Status Fault(std::string_view message) const { return FaultAt(at_, message); }
  absl::Status FaultAt(size_t offset, std::string_view message) const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace kvist::grammar
