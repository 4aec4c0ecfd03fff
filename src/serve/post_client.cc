#include "serve/post_client.h"

#include <charconv>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/check.h"
#include "base/status.h"
#include "serve/byte_channel.h"

namespace kvist::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::string_view kPlain = "http://", kTls = "https://";

std::optional<double> SecondsOf(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0)) return std::nullopt;
  return seconds;
}

/// Whether what was read is a TLS alert, which is what a server that waits for a handshake answers to a request.
bool LooksLikeTls(const beast::flat_buffer& read) {
  const std::string_view bytes(static_cast<const char*>(read.data().data()), read.size());
  return bytes.starts_with("\x15\x03");
}

}  // namespace

std::string ServerUrl::Authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? Cat("[", host, "]:", port) : Cat(host, ":", port);
}

absl::StatusOr<ServerUrl> ParseServerUrl(std::string_view url) {
  const auto bad = [&](std::string_view what) { return absl::InvalidArgumentError(Cat("'", url, "': ", what)); };
  const bool tls = url.starts_with(kTls);
  if (!tls && !url.starts_with(kPlain)) return bad("a URL like http://127.0.0.1:8080 is wanted");
  std::string_view rest = url.substr(tls ? kTls.size() : kPlain.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash), path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  if (path.find_first_of("?# \r\n") != path.npos) return bad("a path without query is wanted");
  ServerUrl out{.path = std::string(path), .tls = tls};
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == authority.npos) return bad("the address has no ']'");
    out.host = authority.substr(1, end - 1);
    colon = end + 1 < authority.size() ? end + 1 : authority.npos;
    if (colon != authority.npos && authority[colon] != ':') return bad("a port is wanted after ']'");
  } else {
    out.host = authority.substr(0, std::min(colon, authority.size()));
  }
  out.port = colon == authority.npos ? (tls ? "443" : "80") : std::string(authority.substr(colon + 1));
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(out.port.data(), out.port.data() + out.port.size(), port);
  if (error != std::errc() || end != out.port.data() + out.port.size() || port == 0) return bad("the port is none");
  if (out.host.empty() || out.host.find_first_of("@ \r\n") != out.host.npos) return bad("the host is none");
  return out;
}

absl::StatusOr<std::shared_ptr<const TlsTrust>> TrustFor(const ServerUrl& url, const std::string& ca_file) {
  if (url.tls) return TlsTrust::Load(ca_file);
  if (!ca_file.empty()) return absl::InvalidArgumentError("--ca-file is for a --url that begins with https://");
  return nullptr;
}

/// Its timer looks whether it is still there.
struct PostClient::Connection : std::enable_shared_from_this<Connection> {
  explicit Connection(asio::io_context& io) : connecting(io), deadline(io) {}

  /// Ends what is under way.
  void Close() {
    error_code ignored;
    (channel != nullptr ? channel->socket() : connecting).close(ignored);
  }
  void CloseAt(std::chrono::steady_clock::time_point when) {
    timed_out = false;
    deadline.expires_at(when);
    deadline.async_wait([weak = weak_from_this()](error_code error) {
      const std::shared_ptr<Connection> self = weak.lock();
      if (error || self == nullptr || self->deadline.expiry() > std::chrono::steady_clock::now()) return;
      self->timed_out = true;
      self->Close();
    });
  }

  asio::ip::tcp::socket connecting;
  std::unique_ptr<ByteChannel> channel;  ///< Once it is connected.
  asio::steady_timer deadline;
  beast::flat_buffer buffer;
  bool timed_out = false;
  bool keep = false;  ///< The server lets another request follow.
};

PostClient::PostClient(asio::io_context& io, ServerUrl url, std::shared_ptr<const TlsTrust> trust)
    : io_(io), url_(std::move(url)), trust_(std::move(trust)) {
  KVIST_CHECK(url_.tls == (trust_ != nullptr));
}
PostClient::~PostClient() = default;

absl::Status PostClient::Resolve() {
  error_code error;
  asio::ip::tcp::resolver resolver(io_);
  addresses_ = resolver.resolve(url_.host, url_.port, error);
  if (error) return absl::UnavailableError(Cat(url_.Authority(), ": ", error.message()));
  return absl::OkStatus();
}

void PostClient::Stop() {
  stopping_ = true;
  idle_.clear();
  for (Connection* connection : active_) connection->Close();
}

