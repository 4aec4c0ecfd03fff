#include "modelstore/store.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <vector>

#include <curl/curl.h>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "modelstore/known_models.h"
#include "modelstore/sha256.h"

namespace kvist::modelstore {
namespace {

constexpr std::string_view kHubPrefix = "hf:";
constexpr size_t kSegmentBytesMax = 200;  // File systems take 255; ".part.json" must fit behind it.

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeText {
  void operator()(char* text) const { curl_free(text); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// A path segment that is safe as a file's name.
absl::Status CheckSegment(std::string_view segment, std::string_view name) {
  const bool plain = std::ranges::all_of(segment, [](unsigned char c) { return c > ' ' && c != 0x7f && c != '\\'; });
  if (segment.empty() || segment.front() == '.' || segment.size() > kSegmentBytesMax || !plain) {
    return absl::InvalidArgumentError(Cat(name, ": \"", segment, "\" cannot be part of a model's name"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Source> ParseHubName(std::string_view name, std::string_view hub) {
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(name.substr(kHubPrefix.size())), '/');
  if (parts.size() < 3) return absl::InvalidArgumentError(Cat(name, ": expected hf:OWNER/REPO/FILE"));
  std::vector<std::string> escaped;
  for (const std::string& part : parts) {
    KVIST_RETURN_IF_ERROR(CheckSegment(part, name));
    const std::unique_ptr<char, FreeText> text(curl_easy_escape(nullptr, part.data(), static_cast<int>(part.size())));
    escaped.emplace_back(text.get());
  }
  const std::string file = absl::StrJoin(escaped.begin() + 2, escaped.end(), "/");
  return Source{.kind = SourceKind::kHub,
                .url = Cat(hub, "/", escaped[0], "/", escaped[1], "/resolve/main/", file),
                .relative_path = Cat("hf/", absl::StrJoin(parts, "/"))};
}

/// @return  empty when the URL lacks it.
std::string PartOf(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  return std::unique_ptr<char, FreeText>(text).get();
}

absl::StatusOr<Source> ParseUrl(std::string_view name) {
  const Url url(curl_url());
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, std::string(name).c_str(), 0);
  if (code != CURLUE_OK) return absl::InvalidArgumentError(Cat(name, ": ", curl_url_strerror(code)));
  if (!PartOf(url.get(), CURLUPART_USER).empty()) {
    return absl::InvalidArgumentError("a URL with a user name in it is not taken");
  }
  std::string host = PartOf(url.get(), CURLUPART_HOST);
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string port = PartOf(url.get(), CURLUPART_PORT);
  std::string path = Cat("url/", host, port.empty() ? "" : ":", port);
  const std::string query = PartOf(url.get(), CURLUPART_QUERY);
  if (!query.empty() && query != "download=true") path += Cat("/", Sha256OfText(query).substr(0, 8));
  const std::string url_path = PartOf(url.get(), CURLUPART_PATH);
  for (const absl::string_view segment : absl::StrSplit(absl::StripPrefix(url_path, "/"), '/')) {
    KVIST_RETURN_IF_ERROR(CheckSegment({segment.data(), segment.size()}, name));
    path += Cat("/", segment);
  }
  return Source{.kind = SourceKind::kUrl, .url = std::string(name), .relative_path = path};
}

}  // namespace

absl::StatusOr<std::string> StoreFolder() {
  if (const std::string_view folder = Environment("KVIST_MODELS"); !folder.empty()) return std::string(folder);
  if (const std::string_view data = Environment("XDG_DATA_HOME"); !data.empty()) return Cat(data, "/kvist/models");
  if (const std::string_view home = Environment("HOME"); !home.empty()) return Cat(home, "/.local/share/kvist/models");
  return absl::FailedPreconditionError("no folder for models: set KVIST_MODELS or HOME");
}

bool IsRemoteName(std::string_view name) {
  return name.starts_with(kHubPrefix) || name.starts_with("https://") || name.starts_with("http://");
}

absl::StatusOr<Source> ParseSource(std::string_view name, std::string_view hub) {
  if (FindKnownModel(name) != nullptr) {
    return Source{.kind = SourceKind::kKnown, .url = "", .relative_path = Cat(name, ".gguf")};
  }
  if (name.starts_with(kHubPrefix)) return ParseHubName(name, hub);
  if (IsRemoteName(name)) return ParseUrl(name);
  const std::string names =
      absl::StrJoin(KnownModels(), ", ", [](std::string* out, const KnownModel& model) { out->append(model.name); });
  return absl::NotFoundError(
      Cat("no model is called \"", name, "\"; known: ", names, "; else hf:OWNER/REPO/FILE or an http(s) URL"));
}

std::string HubEndpoint() {
  std::string_view endpoint = Environment("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  return endpoint.empty() ? "https://huggingface.co" : std::string(endpoint);
}

}  // namespace kvist::modelstore
