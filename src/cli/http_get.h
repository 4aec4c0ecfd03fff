#pragma once

/// @file
/// One small answer of a server, over HTTP(S). Non-goals: large bodies, retries (modelstore/http_download.h). One
/// thread.

#include <string>

#include "absl/status/statusor.h"

namespace kvist::cli {

/// The body of a 200. Proxies are not used for this machine. @param bearer_token  "" = none
/// Errors, naming the URL: NotFound (404), Unauthenticated (401), PermissionDenied (403), FailedPrecondition (others),
/// each with what the server says; Unavailable when it cannot be reached; ResourceExhausted above 16 MiB.
absl::StatusOr<std::string> HttpGet(const std::string& url, const std::string& bearer_token);

}  // namespace kvist::cli
