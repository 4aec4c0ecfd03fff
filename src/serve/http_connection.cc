#include "serve/http_connection.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/status.h"
#include "serve/tls.h"

namespace kvist::serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// Results instead of exceptions.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

constexpr size_t kReadBytes = 16u << 10;
constexpr milliseconds kLinger{1'000};
constexpr size_t kLingerBytesMax = 1u << 20;
constexpr milliseconds kForever = std::chrono::hours(24);

/// Runs `work` on the pool and resumes on `executor`, the caller's.
template <class Work, class Result = std::invoke_result_t<Work>>
asio::awaitable<Result> OnWorker(asio::thread_pool& workers, asio::any_io_executor executor, Work work) {
  struct State {
    explicit State(const asio::any_io_executor& on) : ready(on, steady_clock::time_point::max()) {}
    std::optional<Result> result;
    asio::steady_timer ready;
  };
  auto state = std::make_shared<State>(executor);
  asio::post(workers, [state, executor, work = std::move(work)]() mutable {
    asio::post(executor, [state, result = work()]() mutable {
      state->result = std::move(result);
      state->ready.cancel();
    });
  });
  while (!state->result.has_value()) co_await state->ready.async_wait(kAwait);
  co_return *std::move(state->result);
}

Method MethodOf(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return Method::kGet;
    case http::verb::head:
      return Method::kHead;
    case http::verb::post:
      return Method::kPost;
    case http::verb::delete_:
      return Method::kDelete;
    case http::verb::options:
      return Method::kOptions;
    default:
      return Method::kOther;
  }
}

std::string DateText(int64_t unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text, size};
}

std::string HttpChunk(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}
constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace

struct HttpConnection::Request {
  http::request_parser<http::string_body> parser;
  HttpHead head;
  std::string body;
  TimeNs received_at{0};  ///< When its last byte was read.

  std::string Field(http::field name) const { return std::string(parser.get()[name]); }
  /// Anthropic's clients have a header of their own for the key.
  std::string Authorization() const {
    std::string given = Field(http::field::authorization);
    const auto key = parser.get()["x-api-key"];
    return given.empty() && !key.empty() ? Cat("Bearer ", std::string_view(key)) : given;
  }
  bool http_1_0() const { return parser.get().version() < 11; }
};

HttpConnection::HttpConnection(ConnectionHost& host, std::unique_ptr<ByteChannel> channel)
    : host_(host),
      channel_(std::move(channel)),
      socket_(channel_->socket()),
      buffer_(host.limits.header_bytes_max + kReadBytes),
      deadline_(socket_.get_executor()),
      news_(socket_.get_executor()) {}

asio::awaitable<void> HttpConnection::Run() {
  if (!co_await Open()) close_after_ = true;
  while (!close_after_ && !gone_) {
    Request request;
    if (!co_await ReadRequest(request)) break;
    co_await Handle(request);
  }
  co_await CloseGently();
}

void HttpConnection::Stop() {
  close_after_ = true;
  error_code ignored;
  if (reading_) socket_.close(ignored);  // Cancelling would miss an operation that is between two of its steps.
}

void HttpConnection::Fail() {
  preparing_.request_stop();
  if (stream_ != nullptr) stream_->Fail(ErrorFromStatus(absl::UnavailableError("the server is shutting down")));
}

void HttpConnection::Close() {
  error_code ignored;
  ClientGone();
  socket_.close(ignored);
  news_.cancel();
}

void HttpConnection::ClientGone() {
  gone_ = true;
  preparing_.request_stop();
  if (stream_ != nullptr) stream_->Abort();
}

// ---- Time limits.

void HttpConnection::Arm(milliseconds limit) {
  timed_out_ = false;
  deadline_.expires_after(limit);
  WaitForDeadline();
}

void HttpConnection::WaitForDeadline() {
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->deadline_.expiry() > steady_clock::now()) return;  // Moved or disarmed.
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
    // An operation may just be between two of its steps, where it cannot be cancelled: keep trying.
    self->deadline_.expires_after(milliseconds(50));
    self->WaitForDeadline();
  });
}

void HttpConnection::Disarm() {
  deadline_.expires_at(steady_clock::time_point::max());
}

// ---- Reading.

