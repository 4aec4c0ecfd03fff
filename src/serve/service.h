#pragma once

/// @file
/// What the server answers, free of sockets: access rules, small replies, preparation of generations. Threads: any
/// but where said. Non-goals: reading and writing HTTP (http_connection.h).

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/capsules.h"
#include "serve/frame_sessions.h"
#include "serve/metering.h"
#include "serve/prompt.h"
#include "serve/request_log.h"
#include "serve/responses_api.h"
#include "serve/router.h"
#include "serve/serve_metrics.h"
#include "serve/tenants.h"

namespace kvist::serve {

/// What matters of a request's head, and whose request it is.
struct HttpHead {
  Method method = Method::kOther;
  Target target;
  std::string host, origin, authorization, if_none_match;
  std::string request_id;                ///< AcceptedRequestId.
  TenantPtr tenant;                      ///< Set by Refusal; nullptr = nobody's.
  std::shared_ptr<TenantTicket> ticket;  ///< Likewise, of what takes a place among the tenant's requests.
};

/// The id that a client gave its request, where that is up to 128 letters, digits, '.', '-', '_' or ':'; else a new
/// one.
std::string AcceptedRequestId(std::string_view given);

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  ///< More than Content-Type and Content-Length.
  std::string body;
  std::optional<ApiError> error;  ///< In place of a body: written in the dialect of the route.
};

/// The error under its status, with Retry-After where it has one.
HttpReply ErrorReply(const ApiError& error);

struct ServiceOptions {
  std::string cors_origin;  ///< "" = pages of other origins may not read answers.
  bool on_loopback = true;  ///< Bound to a loopback address.
  std::function<int64_t()> unix_now_s;
  double max_wait_s = 0;        ///< Requests that would wait longer for their turn are refused; 0 = none is.
  double stalled_after_s = 30;  ///< A step that runs longer makes /health say so.
};

class Service {
 public:
  /// References outlive this. Metering becomes the engine's.
  Service(ServiceOptions options, ServedModel model, engine::Engine& engine, Tenants& tenants, Metering& metering,
          const Clock& clock);

  /// Why this request may not go on to a body or an answer: host, origin, route, method, key, what its tenant may take;
  /// OPTIONS are answered here too. Finds the tenant, and takes its place where there is no refusal.
  std::optional<HttpReply> Refusal(HttpHead& head) const;

  /// Answers a GET, HEAD (with its body; the caller leaves it out) or DELETE. May wait for the engine where
  /// AnswerWaits(head) says so; then not for the network thread. REQUIRES: Refusal(head) is empty.
  HttpReply Answer(const HttpHead& head);
  static bool AnswerWaits(const HttpHead& head);

  /// A POST to it starts a generation: Prepare, not AnswerPost.
  static bool Generates(Route route);

  /// Parses, renders and tokenizes; takes the prompt's tokens from the tenant's. REQUIRES: Generates(route).
  absl::StatusOr<PreparedRequest> Prepare(const HttpHead& head, std::string_view body,
                                          const std::stop_token& stop = {});

  /// Answers any other POST. May wait for the engine; not for the network thread. REQUIRES: Refusal(head) is empty.
  HttpReply AnswerPost(const HttpHead& head, std::string_view body);

  /// Headers that every reply to `head` carries: the request's id, what its tenant may still take, CORS.
  std::vector<std::pair<std::string, std::string>> CommonHeaders(const HttpHead& head) const;

  /// Changes what the options of the same names were. Network thread, as Refusal and CommonHeaders.
  void Adopt(std::string cors_origin, double max_wait_s) {
    options_.cors_origin = std::move(cors_origin);
    options_.max_wait_s = max_wait_s;
  }

  /// From now on /health says "stopping".
  void SetStopping() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  const ServedModel& model() const { return model_; }
  engine::Engine& engine() const { return engine_; }
  const Clock& clock() const { return clock_; }
  ServeMetrics& metrics() { return metrics_; }
  Sessions& sessions() { return sessions_; }
  Capsules& capsules() { return capsules_; }
  FrameSessions& frame_sessions() { return *frame_sessions_; }
  RequestLog& request_log() { return request_log_; }
  int64_t unix_now_s() const { return options_.unix_now_s(); }

 private:
  PastStates PastOf(const HttpHead& head);
  HttpReply KeepCapsule(const HttpHead& head, std::string_view body);
  HttpReply Health() const;
  HttpReply Memory(const HttpHead& head) const;
  HttpReply State() const;
  HttpReply Steps(std::string_view query) const;
  HttpReply Model(const std::string& id) const;
  HttpReply Usage(const HttpHead& head) const;
  HttpReply Capsule(const HttpHead& head);
  HttpReply Response(const HttpHead& head);
  HttpReply Request(const HttpHead& head) const;
  HttpReply Asset(const HttpHead& head) const;
  HttpReply Preflight(const HttpHead& head) const;
  absl::Status CheckWait() const;
  absl::Status Enter(HttpHead& head) const;
  absl::Status Bind(const HttpHead& head, PreparedRequest& prepared) const;
  absl::Status EnterFrame(PreparedRequest& prepared) const;
  Viewer ViewerOf(const HttpHead& head) const;

  ServiceOptions options_;
  const ServedModel model_;
  engine::Engine& engine_;
  Tenants& tenants_;
  Metering& metering_;
  const Clock& clock_;
  const TimeNs started_at_;
  const std::shared_ptr<FrameSessions> frame_sessions_;
  ServeMetrics metrics_;
  Sessions sessions_;
  Capsules capsules_;
  ResponseStore responses_;
  RequestLog request_log_;
  std::atomic<bool> stopping_{false};
};

}  // namespace kvist::serve
