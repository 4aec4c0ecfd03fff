#include "modelstore/http_download.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include <curl/curl.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/byte_size.h"
#include "base/status.h"
#include "modelstore/resume_state.h"
#include "modelstore/sha256.h"

namespace kvist::modelstore {
namespace {

constexpr uint64_t kProgressBytes = 1u << 20;  // So much progress makes an attempt count as the first.
constexpr std::chrono::milliseconds kRetryWaitMax(60'000);
constexpr long kRedirectsMax = 10;
constexpr size_t kErrorTextBytesMax = 200;

std::string_view ToStd(absl::string_view text) {
  return {text.data(), text.size()};
}

/// A query may hold a signature: it is not shown.
std::string ShownUrl(const std::string& url) {
  return url.substr(0, url.find('?'));
}

struct ContentRange {
  uint64_t begin = 0;
  uint64_t total = 0;  ///< 0 = unknown.
  bool has_begin = false;
};

/// "bytes 100-199/1234" or "bytes */1234"; an unknown total is "*".
ContentRange ParseContentRange(std::string_view text) {
  ContentRange range;
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripPrefix(ToAbsl(text), "bytes "), absl::ByAnyChar("-/"));
  if (parts.size() == 3) range.has_begin = absl::SimpleAtoi(parts[0], &range.begin);
  if (!absl::SimpleAtoi(parts.back(), &range.total)) range.total = 0;
  return range;
}

/// The headers of one response that matter.
struct Headers {
  std::string etag, last_modified, content_range;

  std::string Validator() const { return !etag.empty() && !absl::StartsWith(etag, "W/") ? etag : last_modified; }
};

struct FreeCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// How one attempt ended.
struct AttemptEnd {
  absl::Status status;
  bool retry = false;                 ///< Trouble that may pass.
  std::chrono::milliseconds wait{0};  ///< As the server asks; 0 = it does not.
};

/// One try to get the rest of the file.
class Attempt {
 public:
  Attempt(const std::string& url, PartialFile& file, const std::string& state_path, const HttpOptions& options,
          const HttpEvents& events, ResumeState& state)
      : url_(url), file_(file), state_path_(state_path), options_(options), events_(events), state_(state) {}

  AttemptEnd Run();

 private:
  static size_t OnHeader(char* data, size_t, size_t bytes, void* self);
  static size_t OnBody(char* data, size_t, size_t bytes, void* self);
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

  void SetUp();
  bool BeginBody();
  absl::Status AcceptPart();
  absl::Status AcceptWhole();
  absl::Status Remember(uint64_t total_bytes);
  long Code() const;
  AttemptEnd Judge(CURLcode result);
  AttemptEnd JudgeStatus(long code);
  absl::Status Error(absl::StatusCode code, std::string_view text) const {
    return absl::Status(code, Cat(ShownUrl(url_), ": ", text));
  }

  const std::string& url_;
  const std::string url_sha256_ = Sha256OfText(url_);
  PartialFile& file_;
  const std::string& state_path_;
  const HttpOptions& options_;
  const HttpEvents& events_;
  ResumeState& state_;

  std::unique_ptr<CURL, FreeCurl> curl_{curl_easy_init()};
  std::unique_ptr<curl_slist, FreeList> request_headers_;
  char error_text_[CURL_ERROR_SIZE] = {};
  uint64_t offset_ = 0;        ///< Where the asked part begins; 0 = the whole file.
  Headers headers_;            ///< Of the last response so far.
  std::string linked_sha256_;  ///< From any response on the way.
  std::string refusal_;        ///< Start of the body of an error.
  bool body_begun_ = false, interrupted_ = false, complete_ = false, start_anew_ = false;
  absl::Status status_;  ///< Why the body was not taken.
};

size_t Attempt::OnHeader(char* data, size_t, size_t bytes, void* self) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  const absl::string_view line = absl::StripAsciiWhitespace(absl::string_view(data, bytes));
  if (absl::StartsWith(line, "HTTP/")) attempt.headers_ = {};  // Another response begins.
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return bytes;
  const absl::string_view name = line.substr(0, colon);
  const std::string value(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  if (absl::EqualsIgnoreCase(name, "etag")) attempt.headers_.etag = value;
  if (absl::EqualsIgnoreCase(name, "last-modified")) attempt.headers_.last_modified = value;
  if (absl::EqualsIgnoreCase(name, "content-range")) attempt.headers_.content_range = value;
  if (absl::EqualsIgnoreCase(name, "x-linked-etag")) {
    const absl::string_view digest = absl::StripSuffix(absl::StripPrefix(value, "\""), "\"");
    if (IsSha256(ToStd(digest))) attempt.linked_sha256_ = absl::AsciiStrToLower(digest);
  }
  return bytes;
}

size_t Attempt::OnBody(char* data, size_t, size_t bytes, void* self) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  const long code = attempt.Code();
  if (code != 200 && code != 206) {
    attempt.refusal_.append(
        data, std::min(bytes, kErrorTextBytesMax - std::min(kErrorTextBytesMax, attempt.refusal_.size())));
    return bytes;
  }
  if (!attempt.body_begun_ && !attempt.BeginBody()) return 0;
  attempt.status_ = attempt.file_.Append({data, bytes});
  return attempt.status_.ok() ? bytes : 0;
}

int Attempt::OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Attempt& attempt = *static_cast<Attempt*>(self);
  if (!attempt.events_.progress) return 0;
  if (!attempt.events_.progress(attempt.file_.size(), attempt.state_.total_bytes)) attempt.interrupted_ = true;
  return attempt.interrupted_ ? 1 : 0;
}

