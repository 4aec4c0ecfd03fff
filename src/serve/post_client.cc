#include "serve/post_client.h"

#include <charconv>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/status.h"

namespace kvist::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::string_view kScheme = "http://";

std::optional<double> SecondsOf(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0)) return std::nullopt;
  return seconds;
}

}  // namespace

std::string ServerUrl::Authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? Cat("[", host, "]:", port) : Cat(host, ":", port);
}

absl::StatusOr<ServerUrl> ParseServerUrl(std::string_view url) {
  const auto bad = [&](std::string_view what) { return absl::InvalidArgumentError(Cat("'", url, "': ", what)); };
  if (url.starts_with("https://")) return bad("TLS is not supported here: use http:// or a local proxy");
  if (!url.starts_with(kScheme)) return bad("a URL like http://127.0.0.1:8080 is wanted");
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash), path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  if (path.find_first_of("?# \r\n") != path.npos) return bad("a path without query is wanted");
  ServerUrl out{.path = std::string(path)};
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
  out.port = colon == authority.npos ? "80" : std::string(authority.substr(colon + 1));
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(out.port.data(), out.port.data() + out.port.size(), port);
  if (error != std::errc() || end != out.port.data() + out.port.size() || port == 0) return bad("the port is none");
  if (out.host.empty() || out.host.find_first_of("@ \r\n") != out.host.npos) return bad("the host is none");
  return out;
}

struct PostClient::Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool keep = false;  ///< The server lets another request follow.
};

PostClient::PostClient(asio::io_context& io, ServerUrl url) : io_(io), url_(std::move(url)) {}
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
  for (Connection* connection : active_) connection->stream.close();
}

asio::awaitable<HttpAnswer> PostClient::Post(HttpPost post, PieceSink on_piece) {
  const auto deadline = std::chrono::steady_clock::now() + post.limit;
  while (true) {
    if (stopping_) co_return HttpAnswer{.end = HttpEnd::kStopped};
    const bool reused = !idle_.empty();
    std::unique_ptr<Connection> connection;
    if (reused) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = std::make_unique<Connection>(io_);
    }
    connection->keep = false;
    connection->stream.expires_at(deadline);
    active_.insert(connection.get());
    HttpAnswer answer = co_await Exchange(*connection, post, on_piece);
    active_.erase(connection.get());
    if (reused && answer.end == HttpEnd::kCutOff && answer.status == 0) continue;
    if (connection->keep && !stopping_) {
      connection->stream.expires_never();
      idle_.push_back(std::move(connection));
    }
    co_return answer;
  }
}

HttpAnswer PostClient::Failed(HttpAnswer answer, const error_code& error, HttpEnd otherwise) const {
  answer.end = stopping_                          ? HttpEnd::kStopped
               : error == beast::error::timeout   ? HttpEnd::kTimedOut
               : error == http::error::body_limit ? HttpEnd::kTooLarge
                                                  : otherwise;
  answer.why = Cat(url_.Authority(), ": ", error.message());
  return answer;
}

asio::awaitable<HttpAnswer> PostClient::Exchange(Connection& connection, const HttpPost& post,
                                                 const PieceSink& on_piece) {
  HttpAnswer answer;
  if (!connection.stream.socket().is_open()) {
    const auto [error, endpoint] = co_await connection.stream.async_connect(addresses_, kAwait);
    if (error) co_return Failed(std::move(answer), error, HttpEnd::kUnreachable);
    error_code ignored;
    connection.stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  }
  http::request<http::string_body> request(http::verb::post, url_.path + post.path, 11);
  request.set(http::field::host, url_.Authority());
  request.set(http::field::content_type, "application/json");
  if (!post.api_key.empty()) request.set(http::field::authorization, "Bearer " + post.api_key);
  request.body() = post.body;
  request.prepare_payload();
  // A server that refuses early may close before it has read all: its answer is worth more than the failed write.
  const auto [write_error, written] = co_await http::async_write(connection.stream, request, kAwait);
  if (write_error == beast::error::timeout || stopping_) {
    co_return Failed(std::move(answer), write_error, HttpEnd::kCutOff);
  }
  co_await ReadAnswer(connection, on_piece, answer);
  co_return answer;
}

asio::awaitable<void> PostClient::ReadAnswer(Connection& connection, const PieceSink& on_piece, HttpAnswer& answer) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(kAnswerBytesMax);
  {
    const auto [error, bytes] = co_await http::async_read_header(connection.stream, connection.buffer, parser, kAwait);
    if (error) {
      answer = Failed(std::move(answer), error, HttpEnd::kCutOff);
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
    const auto [error, bytes] = co_await http::async_read_some(connection.stream, connection.buffer, parser, kAwait);
    hand_over();
    if (error) {
      answer = Failed(std::move(answer), error, HttpEnd::kCutOff);
      co_return;
    }
  }
  hand_over();
  answer.body = std::move(body);
  connection.keep = parser.keep_alive();
}

}  // namespace kvist::serve