/// False: there is no way to talk with this client.
asio::awaitable<bool> HttpConnection::Open() {
  Arm(host_.limits.header);
  const error_code error = co_await channel_->Open();
  Disarm();
  if (!error) co_return !close_after_;
  spdlog::debug("a connection did not come about: {}", error.message());
  if (IsPlainHttp(error)) {  // Its client does not expect TLS, and would not understand its alert.
    static constexpr std::string_view kAnswer =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 33\r\nConnection: close\r\n\r\n"
        "this port speaks HTTPS, not HTTP\n";
    error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.write_some(asio::buffer(kAnswer), ignored);
  }
  co_return false;
}

/// Reads the head. False: the connection is over, and the client was told where there was something to tell.
asio::awaitable<bool> HttpConnection::ReadRequest(Request& request) {
  const HttpLimits& limits = host_.limits;
  request.parser.header_limit(static_cast<uint32_t>(limits.header_bytes_max));
  request.parser.body_limit(limits.body_bytes_max);
  reading_ = true;
  if (buffer_.size() == 0) {
    Arm(std::exchange(fresh_, false) ? limits.header : limits.idle);
    auto [error, bytes] = co_await channel_->async_read_some(buffer_.prepare(kReadBytes), kAwait);
    buffer_.commit(bytes);
    Disarm();
    if (error || close_after_) co_return false;
  }
  Arm(limits.header);
  auto [error, bytes] = co_await http::async_read_header(*channel_, buffer_, request.parser, kAwait);
  Disarm();
  if (!error) {
    request.head = {.method = MethodOf(request.parser.get().method()),
                    .target = RouteOf(request.parser.get().target()),
                    .host = request.Field(http::field::host),
                    .origin = request.Field(http::field::origin),
                    .authorization = request.Authorization(),
                    .if_none_match = request.Field(http::field::if_none_match),
                    .request_id = AcceptedRequestId(request.parser.get()["x-request-id"])};
    co_return true;
  }
  if (timed_out_) {
    if (request.parser.got_some()) co_await Refuse(request, 408, "the request's head took too long");
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_await Refuse(request, 431, Cat("the request's head is larger than ", limits.header_bytes_max, " bytes"));
  } else if (error == http::error::body_limit) {
    co_await Refuse(request, 413, Cat("the request's body is larger than ", limits.body_bytes_max, " bytes"));
  } else if (error.category() == make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    co_await Refuse(request, 400, Cat("this is not HTTP as it should be: ", error.message()));
  }
  co_return false;
}

