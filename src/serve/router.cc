#include "serve/router.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "web/assets.h"

namespace kvist::serve {
namespace {

enum MethodSet : uint8_t { kRead = 1, kWrite = 2, kRemove = 4 };

struct RouteRow {
  Route route;
  std::string_view path;  ///< Ends in '/' where an id follows.
  uint8_t methods;
  std::string_view name;  ///< For metrics.
  Dialect dialect = Dialect::kOpenAi;
};

constexpr RouteRow kRoutes[] = {
    {Route::kChat, "/v1/chat/completions", kWrite, "chat"},
    {Route::kCompletions, "/v1/completions", kWrite, "completions"},
    {Route::kResponses, "/v1/responses", kWrite, "responses"},
    {Route::kResponse, "/v1/responses/", kRead | kRemove, "responses"},
    {Route::kMessages, "/v1/messages", kWrite, "messages", Dialect::kAnthropic},
    {Route::kCountTokens, "/v1/messages/count_tokens", kWrite, "count_tokens", Dialect::kAnthropic},
    {Route::kOllamaChat, "/api/chat", kWrite, "ollama_chat", Dialect::kOllama},
    {Route::kOllamaGenerate, "/api/generate", kWrite, "ollama_generate", Dialect::kOllama},
    {Route::kOllamaTags, "/api/tags", kRead, "ollama_tags", Dialect::kOllama},
    {Route::kOllamaPs, "/api/ps", kRead, "ollama_ps", Dialect::kOllama},
    {Route::kOllamaShow, "/api/show", kWrite, "ollama_show", Dialect::kOllama},
    {Route::kOllamaVersion, "/api/version", kRead, "ollama_version", Dialect::kOllama},
    {Route::kOllamaEmbed, "/api/embed", kWrite, "ollama_embed", Dialect::kOllama},
    {Route::kEmbeddings, "/v1/embeddings", kWrite, "embeddings"},
    {Route::kTokenize, "/tokenize", kWrite, "tokenize"},
    {Route::kDetokenize, "/detokenize", kWrite, "detokenize"},
    {Route::kModels, "/v1/models", kRead, "models"},
    {Route::kModel, "/v1/models/", kRead, "models"},
    {Route::kHealth, "/health", kRead, "health"},
    {Route::kMetrics, "/metrics", kRead, "metrics"},
    {Route::kMemory, "/kvist/memory", kRead, "memory"},
    {Route::kCapsules, "/kvist/capsules", kRead | kWrite, "capsules"},
    {Route::kCapsule, "/kvist/capsules/", kRead | kRemove, "capsules"},
    {Route::kRequests, "/kvist/requests", kRead, "requests"},
    {Route::kRequest, "/kvist/requests/", kRead, "requests"},
    {Route::kUsage, "/kvist/usage", kRead, "usage"},
    {Route::kState, "/kvist/state", kRead, "state"},
    {Route::kSteps, "/kvist/steps", kRead, "state"},
};
/// Without a path of their own.
constexpr RouteRow kAssetRow = {Route::kAsset, "", kRead, "page"};
constexpr RouteRow kNoRow = {Route::kNone, "", kRead, "none"};

const RouteRow& RowOf(Route route) {
  for (const RouteRow& row : kRoutes) {
    if (row.route == route) return row;
  }
  return route == Route::kAsset ? kAssetRow : kNoRow;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(text[i + 2]) : -1;
    out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
    if (low >= 0) i += 2;
  }
  return out;
}

namespace {

Target RouteOfPath(std::string_view path) {
  for (const RouteRow& row : kRoutes) {
    if (row.path == path) {
      if (row.path.ends_with('/')) return {};
      return {.route = row.route};
    }
    if (row.path.ends_with('/') && path.starts_with(row.path)) {
      return {.route = row.route, .argument = PercentDecoded(path.substr(row.path.size()))};
    }
  }
  if (web::FindAsset(path) != nullptr) return {.route = Route::kAsset, .argument = std::string(path)};
  return {};
}

}  // namespace

Target RouteOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {  // The form that proxies use; servers must know it.
    if (target.starts_with(scheme)) target.remove_prefix(std::min(target.find('/', scheme.size()), target.size()));
  }
  target = target.substr(0, target.find('#'));
  const size_t path_end = std::min(target.find('?'), target.size());
  Target found = RouteOfPath(target.substr(0, path_end));
  if (path_end < target.size()) found.query = target.substr(path_end + 1);
  return found;
}

std::string_view AllowedMethods(Route route) {
  switch (RowOf(route).methods) {
    case kWrite:
      return "POST, OPTIONS";
    case kRead | kWrite:
      return "GET, HEAD, POST, OPTIONS";
    case kRead | kRemove:
      return "GET, HEAD, DELETE, OPTIONS";
    default:
      return "GET, HEAD, OPTIONS";
  }
}

bool MethodAllowed(Route route, Method method) {
  switch (method) {
    case Method::kGet:
    case Method::kHead:
      return (RowOf(route).methods & kRead) != 0;
    case Method::kPost:
      return (RowOf(route).methods & kWrite) != 0;
    case Method::kDelete:
      return (RowOf(route).methods & kRemove) != 0;
    case Method::kOptions:
      return true;
    case Method::kOther:
      break;
  }
  return false;
}

bool NeedsKey(Route route) {
  return route != Route::kHealth && route != Route::kAsset;
}

Dialect DialectOf(Route route) {
  return RowOf(route).dialect;
}

std::string_view RouteName(Route route) {
  return RowOf(route).name;
}

}  // namespace kvist::serve
