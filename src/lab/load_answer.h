#pragma once

/// @file
/// Reads answers of OpenAI-compatible servers, streamed or whole, as far as a load test needs them: when text comes,
/// how much, and what the server counts. Servers differ, so only what must be there is asked for. Pure; one thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist::lab {

class AnswerReader {
 public:
  /// Data of one event. @return  whether it brought text (of the answer, of reasoning or of a call).
  /// Errors: InvalidArgument for what is no chunk; Aborted with the server's words for an error.
  absl::StatusOr<bool> TakeEvent(std::string_view name, std::string_view data);

  /// The body of an answer that was not streamed. Errors: as TakeEvent.
  absl::Status TakeWhole(std::string_view body);

  bool done() const { return done_; }                ///< A finish reason has come, or "[DONE]" after a choice.
  const std::string& text() const { return text_; }  ///< Of the first choice, without reasoning and calls.
  std::optional<uint32_t> prompt_tokens, output_tokens;
  uint32_t cached_tokens = 0;

 private:
  bool done_ = false, has_choice_ = false;
  std::string text_;
};

/// What an error's body says, JSON or a line of text, shortened; "" when it says nothing.
std::string ErrorMessageOf(std::string_view body);

}  // namespace kvist::lab
