#pragma once

/// @file
/// POST /tokenize and /detokenize, in the shapes of llama.cpp's server ("content") and of vLLM ("prompt", or "messages"
/// of a chat). Pure; any thread. API: docs/serving.md, "Tokens".

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "serve/prompt.h"

namespace kvist::serve {

/// Answer to POST /tokenize. Errors: InvalidArgument, with the field at fault; those of the chat's template.
absl::StatusOr<std::string> TokenizeBody(const ServedModel& model, std::string_view body, int64_t now_unix_s);

/// Answer to POST /detokenize. Errors: InvalidArgument, with the field at fault.
absl::StatusOr<std::string> DetokenizeBody(const ServedModel& model, std::string_view body);

}  // namespace kvist::serve
