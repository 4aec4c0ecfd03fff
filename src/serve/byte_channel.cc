#include "serve/byte_channel.h"

namespace kvist::serve {

namespace asio = boost::asio;

namespace {

class PlainChannel final : public ByteChannel {
 public:
  explicit PlainChannel(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  asio::ip::tcp::socket& socket() override { return socket_; }
  asio::awaitable<Error> Open() override { co_return Error(); }
  asio::awaitable<void> SayGoodbye() override { co_return; }
  void Read(asio::mutable_buffer buffer, Done done) override { socket_.async_read_some(buffer, std::move(done)); }
  void Write(asio::const_buffer buffer, Done done) override { socket_.async_write_some(buffer, std::move(done)); }

 private:
  asio::ip::tcp::socket socket_;
};

}  // namespace

std::unique_ptr<ByteChannel> NewPlainChannel(asio::ip::tcp::socket socket) {
  return std::make_unique<PlainChannel>(std::move(socket));
}

}  // namespace kvist::serve
