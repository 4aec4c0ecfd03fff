#pragma once

/// @file
/// What became of the last requests of the API: GET /kvist/requests and `kvist explain`. Metadata only, never text.
/// Bounded: the oldest goes first. API: docs/serving.md, "Explaining". Threads: any.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "engine/generation.h"
#include "engine/request_trace.h"
#include "serve/viewer.h"

namespace kvist::serve {

/// One request from its last byte to the end of its answer. Instants are the server's; kTimeNever = did not happen.
struct LoggedRequest {
  std::string id;    ///< "chatcmpl-..." or "cmpl-...".
  std::string kind;  ///< "chat", "completion", ...
  TenantId tenant{};
  int64_t created_unix_s = 0;
  TimeNs received_at = kTimeNever;   ///< Its last byte was read.
  TimeNs submitted_at = kTimeNever;  ///< Parsed, rendered, tokenized, handed to the engine.
  TimeNs finished_at = kTimeNever;   ///< The last of its answer was formatted.
  engine::FinishReason reason = engine::FinishReason::kNone;
  int http_status = 200;  ///< Of the error that ended it, if one did.
  engine::Usage usage;
  std::vector<RequestId> engine_ids;  ///< Of its choices.
  /// Of each choice; nullptr until the engine has let go of it.
  std::vector<std::shared_ptr<const engine::RequestTrace>> traces;
};

class RequestLog {
 public:
  explicit RequestLog(size_t requests_max = 256) : requests_max_(requests_max) {}

  /// A choice of a request is known to the engine by this id; in order of the choices.
  void Name(RequestId engine_id, const std::string& id, TenantId tenant);
  /// The engine's id of the first choice of a request that has not ended, and that the viewer sees.
  std::optional<RequestId> FindRunning(std::string_view id, Viewer viewer) const;
  /// What the clients know a request of the engine by; null when it is unknown or too old.
  boost::json::value NameOf(RequestId engine_id) const;
  /// The request has ended.
  void Add(LoggedRequest request);
  /// What the engine says of a choice after its client has gone. Unknown names are ignored.
  void AddTrace(std::string_view id, size_t choice, std::shared_ptr<const engine::RequestTrace> trace);

  /// Those that the viewer sees, the latest first.
  std::string ListBody(Viewer viewer) const;
  /// nullopt when it is unknown, somebody else's, still running or too old.
  std::optional<std::string> Body(std::string_view id, Viewer viewer) const;

 private:
  boost::json::object ChoiceObject(const engine::RequestTrace& trace) const;
  boost::json::value NameOfLocked(RequestId engine_id) const;

  const size_t requests_max_;
  mutable std::mutex mutex_;
  std::deque<LoggedRequest> requests_;  ///< Oldest first.
  absl::flat_hash_map<RequestId, std::string> names_;
  struct Running {
    RequestId first_choice;
    TenantId tenant;
  };
  absl::flat_hash_map<std::string, Running> running_;
};

}  // namespace kvist::serve
