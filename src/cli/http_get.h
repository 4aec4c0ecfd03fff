#pragma once

/// @file
/// One small answer of a server, over HTTP(S). Non-goals: large bodies, retries (modelstore/http_download.h). One
/// thread.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist::cli {

/// Of --ca-file, which every command that speaks to a server has.
inline constexpr std::string_view kCaFileHelp =
    "With https: certificates (PEM) that the server's rests on, or its own; else the system's";

/// The body of a 200. Proxies are not used for this machine. @param bearer_token  "" = none
/// @param ca_file  of --ca-file; "" = the system's
/// Errors, naming the URL: NotFound (404), Unauthenticated (401), PermissionDenied (403), FailedPrecondition (others),
/// each with what the server says; Unavailable when it cannot be reached; ResourceExhausted above 16 MiB.
absl::StatusOr<std::string> HttpGet(const std::string& url, const std::string& bearer_token,
                                    const std::string& ca_file);

}  // namespace kvist::cli