long Attempt::Code() const {
  long code = 0;
  curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &code);
  return code;
}

void Attempt::SetUp() {
  CURL* curl = curl_.get();
  const bool secure = absl::StartsWithIgnoreCase(url_, "https:");
  curl_easy_setopt(curl, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kRedirectsMax);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "kvist");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_text_);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  if (!options_.bearer_token.empty()) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options_.bearer_token.c_str());
  }
  if (offset_ > 0) {
    // Not CURLOPT_RESUME_FROM: whether the server may answer with the whole file is decided here.
    curl_easy_setopt(curl, CURLOPT_RANGE, Cat(offset_, "-").c_str());
    if (!state_.validator.empty()) {
      request_headers_.reset(curl_slist_append(nullptr, Cat("If-Range: ", state_.validator).c_str()));
      curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request_headers_.get());
    }
  }
}

AttemptEnd Attempt::Run() {
  if (curl_ == nullptr) return {absl::InternalError("libcurl does not start")};
  if (state_.url_sha256 != url_sha256_ || !state_.Resumable()) {
    state_ = {.url_sha256 = url_sha256_};
    if (absl::Status status = file_.Truncate(0); !status.ok()) return {status};
  }
  offset_ = file_.size();
  SetUp();
  const CURLcode result = curl_easy_perform(curl_.get());
  const long code = Code();
  if (result == CURLE_OK && !body_begun_ && (code == 200 || code == 206)) BeginBody();  // An empty body.
  if (status_.ok() && result == CURLE_OK && code == 416) {
    const ContentRange range = ParseContentRange(headers_.content_range);
    if (range.total == offset_ && offset_ > 0) {
      complete_ = true;
    } else {
      start_anew_ = true;
    }
  }
  if (start_anew_) {
    state_ = {.url_sha256 = url_sha256_};
    if (absl::Status status = file_.Truncate(0); !status.ok()) return {status};
    return {Error(absl::StatusCode::kUnavailable, "the file on the server changed"), /*retry=*/true};
  }
  return Judge(result);
}

/// Decides whether what is about to arrive belongs into the file.
bool Attempt::BeginBody() {
  body_begun_ = true;
  if (!options_.expected_sha256.empty() && !linked_sha256_.empty() && linked_sha256_ != options_.expected_sha256) {
    status_ = Error(absl::StatusCode::kDataLoss,
                    Cat("the server's file has SHA-256 ", linked_sha256_, ", expected ", options_.expected_sha256));
  } else {
    status_ = Code() == 206 ? AcceptPart() : AcceptWhole();
  }
  return status_.ok() && !start_anew_;
}

absl::Status Attempt::AcceptPart() {
  const ContentRange range = ParseContentRange(headers_.content_range);
  const std::string validator = headers_.Validator();
  const bool same_size = state_.total_bytes == 0 || range.total == 0 || range.total == state_.total_bytes;
  const bool same_file = state_.validator.empty() || validator.empty() || validator == state_.validator;
  const bool same_sha = state_.sha256.empty() || linked_sha256_.empty() || linked_sha256_ == state_.sha256;
  if (offset_ == 0 || !range.has_begin || range.begin != offset_ || !same_size || !same_file || !same_sha) {
    start_anew_ = true;
    return absl::OkStatus();
  }
  return Remember(range.total);
}

absl::Status Attempt::AcceptWhole() {
  if (offset_ > 0) {
    if (events_.notice) events_.notice("the server sends the whole file again: it changed, or it cannot be continued");
    KVIST_RETURN_IF_ERROR(file_.Truncate(0));
  }
  state_ = {.url_sha256 = url_sha256_, .validator = headers_.Validator()};
  curl_off_t length = -1;
  curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  return Remember(length > 0 ? static_cast<uint64_t>(length) : 0);
}

