#pragma once

/// @file
/// The HTTP server: listens, serves, and ends without leaving a client in the dark. One network thread (the one that
/// calls Run) moves all bytes, asynchronously; two worker threads parse and tokenize; the engine's thread is the
/// engine's. Non-goals: what is answered (service.h), how HTTP is spoken (http_connection.h), loading a model.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "serve/prompt.h"
#include "telemetry/metrics.h"

namespace kvist::serve {

/// What one client may take of the server.
struct HttpLimits {
  size_t header_bytes_max = 64u << 10;
  size_t body_bytes_max = 32u << 20;
  uint32_t connections_max = 512;
  uint32_t connections_per_address_max = 0;  ///< From one address; 0 = no bound.
  size_t output_bytes_max = 8u << 20;        ///< Of a stream, waiting for a client that reads slowly.
  std::chrono::milliseconds header{
      10'000};                             ///< From a request's first byte (or the connection) to the end of its head.
  std::chrono::milliseconds body{60'000};  ///< For the whole body,
  std::chrono::milliseconds body_gap{15'000};  ///< and between two pieces of it.
  std::chrono::milliseconds idle{75'000};      ///< Between requests.
  std::chrono::milliseconds write{60'000};     ///< A client that takes nothing for so long is gone.
  std::chrono::milliseconds comment{15'000};   ///< Silence of a stream before a keep-alive comment.
  /// Wait for the engine's first word before a stream's status line is written, so that a refusal can still be a
  /// status.
  std::chrono::milliseconds begin{2'000};
};

struct ServerOptions {
  std::string host = "127.0.0.1";     ///< Address or name to listen on.
  uint16_t port = 8080;               ///< 0 = any free one.
  std::vector<std::string> api_keys;  ///< Of the tenant "default".
  std::string tenants_file;           ///< Other tenants; "" = none. Read again on SIGHUP with handle_signals.
  std::string tls_certificate;        ///< PEM, the server's first; "" = plain HTTP. Read again on SIGHUP, too.
  std::string tls_key;                ///< PEM, of the certificate.
  std::map<std::string, std::string> tier_places;  ///< Where tiers below memory lie, by their names; for the log.
  std::string usage_db;                            ///< Database of what requests use; "" = none.
  double max_wait_s = 0;         ///< Requests that would wait longer for their turn are refused early; 0 = none is.
  uint32_t usage_places = 8192;  ///< Requests that wait, run or are not written yet; more are refused.
  std::string cors_origin;       ///< "" = none, "*" = all.
  HttpLimits limits;
  std::chrono::milliseconds drain{30'000};  ///< For open requests after a stop; then they fail.
  bool handle_signals = false;              ///< SIGINT and SIGTERM are RequestStop, from Create to the end of Run.
  std::function<void()> reread;             ///< Called on a worker with each RequestReload; may be empty.
  telemetry::Collector more_metrics;        ///< Of who runs the server, beside its own; may be empty.
  std::function<int64_t()> unix_now_s;      ///< Wall clock, for "created" and templates. Required.
};

class Server {
 public:
  /// What Create would refuse of `options`, said before a model is loaded: same errors. A port that is free now may be
  /// taken later.
  static absl::Status CheckOptions(const ServerOptions& options);

  /// Listens; nothing is accepted before Run. References outlive the server; the engine has not been started.
  /// Errors: InvalidArgument (host unknown; beyond loopback without an API key; the tenants file; the certificate; the
  /// usage database),
  /// AlreadyExists (port in use), PermissionDenied.
  static absl::StatusOr<std::unique_ptr<Server>> Create(ServerOptions options, ServedModel model,
                                                        engine::Engine& engine, const Clock& clock);
  ~Server();

  /// "http://127.0.0.1:8080", or with https, of the address in use.
  std::string url() const;
  uint16_t port() const;

  /// Starts the engine, serves until stopped, stops the engine. Call once.
  void Run();

  /// First call: accepts no more connections, closes those without a whole request, finishes the others. Second call,
  /// or after `drain`: fails what is open. Any thread.
  void RequestStop();

  /// Reads the tenants file and the certificate again, soon; a file with a fault changes nothing. Logs either. Then
  /// calls `reread`. Any thread.
  void RequestReload();

  /// What of `options` may change takes effect, soon: limits of HTTP (also for open connections), max_wait_s,
  /// cors_origin, drain. Any thread.
  void Adopt(const ServerOptions& options);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvist::serve
