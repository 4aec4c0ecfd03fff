#pragma once

/// @file
/// One client's connection: reads requests within limits of size and time, writes answers and streams, notices when the
/// client is gone. Network thread only. The only file that knows Beast. Non-goals: what is answered (service.h), how
/// bytes travel (byte_channel.h).

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "serve/byte_channel.h"
#include "serve/generation_stream.h"
#include "serve/server.h"
#include "serve/service.h"

namespace kvist::serve {

/// What connections need from the server; outlives them.
struct ConnectionHost {
  Service& service;
  StreamHost& streams;
  boost::asio::thread_pool& workers;
  const HttpLimits& limits;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(ConnectionHost& host, std::unique_ptr<ByteChannel> channel);

  /// Serves until either side ends. The caller keeps it running; it ends after Stop once the open request is answered.
  boost::asio::awaitable<void> Run();

  /// No more requests: closes now unless a request has come whole, else after its answer.
  void Stop();
  /// Ends the open generation with an error that the client gets.
  void Fail();
  /// Closes the socket whatever is under way.
  void Close();

 private:
  struct Request;
  enum class Framing : uint8_t { kLength, kChunked, kToTheEnd };  ///< How the body's end is told.

  boost::asio::awaitable<bool> Open();
  boost::asio::awaitable<bool> ReadRequest(Request& request);
  boost::asio::awaitable<bool> ReadBody(Request& request);
  boost::asio::awaitable<void> Handle(Request& request);
  boost::asio::awaitable<void> Generate(Request& request);
  boost::asio::awaitable<void> WholeOut(const Request& request);
  boost::asio::awaitable<void> StreamOut(const Request& request);
  boost::asio::awaitable<void> WriteReply(const Request& request, HttpReply reply);
  boost::asio::awaitable<bool> Write(std::string bytes);
  boost::asio::awaitable<bool> WaitForNews(std::chrono::milliseconds limit);
  boost::asio::awaitable<void> StopWatching();
  boost::asio::awaitable<void> CloseGently();
  boost::asio::awaitable<void> Refuse(Request& request, int http_status, std::string_view message);

  void Watch();
  void Arm(std::chrono::milliseconds limit);
  void WaitForDeadline();
  void Disarm();
  void ClientGone();
  std::string HeadText(const Request& request, const HttpReply& reply, Framing framing) const;

  ConnectionHost& host_;
  const std::unique_ptr<ByteChannel> channel_;
  boost::asio::ip::tcp::socket& socket_;      ///< The channel's.
  boost::beast::flat_buffer buffer_;          ///< Read and not yet parsed.
  boost::asio::steady_timer deadline_;        ///< Of the read or write under way.
  boost::asio::steady_timer news_;            ///< Never expires; cancelled to wake who waits for news.
  std::stop_source preparing_;                ///< Of the request that becomes a generation.
  std::shared_ptr<GenerationStream> stream_;  ///< The open generation.
  bool fresh_ = true;                         ///< Has not sent anything yet.
  bool reading_ = true;                       ///< Has no whole request to answer.
  bool close_after_ = false;                  ///< The open request is the last.
  bool timed_out_ = false;                    ///< The deadline passed.
  bool gone_ = false;                         ///< The client is.
  bool watching_ = false, watch_wanted_ = false;
};

}  // namespace kvist::serve