asio::awaitable<bool> HttpConnection::ReadBody(Request& request) {
  const HttpLimits& limits = host_.limits;
  if (boost::beast::iequals(request.parser.get()[http::field::expect], "100-continue")) {
    if (!co_await Write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  const auto end = steady_clock::now() + limits.body;
  while (!request.parser.is_done()) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    Arm(std::min(limits.body_gap, std::max(left, milliseconds(0))));
    auto [error, bytes] = co_await http::async_read_some(*channel_, buffer_, request.parser, kAwait);
    Disarm();
    if (!error) continue;
    if (timed_out_) {
      co_await Refuse(request, 408, "the request's body took too long");
    } else if (error == http::error::body_limit) {
      co_await Refuse(request, 413, Cat("the request's body is larger than ", limits.body_bytes_max, " bytes"));
    } else if (error == http::error::partial_message ||
               error.category() != make_error_code(http::error::bad_chunk).category()) {
      ClientGone();
    } else {
      co_await Refuse(request, 400, Cat("this is not HTTP as it should be: ", error.message()));
    }
    co_return false;
  }
  reading_ = false;
  request.body = std::move(request.parser.get().body());
  request.received_at = host_.service.clock().Now();
  co_return true;
}

/// Answers what HTTP itself forbids; the connection cannot go on.
asio::awaitable<void> HttpConnection::Refuse(Request& request, int http_status, std::string_view message) {
  close_after_ = true;
  co_await WriteReply(request, ErrorReply(HttpError(http_status, message)));
}

// ---- Answering.

asio::awaitable<void> HttpConnection::Handle(Request& request) {
  if (!request.parser.keep_alive()) close_after_ = true;
  const size_t hosts = request.parser.get().count(http::field::host);
  if (hosts > 1 || (hosts == 0 && !request.http_1_0())) {  // RFC 9112, section 3.2.
    co_await Refuse(request, 400,
                    hosts == 0 ? "an HTTP/1.1 request needs a Host header" : "there is more than one Host header");
    co_return;
  }
  if (std::optional<HttpReply> refusal = host_.service.Refusal(request.head); refusal.has_value()) {
    if (!request.parser.is_done()) close_after_ = true;  // Its body stays unread.
    co_await WriteReply(request, *std::move(refusal));
    co_return;
  }
  if (request.head.method != Method::kPost) {
    if (!request.parser.is_done()) close_after_ = true;
    Service& service = host_.service;
    HttpReply reply;
    if (Service::AnswerWaits(request.head)) {
      reply = co_await OnWorker(host_.workers, socket_.get_executor(),
                                [&service, &request] { return service.Answer(request.head); });
    } else {
      reply = service.Answer(request.head);
    }
    co_await WriteReply(request, std::move(reply));
    co_return;
  }
  if (!request.Field(http::field::content_encoding).empty()) {
    co_await Refuse(request, 415, "compressed request bodies are not supported");
    co_return;
  }
  if (!co_await ReadBody(request)) co_return;
  if (Service::Generates(request.head.target.route)) {
    co_await Generate(request);
    co_return;
  }
  Service& service = host_.service;
  HttpReply reply = co_await OnWorker(host_.workers, socket_.get_executor(),
                                      [&service, &request] { return service.AnswerPost(request.head, request.body); });
  co_await WriteReply(request, std::move(reply));
}

asio::awaitable<void> HttpConnection::Generate(Request& request) {
  Service& service = host_.service;
  watch_wanted_ = true;
  Watch();  // From here on, as preparing may take long: a schema is compiled.
  const std::stop_token stop = preparing_.get_token();
  absl::StatusOr<PreparedRequest> prepared =
      co_await OnWorker(host_.workers, socket_.get_executor(),
                        [&service, &request, &stop] { return service.Prepare(request.head, request.body, stop); });
  request.body = std::string();  // Not kept while the generation runs.
  if (service.stopping() && (prepared.ok() || absl::IsCancelled(prepared.status()))) {
    prepared = absl::UnavailableError("the server is shutting down");
  }
  if (!prepared.ok() || gone_) {
    if (!gone_) co_await WriteReply(request, ErrorReply(ErrorFromStatus(prepared.status())));
    co_await StopWatching();
    co_return;
  }
  stream_ = std::make_shared<GenerationStream>(host_.streams, *std::move(prepared), request.received_at);
  stream_->Start([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->news_.cancel();
  });
  if (stream_->format().info().stream) {
    co_await StreamOut(request);
  } else {
    co_await WholeOut(request);
  }
  stream_->Abort();  // Nothing, unless it was left half way.
  co_await StopWatching();
  stream_ = nullptr;
}

asio::awaitable<void> HttpConnection::WholeOut(const Request& request) {
  while (!stream_->done() && !gone_) co_await WaitForNews(kForever);
  if (gone_) co_return;
  if (stream_->error().has_value()) {
    co_await WriteReply(request, ErrorReply(*stream_->error()));
  } else {
    HttpReply reply{.body = stream_->Whole()};
    co_await WriteReply(request, std::move(reply));
  }
}

asio::awaitable<void> HttpConnection::StreamOut(const Request& request) {
  const bool chunked = !request.http_1_0();
  if (!chunked) close_after_ = true;  // Its end is the connection's.
  const auto begin_by = steady_clock::now() + host_.limits.begin;
  while (!stream_->begun() && !stream_->done() && !gone_ && steady_clock::now() < begin_by) {
    co_await WaitForNews(host_.limits.begin);
  }
  if (!stream_->begun() && stream_->error().has_value()) {
    co_await WriteReply(request, ErrorReply(*stream_->error()));
    co_return;
  }
  stream_->Begin();
  HttpReply head{.content_type = std::string(stream_->format().StreamType()),
                 .headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}};
  host_.service.metrics().CountReply(request.head.target.route, head.status);
  std::string pending = HeadText(request, head, chunked ? Framing::kChunked : Framing::kToTheEnd);
  while (!gone_) {
    const bool last = stream_->done();
    if (std::string out = stream_->TakeOutput(); !out.empty()) pending += chunked ? HttpChunk(out) : out;
    if (last && chunked) pending += kLastChunk;
    if (stream_->error().has_value()) close_after_ = true;
    if (stream_->overflowed()) {
      spdlog::warn("a client was dropped: it left {} bytes of its stream unread", host_.limits.output_bytes_max);
      Close();
      break;
    }
    if (!pending.empty() && !co_await Write(std::exchange(pending, ""))) break;
    if (last) break;
    if (stream_->begun() && !stream_->done() && !stream_->HasOutput() && !gone_) {
      if (!co_await WaitForNews(host_.limits.comment) && !stream_->done() && !stream_->HasOutput())
        stream_->KeepAlive();
    }
  }
}

