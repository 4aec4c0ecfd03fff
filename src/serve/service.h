#pragma once

/// @file
/// What the server answers, free of sockets: access rules, small replies, preparation of generations. Threads: any
/// but where said. Non-goals: reading and writing HTTP (http_connection.h).

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "serve/access.h"
#include "serve/api_error.h"
#include "serve/capsules.h"
#include "serve/prompt.h"
#include "serve/request_log.h"
#include "serve/responses_api.h"
#include "serve/router.h"
#include "serve/serve_metrics.h"

namespace kvist::serve {

/// What matters of a request's head.
struct HttpHead {
  Method method = Method::kOther;
  Target target;
  std::string host, origin, authorization, if_none_match;
};

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
  std::vector<std::string> api_keys;  ///< Any of them; none = open.
  std::string cors_origin;            ///< "" = pages of other origins may not read answers.
  bool on_loopback = true;            ///< Bound to a loopback address.
  std::function<int64_t()> unix_now_s;
  double stalled_after_s = 30;  ///< A step that runs longer makes /health say so.
};

class Service {
 public:
  /// References outlive this.
  Service(ServiceOptions options, ServedModel model, engine::Engine& engine, const Clock& clock);

  /// Why this request may not go on to a body or an answer: host, origin, route, method, key; OPTIONS are answered here
  /// too.
  std::optional<HttpReply> Refusal(const HttpHead& head) const;

  /// Answers a GET, HEAD (with its body; the caller leaves it out) or DELETE. May wait for the engine where
  /// AnswerWaits(head) says so; then not for the network thread. REQUIRES: Refusal(head) is empty.
  HttpReply Answer(const HttpHead& head);
  static bool AnswerWaits(const HttpHead& head) { return head.target.route == Route::kMemory; }

  /// A POST to it starts a generation: Prepare, not AnswerPost.
  static bool Generates(Route route);

  /// Parses, renders and tokenizes. REQUIRES: Generates(route).
  absl::StatusOr<PreparedRequest> Prepare(Route route, std::string_view body);

  /// Answers any other POST. May wait for the engine; not for the network thread. REQUIRES: Refusal(head) is empty.
  HttpReply AnswerPost(const HttpHead& head, std::string_view body);

  /// CORS headers that every reply to `head` carries; usually none.
  std::vector<std::pair<std::string, std::string>> CorsHeaders(const HttpHead& head) const;

  /// From now on /health says "stopping".
  void SetStopping() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  const ServedModel& model() const { return model_; }
  engine::Engine& engine() const { return engine_; }
  const Clock& clock() const { return clock_; }
  ServeMetrics& metrics() { return metrics_; }
  Sessions& sessions() { return sessions_; }
  Capsules& capsules() { return capsules_; }
  RequestLog& request_log() { return request_log_; }
  int64_t unix_now_s() const { return options_.unix_now_s(); }

 private:
  PastStates Past() { return {.sessions = sessions_, .capsules = capsules_, .responses = responses_}; }
  HttpReply KeepCapsule(std::string_view body);
  HttpReply Health() const;
  HttpReply Memory() const;
  HttpReply Model(const std::string& id) const;
  HttpReply Capsule(const HttpHead& head);
  HttpReply Response(const HttpHead& head);
  HttpReply Request(const std::string& id) const;
  HttpReply Asset(const HttpHead& head) const;
  HttpReply Preflight(const HttpHead& head) const;

  const ServiceOptions options_;
  const ApiKeys keys_;
  const ServedModel model_;
  engine::Engine& engine_;
  const Clock& clock_;
  ServeMetrics metrics_;
  Sessions sessions_;
  Capsules capsules_;
  ResponseStore responses_;
  RequestLog request_log_;
  std::atomic<bool> stopping_{false};
};

}  // namespace kvist::serve
