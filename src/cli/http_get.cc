#include "cli/http_get.h"

#include <memory>

#include <curl/curl.h>

#include <boost/json.hpp>

#include "base/status.h"

namespace kvist::cli {
namespace {

constexpr size_t kBodyBytesMax = 16u << 20;
constexpr long kConnectSeconds = 10, kSeconds = 30;

size_t Append(char* data, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kBodyBytesMax) return 0;  // Ends the transfer.
  text.append(data, size * count);
  return size * count;
}

/// What an error's body says, or that it says nothing.
std::string MessageOf(const std::string& body, long http_status) {
  boost::json::error_code error;
  const boost::json::value parsed = boost::json::parse(body, error);
  if (!error) {
    const boost::json::value* message = parsed.find_pointer("/error/message", error);
    if (message != nullptr && message->is_string()) return std::string(message->get_string().c_str());
  }
  return Cat("the server answers with ", http_status);
}

absl::Status StatusOf(const std::string& url, const std::string& body, long http_status) {
  const std::string text = Cat(url, ": ", MessageOf(body, http_status));
  switch (http_status) {
    case 401:
      return absl::UnauthenticatedError(text);
    case 403:
      return absl::PermissionDeniedError(text);
    case 404:
      return absl::NotFoundError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& url, const std::string& bearer_token,
                                    const std::string& ca_file) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  if (curl == nullptr) return absl::InternalError("libcurl does not start");
  std::string body;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, &curl_slist_free_all);
  if (!bearer_token.empty()) {
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + bearer_token).c_str()));
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  }
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, kSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  if (!ca_file.empty()) curl_easy_setopt(curl.get(), CURLOPT_CAINFO, ca_file.c_str());
  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_SSL_CACERT_BADFILE)
    return absl::InvalidArgumentError(Cat("--ca-file ", ca_file, ": cannot be read"));
  if (code == CURLE_WRITE_ERROR) {
    return absl::ResourceExhaustedError(Cat(url, ": the answer has more than ", kBodyBytesMax, " bytes"));
  }
  if (code != CURLE_OK) {
    return absl::UnavailableError(
        Cat(url, ": ", curl_easy_strerror(code),
            code == CURLE_PEER_FAILED_VERIFICATION ? "; --ca-file names whom to believe" : ""));
  }
  long http_status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &http_status);
  if (http_status != 200) return StatusOf(url, body, http_status);
  return body;
}

}  // namespace kvist::cli
