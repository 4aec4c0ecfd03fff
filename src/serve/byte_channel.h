#pragma once

/// @file
/// The bytes of one connection, whether they travel as they are or encrypted. Which of the two is chosen once, where a
/// connection begins, so that what speaks HTTP is compiled once and knows no encryption. A channel is an asynchronous
/// stream as Asio and Beast want it; results come on the socket's executor. Network thread only. Non-goals: time
/// limits.

#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/functional/any_invocable.h"

namespace kvist::serve {

class ByteChannel {
 public:
  using Error = boost::system::error_code;
  using Done = absl::AnyInvocable<void(Error, size_t)>;
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  virtual ~ByteChannel() = default;

  /// To cancel, to close, and for bytes that nobody encrypts.
  virtual boost::asio::ip::tcp::socket& socket() = 0;
  executor_type get_executor() { return socket().get_executor(); }

  /// Agrees with the other side on how to go on; before anything else. Errors: those of the socket, of TLS.
  virtual boost::asio::awaitable<Error> Open() = 0;
  /// Tells the other side that nothing more comes, where that has a form of its own; the socket stays open.
  virtual boost::asio::awaitable<void> SayGoodbye() = 0;

  /// At least one byte, or an error. One Read and one Write at a time.
  virtual void Read(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void Write(boost::asio::const_buffer buffer, Done done) = 0;

  template <class Buffers, class Token>
  typename boost::asio::async_result<std::decay_t<Token>, void(Error, size_t)>::return_type async_read_some(
      const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, boost::asio::mutable_buffer first) { Read(first, std::move(handler)); }, token,
        boost::asio::mutable_buffer(*boost::asio::buffer_sequence_begin(buffers)));
  }

  template <class Buffers, class Token>
  typename boost::asio::async_result<std::decay_t<Token>, void(Error, size_t)>::return_type async_write_some(
      const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, boost::asio::const_buffer first) { Write(first, std::move(handler)); }, token,
        boost::asio::const_buffer(*boost::asio::buffer_sequence_begin(buffers)));
  }
};

/// Bytes travel as they are.
std::unique_ptr<ByteChannel> NewPlainChannel(boost::asio::ip::tcp::socket socket);

}  // namespace kvist::serve
