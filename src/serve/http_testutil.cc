#include "serve/http_testutil.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace kvist::serve {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

HttpClient::HttpClient(uint16_t port, int receive_buffer_bytes) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes > 0)
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Close();
}

HttpClient::~HttpClient() {
  Close();
}

HttpClient::HttpClient(HttpClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), pending_(std::move(other.pending_)) {}

void HttpClient::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::SendGet(std::string_view path, std::string_view more_headers) {
  std::string text = "GET ";
  text.append(path).append(" HTTP/1.1\r\nHost: localhost\r\n").append(more_headers).append("\r\n");
  return Send(text);
}

bool HttpClient::SendPost(std::string_view path, std::string_view body, std::string_view more_headers) {
  std::string text = "POST ";
  text.append(path).append(" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ");
  text.append(std::to_string(body.size())).append("\r\n").append(more_headers).append("\r\n").append(body);
  return Send(text);
}

/// One more piece into pending_. False: closed, broken or too late.
bool HttpClient::Fill(steady_clock::time_point end) {
  if (socket_ < 0) return false;
  const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now()).count();
  pollfd poll_for{socket_, POLLIN, 0};
  if (left < 0 || poll(&poll_for, 1, static_cast<int>(left)) <= 0) return false;
  char piece[16384];
  const ssize_t got = recv(socket_, piece, sizeof piece, 0);
  if (got <= 0) return false;
  pending_.append(piece, static_cast<size_t>(got));
  return true;
}

std::optional<std::string> HttpClient::TakeLine(steady_clock::time_point end) {
  size_t at;
  while ((at = pending_.find("\r\n")) == std::string::npos) {
    if (!Fill(end)) return std::nullopt;
  }
  std::string line = pending_.substr(0, at);
  pending_.erase(0, at + 2);
  return line;
}

bool HttpClient::TakeBytes(size_t count, steady_clock::time_point end, std::string& out) {
  while (pending_.size() < count) {
    if (!Fill(end)) break;
  }
  const bool all = pending_.size() >= count;
  const size_t taken = std::min(count, pending_.size());
  out.append(pending_, 0, taken);
  pending_.erase(0, taken);
  return all;
}

bool HttpClient::TakeChunks(steady_clock::time_point end, std::string& out) {
  while (true) {
    const std::optional<std::string> line = TakeLine(end);
    size_t size = 0;
    if (!line || std::from_chars(line->data(), line->data() + line->size(), size, 16).ec != std::errc()) return false;
    if (size > 0 && !TakeBytes(size, end, out)) return false;
    if (!TakeLine(end)) return false;
    if (size == 0) return true;
  }
}

HttpResponse HttpClient::Read(bool to_head_request, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  HttpResponse response;
  const std::optional<std::string> status = TakeLine(end);
  if (!status || status->size() < 12 || !status->starts_with("HTTP/1.1 ")) return response;
  std::from_chars(status->data() + 9, status->data() + 12, response.status);
  while (true) {
    const std::optional<std::string> line = TakeLine(end);
    if (!line) return response;
    if (line->empty()) break;
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) return response;
    std::string name = line->substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = line->substr(colon + 2);
  }
  if (to_head_request || response.status == 204 || response.status == 304 || response.status == 100) {
    response.complete = true;
  } else if (response.headers.contains("transfer-encoding")) {
    response.complete = TakeChunks(end, response.body);
  } else if (response.headers.contains("content-length")) {
    response.complete = TakeBytes(std::stoul(response.headers["content-length"]), end, response.body);
  } else {
    TakeBytes(SIZE_MAX, end, response.body);  // To the end of the connection.
    response.complete = steady_clock::now() < end;
  }
  return response;
}

std::string HttpClient::ReadUntil(std::string_view text, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (pending_.find(text) == std::string::npos && Fill(end)) {
  }
  return std::exchange(pending_, "");
}

bool HttpClient::WaitForClose(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (Fill(end)) pending_.clear();
  return steady_clock::now() < end;
}

HttpResponse Get(uint16_t port, std::string_view path, std::string_view more_headers) {
  HttpClient client(port);
  client.SendGet(path, more_headers);
  return client.Read();
}

HttpResponse Post(uint16_t port, std::string_view path, std::string_view body, std::string_view more_headers) {
  HttpClient client(port);
  client.SendPost(path, body, more_headers);
  return client.Read();
}

std::vector<std::string> SseEvents(std::string_view body) {
  std::vector<std::string> events;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find("\n\n", begin), body.size());
    events.emplace_back(body.substr(begin, end - begin));
    begin = end + 2;
  }
  return events;
}

std::vector<std::string> SseData(std::string_view body) {
  std::vector<std::string> data;
  constexpr std::string_view kData = "data: ";
  for (const std::string& event : SseEvents(body)) {
    if (event.starts_with(kData)) data.emplace_back(event.substr(kData.size()));
  }
  return data;
}

}  // namespace kvist::serve