asio::awaitable<HttpAnswer> PostClient::Post(HttpPost post, PieceSink on_piece) {
  const auto deadline = std::chrono::steady_clock::now() + post.limit;
  while (true) {
    if (stopping_) co_return HttpAnswer{.end = HttpEnd::kStopped};
    const bool reused = !idle_.empty();
    std::shared_ptr<Connection> connection;
    if (reused) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = std::make_shared<Connection>(io_);
    }
    connection->keep = false;
    connection->CloseAt(deadline);
    active_.insert(connection.get());
    HttpAnswer answer = co_await Exchange(*connection, post, on_piece);
    active_.erase(connection.get());
    if (reused && answer.end == HttpEnd::kCutOff && answer.status == 0) continue;
    connection->deadline.cancel();
    if (connection->keep && !stopping_) idle_.push_back(std::move(connection));
    co_return answer;
  }
}

HttpAnswer PostClient::Failed(const Connection& connection, HttpAnswer answer, const error_code& error,
                              HttpEnd otherwise) const {
  answer.end = stopping_                          ? HttpEnd::kStopped
               : connection.timed_out             ? HttpEnd::kTimedOut
               : error == http::error::body_limit ? HttpEnd::kTooLarge
                                                  : otherwise;
  answer.why =
      Cat(url_.Authority(), ": ", answer.end == HttpEnd::kTimedOut ? "no whole answer in time" : error.message(),
          IsDistrust(error) ? "; --ca-file names whom to believe" : "");
  return answer;
}

asio::awaitable<error_code> PostClient::Connect(Connection& connection) {
  const auto [error, endpoint] = co_await asio::async_connect(connection.connecting, addresses_, kAwait);
  if (error) co_return error;
  error_code ignored;
  connection.connecting.set_option(asio::ip::tcp::no_delay(true), ignored);
  connection.channel = trust_ != nullptr ? trust_->NewChannel(std::move(connection.connecting), url_.host)
                                         : NewPlainChannel(std::move(connection.connecting));
  co_return co_await connection.channel->Open();
}

asio::awaitable<HttpAnswer> PostClient::Exchange(Connection& connection, const HttpPost& post,
                                                 const PieceSink& on_piece) {
  HttpAnswer answer;
  if (connection.channel == nullptr) {
    if (const error_code error = co_await Connect(connection); error) {
      co_return Failed(connection, std::move(answer), error, HttpEnd::kUnreachable);
    }
  }
  http::request<http::string_body> request(http::verb::post, url_.path + post.path, 11);
  request.set(http::field::host, url_.Authority());
  request.set(http::field::content_type, "application/json");
  if (!post.api_key.empty()) request.set(http::field::authorization, "Bearer " + post.api_key);
  request.body() = post.body;
  request.prepare_payload();
  // A server that refuses early may close before it has read all: its answer is worth more than the failed write.
  const auto [write_error, written] = co_await http::async_write(*connection.channel, request, kAwait);
  if (connection.timed_out || stopping_) {
    co_return Failed(connection, std::move(answer), write_error, HttpEnd::kCutOff);
  }
  co_await ReadAnswer(connection, on_piece, answer);
  co_return answer;
}

asio::awaitable<void> PostClient::ReadAnswer(Connection& connection, const PieceSink& on_piece, HttpAnswer& answer) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(kAnswerBytesMax);
  {
    const auto [error, bytes] =
        co_await http::async_read_header(*connection.channel, connection.buffer, parser, kAwait);
    if (error) {
      const bool spoke_tls = LooksLikeTls(connection.buffer);
      answer = Failed(connection, std::move(answer), error, HttpEnd::kCutOff);
      if (!url_.tls && spoke_tls) answer.why = Cat(url_.Authority(), ": it speaks TLS: the URL begins with https://");
      co_return;
    }
  }
  const auto& head = parser.get();
  answer.status = static_cast<int>(head.result_int());
  answer.request_id = std::string(head["X-Request-Id"]);
  answer.retry_after_s = SecondsOf(std::string_view(head[http::field::retry_after]));
  const bool events =
      answer.status == 200 && on_piece && head[http::field::content_type].starts_with("text/event-stream");
  std::string& body = parser.get().body();
  const auto hand_over = [&] {
    if (!events || body.empty()) return;
    on_piece(body);
    body.clear();
  };
  while (!parser.is_done()) {
    parser.eager(false);  // One chunk; more would wait for the end of what has begun.
    const auto [error, bytes] = co_await http::async_read_some(*connection.channel, connection.buffer, parser, kAwait);
    hand_over();
    if (error) {
      answer = Failed(connection, std::move(answer), error, HttpEnd::kCutOff);
      co_return;
    }
  }
  hand_over();
  answer.body = std::move(body);
  connection.keep = parser.keep_alive();
}

}  // namespace kvist::serve
