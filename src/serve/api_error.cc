#include "serve/api_error.h"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>

#include "absl/strings/cord.h"
#include "base/check.h"
#include "base/status.h"

namespace kvist::serve {
namespace {

constexpr char kParamPayload[] = "kvist/param";
constexpr char kCodePayload[] = "kvist/code";
constexpr char kRetryPayload[] = "kvist/retry";
constexpr char kHttpPayload[] = "kvist/http";
constexpr double kRetryMaxS = 31 * 86400;

std::optional<std::string> PayloadOf(const absl::Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

boost::json::value OrNull(const std::optional<std::string>& text) {
  if (!text.has_value()) return nullptr;
  return boost::json::string(*text);
}

/// https://docs.anthropic.com/en/api/errors
std::string_view AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

absl::Status BadParam(std::string_view param, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  status.SetPayload(kParamPayload, absl::Cord(ToAbsl(param)));
  return status;
}

absl::Status UnknownParam(std::string_view param, std::string_view message) {
  absl::Status status = absl::NotFoundError(ToAbsl(message));
  status.SetPayload(kParamPayload, absl::Cord(ToAbsl(param)));
  return status;
}

absl::Status WithCode(absl::Status status, std::string_view code) {
  KVIST_CHECK(!status.ok());
  status.SetPayload(kCodePayload, absl::Cord(ToAbsl(code)));
  return status;
}

absl::Status WithRetry(absl::Status status, double seconds) {
  KVIST_CHECK(!status.ok());
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 1.0, kRetryMaxS)));
  status.SetPayload(kRetryPayload, absl::Cord(Cat(whole)));
  return status;
}

absl::Status WithHttpStatus(absl::Status status, int http_status) {
  KVIST_CHECK(!status.ok());
  status.SetPayload(kHttpPayload, absl::Cord(Cat(http_status)));
  return status;
}

ApiError ErrorFromStatus(const absl::Status& status) {
  KVIST_CHECK(!status.ok());
  ApiError error{.message = std::string(status.message()),
                 .param = PayloadOf(status, kParamPayload),
                 .code = PayloadOf(status, kCodePayload)};
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      error.http_status = 400;
      error.type = "invalid_request_error";
      break;
    case absl::StatusCode::kUnauthenticated:
      error.http_status = 401;
      error.type = "invalid_request_error";
      if (!error.code) error.code = "invalid_api_key";
      break;
    case absl::StatusCode::kPermissionDenied:
      error.http_status = 403;
      error.type = "permission_error";
      break;
    case absl::StatusCode::kNotFound:
      error.http_status = 404;
      error.type = "invalid_request_error";
      break;
    case absl::StatusCode::kResourceExhausted:
      error.http_status = 429;
      error.type = "rate_limit_error";
      if (!error.code) error.code = "server_overloaded";
      error.retry_after_s = 5;
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      error.http_status = 503;
      error.type = "server_error";
      if (!error.code) error.code = "unavailable";
      error.retry_after_s = 10;
      break;
    default:
      error.http_status = 500;
      error.type = "server_error";
  }
  if (const auto retry = PayloadOf(status, kRetryPayload)) error.retry_after_s = std::stoi(*retry);
  if (const auto http = PayloadOf(status, kHttpPayload)) error.http_status = std::stoi(*http);
  return error;
}

ApiError HttpError(int http_status, std::string_view message) {
  return {.http_status = http_status, .type = "invalid_request_error", .message = std::string(message)};
}

std::string ErrorBody(const ApiError& error, Dialect dialect) {
  boost::json::value body;
  switch (dialect) {
    case Dialect::kOpenAi:
      body = {{"error",
               {{"message", error.message},
                {"type", error.type},
                {"param", OrNull(error.param)},
                {"code", OrNull(error.code)}}}};
      break;
    case Dialect::kAnthropic:
      body = {{"type", "error"}, {"error", {{"type", AnthropicType(error.http_status)}, {"message", error.message}}}};
      break;
    case Dialect::kOllama:
      body = {{"error", error.message}};
      break;
  }
  return boost::json::serialize(body);
}

}  // namespace kvist::serve