/// True = woken, false = the limit passed (or both).
asio::awaitable<bool> HttpConnection::WaitForNews(milliseconds limit) {
  news_.expires_after(limit);
  auto [error] = co_await news_.async_wait(kAwait);
  co_return error == asio::error::operation_aborted;
}

/// While a generation runs, reads ahead: the next request of a client that pipelines, or the end of one that left. (A
/// client that only closes its sending side counts as gone, too.)
void HttpConnection::Watch() {
  if (buffer_.size() >= host_.limits.header_bytes_max) return;  // Enough of the next request: no more is taken now.
  watching_ = true;
  channel_->Read(buffer_.prepare(kReadBytes), [self = shared_from_this()](error_code error, size_t bytes) {
    self->watching_ = false;
    self->buffer_.commit(bytes);
    if (!error && self->watch_wanted_) return self->Watch();
    // Cancelled by a deadline or by StopWatching: whoever did it acts.
    if (error && error != asio::error::operation_aborted) self->ClientGone();
    self->news_.cancel();
  });
}

asio::awaitable<void> HttpConnection::StopWatching() {
  watch_wanted_ = false;
  error_code ignored;
  socket_.cancel(ignored);
  while (watching_) co_await WaitForNews(kForever);
}

// ---- Writing.

std::string HttpConnection::HeadText(const Request& request, const HttpReply& reply, Framing framing) const {
  const auto status = static_cast<http::status>(reply.status);
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: kvist\r\nDate: {}\r\n", reply.status,
                                 std::string_view(http::obsolete_reason(status)), DateText(host_.service.unix_now_s()));
  const auto add = [&text](std::string_view name, std::string_view value) {
    text += fmt::format("{}: {}\r\n", name, value);
  };
  if (framing == Framing::kChunked) {
    add("Transfer-Encoding", "chunked");
  } else if (framing == Framing::kLength && reply.status != 204 && reply.status != 304) {
    add("Content-Length", std::to_string(reply.body.size()));
  }
  if (!reply.content_type.empty()) add("Content-Type", reply.content_type);
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : reply.headers) add(name, value);
  for (const auto& [name, value] : host_.service.CommonHeaders(request.head)) add(name, value);
  if (close_after_) {
    add("Connection", "close");
  } else if (request.http_1_0()) {
    add("Connection", "keep-alive");
  }
  return text + "\r\n";
}

asio::awaitable<void> HttpConnection::WriteReply(const Request& request, HttpReply reply) {
  reading_ = false;
  if (reply.error.has_value()) reply.body = ErrorBody(*reply.error, DialectOf(request.head.target.route));
  host_.service.metrics().CountReply(request.head.target.route, reply.status);
  spdlog::debug("{} {}: {}", request.head.request_id, RouteName(request.head.target.route), reply.status);
  std::string bytes = HeadText(request, reply, Framing::kLength);
  if (request.head.method != Method::kHead) bytes += reply.body;
  co_await Write(std::move(bytes));
}

asio::awaitable<bool> HttpConnection::Write(std::string bytes) {
  for (size_t written = 0; written < bytes.size();) {
    if (gone_) co_return false;
    Arm(host_.limits.write);
    auto [error, count] = co_await channel_->async_write_some(asio::buffer(bytes) + written, kAwait);
    Disarm();
    if (error) {
      ClientGone();
      co_return false;
    }
    written += count;
  }
  co_return true;
}

/// Says that nothing more comes and waits for the client to close: a hard close while its bytes are still arriving
/// would take the answer away from it.
asio::awaitable<void> HttpConnection::CloseGently() {
  error_code ignored;
  Arm(kLinger);
  if (!gone_) co_await channel_->SayGoodbye();
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  size_t dropped = 0;
  while (!gone_ && !timed_out_ && dropped < kLingerBytesMax) {
    buffer_.clear();
    auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) break;
    dropped += bytes;
  }
  Disarm();
  socket_.close(ignored);
}

}  // namespace kvist::serve