absl::Status Attempt::Remember(uint64_t total_bytes) {
  if (total_bytes > 0) state_.total_bytes = total_bytes;
  if (!linked_sha256_.empty()) state_.sha256 = linked_sha256_;
  state_.Save(state_path_);
  const uint64_t missing = state_.total_bytes - std::min(state_.total_bytes, file_.size());
  const uint64_t free = FreeDiskBytes(std::filesystem::path(file_.path()).parent_path().string());
  if (missing > free) {
    return absl::ResourceExhaustedError(
        Cat(file_.path(), ": ", FormatByteSize(missing), " more are needed, ", FormatByteSize(free), " are free"));
  }
  return absl::OkStatus();
}

AttemptEnd Attempt::Judge(CURLcode result) {
  if (!status_.ok()) return {status_};
  if (interrupted_) return {Error(absl::StatusCode::kCancelled, "interrupted; what has arrived is kept")};
  if (complete_) return {absl::OkStatus()};
  const long code = Code();
  if (result == CURLE_TOO_MANY_REDIRECTS) {
    return {Error(absl::StatusCode::kFailedPrecondition, Cat("more than ", kRedirectsMax, " redirects"))};
  }
  if (code != 0 && code != 200 && code != 206) return JudgeStatus(code);
  if (result == CURLE_OK) {
    if (state_.total_bytes > 0 && file_.size() != state_.total_bytes) {
      return {Error(absl::StatusCode::kUnavailable,
                    Cat("ended after ", file_.size(), " of ", state_.total_bytes, " bytes")),
              /*retry=*/true};
    }
    return {absl::OkStatus()};
  }
  std::string text = error_text_[0] != '\0' ? error_text_ : curl_easy_strerror(result);
  switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
      text = Cat("nothing arrived for ", options_.stall_timeout.count(), " s or the connection took too long");
      break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return {Error(absl::StatusCode::kFailedPrecondition, text)};
    default:
      break;
  }
  return {Error(absl::StatusCode::kUnavailable, text), /*retry=*/true};
}

AttemptEnd Attempt::JudgeStatus(long code) {
  std::string text = Cat("the server answers ", code);
  const std::string_view first_line =
      ToStd(absl::StripAsciiWhitespace(ToAbsl(std::string_view(refusal_).substr(0, refusal_.find('\n')))));
  const bool readable = !first_line.empty() && !first_line.starts_with("<") &&
                        std::ranges::all_of(first_line, [](unsigned char c) { return c >= ' ' && c != 0x7f; });
  if (readable) text += Cat(" (", first_line, ")");
  if (code == 404 || code == 410) return {Error(absl::StatusCode::kNotFound, text)};
  if (code == 401 || code == 403) return {Error(absl::StatusCode::kPermissionDenied, text)};
  const bool retry = code == 408 || code == 429 || code >= 500;
  curl_off_t wait_s = 0;
  curl_easy_getinfo(curl_.get(), CURLINFO_RETRY_AFTER, &wait_s);
  return {Error(retry ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition, text), retry,
          std::chrono::seconds(std::clamp<curl_off_t>(wait_s, 0, 60))};
}

/// Sleeps in short pieces. @return false when the caller wants to stop.
bool Wait(std::chrono::milliseconds time, const HttpEvents& events, const PartialFile& file, const ResumeState& state) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
    if (events.progress && !events.progress(file.size(), state.total_bytes)) return false;
    std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(100)));
  }
  return true;
}

}  // namespace

absl::StatusOr<HttpResult> Download(const std::string& url, PartialFile& file, const std::string& state_path,
                                    const HttpOptions& options, const HttpEvents& events) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  ResumeState state = ResumeState::Load(state_path);
  std::chrono::milliseconds back_off = options.retry_wait;
  for (uint32_t attempt = 1;; ++attempt) {
    const uint64_t before = file.size();
    const AttemptEnd end = Attempt(url, file, state_path, options, events, state).Run();
    if (end.status.ok()) return HttpResult{.sha256 = state.sha256};
    if (!end.retry) return end.status;
    if (file.size() >= before + kProgressBytes) {
      attempt = 1;
      back_off = options.retry_wait;
    }
    if (attempt >= options.attempts_max) return end.status;
    const std::chrono::milliseconds wait = std::max(back_off, end.wait);
    if (events.notice) {
      events.notice(Cat(ToStd(end.status.message()), "; trying again in ", (wait.count() + 999) / 1000, " s"));
    }
    if (!Wait(wait, events, file, state)) return absl::CancelledError(Cat(ShownUrl(url), ": interrupted"));
    back_off = std::min(2 * back_off, kRetryWaitMax);
  }
}

void RemoveState(const std::string& state_path) {
  std::error_code ignored;
  std::filesystem::remove(state_path, ignored);
}

}  // namespace kvist::modelstore
