#pragma once

/// @file
/// A blocking HTTP client for tests: small, and able to misbehave. One thread per client. Nothing here fails a test by
/// itself.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvist::serve {

inline constexpr char kChatPath[] = "/v1/chat/completions";
inline constexpr char kTextPath[] = "/v1/completions";

struct HttpResponse {
  int status = 0;                              ///< 0 = none came.
  std::map<std::string, std::string> headers;  ///< Names in lower case.
  std::string body;                            ///< Without chunk framing.
  bool complete = false;                       ///< Ended as its framing says.
};

class HttpClient {
 public:
  /// Connects to 127.0.0.1. @param receive_buffer_bytes  0 = the system's choice
  explicit HttpClient(uint16_t port, int receive_buffer_bytes = 0);
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&&) = delete;

  bool connected() const { return socket_ >= 0; }
  /// Of the open socket, for polling.
  int descriptor() const { return socket_; }

  /// Sends bytes as they are. @return false when the server has closed.
  bool Send(std::string_view bytes);
  bool SendGet(std::string_view path, std::string_view more_headers = "");
  /// @param more_headers  whole lines, each with its "\r\n"
  bool SendPost(std::string_view path, std::string_view body, std::string_view more_headers = "");

  /// Next response on this connection.
  HttpResponse Read(bool to_head_request = false, std::chrono::milliseconds limit = std::chrono::seconds(60));
  /// Reads raw bytes until `text` has come, the server closes or the time is over. Returns all of them.
  std::string ReadUntil(std::string_view text, std::chrono::milliseconds limit = std::chrono::seconds(60));
  /// True when the server closes within the limit; drops what comes before.
  bool WaitForClose(std::chrono::milliseconds limit);

  /// Closes; with unread data the server sees a reset.
  void Close();

 private:
  bool Fill(std::chrono::steady_clock::time_point end);
  std::optional<std::string> TakeLine(std::chrono::steady_clock::time_point end);
  bool TakeBytes(size_t count, std::chrono::steady_clock::time_point end, std::string& out);
  bool TakeChunks(std::chrono::steady_clock::time_point end, std::string& out);

  int socket_ = -1;
  std::string pending_;  ///< Received and not yet taken.
};

/// One request on a connection of its own.
HttpResponse Get(uint16_t port, std::string_view path, std::string_view more_headers = "");
HttpResponse Post(uint16_t port, std::string_view path, std::string_view body, std::string_view more_headers = "");

/// The events of a stream, comments included, without the empty line behind.
std::vector<std::string> SseEvents(std::string_view body);
/// Data of the events of a stream that have no name, in order, comments left out.
std::vector<std::string> SseData(std::string_view body);

}  // namespace kvist::serve
