#pragma once

/// @file
/// HTTP(S) from the other side: posts JSON to a server and hands over its answer, whole or event by event. Connections
/// are kept for the next request. For load generators and batches; one io_context, one thread, thousands of requests at
/// once. Non-goals: redirects, proxies, compression.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/status/statusor.h"
#include "serve/tls.h"

namespace kvist::serve {

struct ServerUrl {
  std::string host, port;
  std::string path;  ///< "" or "/prefix", before the paths of requests.
  bool tls = false;

  std::string Authority() const;  ///< "127.0.0.1:8080", for Host.
};

/// "http[s]://host[:port][/prefix]"; a trailing "/v1" is left out, as requests name it. Errors: InvalidArgument.
absl::StatusOr<ServerUrl> ParseServerUrl(std::string_view url);

/// Null for http. Errors: InvalidArgument for a file that is no good, or where nothing asks for it.
absl::StatusOr<std::shared_ptr<const TlsTrust>> TrustFor(const ServerUrl& url, const std::string& ca_file);

struct HttpPost {
  std::string path, body;
  std::string api_key;                       ///< "" = none.
  std::chrono::milliseconds limit{600'000};  ///< From the call to the answer's last byte.
};

/// How an exchange ended.
enum class HttpEnd : uint8_t {
  kWhole,        ///< The answer came to its end; `status` says what kind it is.
  kUnreachable,  ///< No connection, or none to a server that is believed.
  kTimedOut,
  kCutOff,    ///< The connection ended, or spoke no HTTP, before the answer's end.
  kTooLarge,  ///< The answer has more than kAnswerBytesMax.
  kStopped,   ///< By Stop.
};

inline constexpr uint64_t kAnswerBytesMax = 256u << 20;

struct HttpAnswer {
  HttpEnd end = HttpEnd::kWhole;
  int status = 0;          ///< 0 = no head came.
  std::string body;        ///< Without what the sink took.
  std::string why;         ///< When it is not whole.
  std::string request_id;  ///< Of the X-Request-Id header.
  std::optional<double> retry_after_s;
};

class PostClient {
 public:
  /// Takes pieces of a 200's event stream as they come; other bodies are gathered.
  using PieceSink = std::function<void(std::string_view)>;

  /// @param trust  REQUIRES: given exactly where the URL says https
  PostClient(boost::asio::io_context& io, ServerUrl url, std::shared_ptr<const TlsTrust> trust);
  ~PostClient();

  /// Finds the host's addresses; call first. Errors: Unavailable.
  absl::Status Resolve();

  /// Never throws for what the network does. A kept connection that the server has closed meanwhile is replaced.
  boost::asio::awaitable<HttpAnswer> Post(HttpPost post, PieceSink on_piece);

  /// Ends what is under way, and what comes from now on.
  void Stop();

 private:
  struct Connection;
  boost::asio::awaitable<boost::system::error_code> Connect(Connection& connection);
  boost::asio::awaitable<HttpAnswer> Exchange(Connection& connection, const HttpPost& post, const PieceSink& on_piece);
  boost::asio::awaitable<void> ReadAnswer(Connection& connection, const PieceSink& on_piece, HttpAnswer& answer);
  HttpAnswer Failed(const Connection& connection, HttpAnswer answer, const boost::system::error_code& error,
                    HttpEnd otherwise) const;

  boost::asio::io_context& io_;
  const ServerUrl url_;
  const std::shared_ptr<const TlsTrust> trust_;
  boost::asio::ip::tcp::resolver::results_type addresses_;
  std::vector<std::shared_ptr<Connection>> idle_;
  std::unordered_set<Connection*> active_;
  bool stopping_ = false;
};

}  // namespace kvist::serve
