#pragma once

/// @file
/// Fetches one file over HTTP(S) into a PartialFile: redirects, resuming, retries with back-off, stall detection. One
/// thread a download. Non-goals: checksums, names and places of files (pull.h).
///
/// Resuming: beside the partial file lies its state (URL, validator, size). The rest is asked for on the condition that
/// the server still has the same file (If-Range with its strong ETag or its date; without either, the size must agree);
/// if it has another one, the download starts anew. A partial file without a state that fits starts anew too.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/partial_file.h"

namespace kvist::modelstore {

struct HttpOptions {
  std::string bearer_token;     ///< Sent to the URL's own host only, never along a redirect to another one.
  std::string expected_sha256;  ///< Fails early when the server says that its file has another one. May be empty.
  std::chrono::seconds connect_timeout{20};
  std::chrono::seconds stall_timeout{30};      ///< An attempt fails when nothing arrives for this long.
  uint32_t attempts_max = 4;                   ///< In a row without 1 MiB of progress.
  std::chrono::milliseconds retry_wait{1000};  ///< Before the second attempt; doubles each time, at most a minute.
};

/// What the caller hears meanwhile. Both may be empty.
struct HttpEvents {
  /// Several times a second; total 0 = unknown. False interrupts (Cancelled); what came is kept.
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress;
  std::function<void(std::string_view text)> notice;  ///< Retries and restarts, for people.
};

struct HttpResult {
  std::string sha256;  ///< Of the whole file, as the server states it (X-Linked-Etag); empty when it does not.
};

/// Completes `file` with the content of `url`. The state is kept in STATE_PATH and stays there until RemoveState.
/// Errors, naming the URL without its query: NotFound (404, 410), PermissionDenied (401, 403), FailedPrecondition
/// (other refusals), Unavailable (network and server trouble, after the retries), ResourceExhausted (disk), DataLoss
/// (the server's file is another one than expected), Cancelled.
absl::StatusOr<HttpResult> Download(const std::string& url, PartialFile& file, const std::string& state_path,
                                    const HttpOptions& options, const HttpEvents& events);

/// Removes what Download remembered.
void RemoveState(const std::string& state_path);

}  // namespace kvist::modelstore
