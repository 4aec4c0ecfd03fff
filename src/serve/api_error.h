#pragma once

/// @file
/// Errors as the APIs send them: a body in the protocol's shape and an HTTP status. Inside the server errors are
/// absl::Status; the parameter at fault and a code for programs travel in its payload, so that the usual macros work.
/// Pure; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvist::serve {

/// Whose shape answers have. OpenAI: {"error": {"message", "type", "param", "code"}}. Anthropic: {"type": "error",
/// "error": {"type", "message"}} with types of its own. Ollama: {"error": "message"}.
enum class Dialect : uint8_t { kOpenAi, kAnthropic, kOllama };

struct ApiError {
  int http_status = 500;
  std::string type;  ///< OpenAI's, e.g. "invalid_request_error".
  std::string message;
  std::optional<std::string> param;  ///< Field of the request, e.g. "messages[2].content".
  std::optional<std::string> code;   ///< e.g. "context_length_exceeded".
  int retry_after_s = 0;             ///< 0 = not said.
};

/// InvalidArgument about one field of a request.
absl::Status BadParam(std::string_view param, std::string_view message);
/// The same as NotFound: the field names what is not here.
absl::Status UnknownParam(std::string_view param, std::string_view message);

/// `status` with a code for programs. REQUIRES: not OK.
absl::Status WithCode(absl::Status status, std::string_view code);

/// `status` with the seconds after which to try again (Retry-After; rounded up). REQUIRES: not OK.
absl::Status WithRetry(absl::Status status, double seconds);

/// `status` with an HTTP status that no code stands for. REQUIRES: not OK.
absl::Status WithHttpStatus(absl::Status status, int http_status);

/// InvalidArgument, OutOfRange, FailedPrecondition, Unimplemented -> 400; Unauthenticated -> 401; PermissionDenied ->
/// 403; NotFound -> 404; ResourceExhausted -> 429; Unavailable, Cancelled -> 503; the rest -> 500. REQUIRES: not OK.
ApiError ErrorFromStatus(const absl::Status& status);

/// For what HTTP itself refuses: 404, 405, 408, 413, 415, 431.
ApiError HttpError(int http_status, std::string_view message);

/// The JSON body, also the data of an error event inside a stream.
std::string ErrorBody(const ApiError& error, Dialect dialect = Dialect::kOpenAi);

}  // namespace kvist::serve
