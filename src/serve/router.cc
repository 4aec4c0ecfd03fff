#include "serve/router.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "web/assets.h"

namespace kvist::serve {
namespace {

struct RouteRow {
  std::string_view path;
  Route route;
};

constexpr RouteRow kRoutes[] = {
    {"/v1/chat/completions", Route::kChat}, {"/v1/completions", Route::kCompletions},
    {"/v1/models", Route::kModels},         {"/health", Route::kHealth},
    {"/metrics", Route::kMetrics},          {"/kvist/memory", Route::kMemory},
};
constexpr std::string_view kModelPrefix = "/v1/models/";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

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

bool IsPost(Route route) {
  return route == Route::kChat || route == Route::kCompletions;
}

}  // namespace

Target RouteOf(std::string_view target) {
  constexpr std::string_view kScheme = "http://";  // The form that proxies use; servers must know it.
  if (target.starts_with(kScheme)) target.remove_prefix(std::min(target.find('/', kScheme.size()), target.size()));
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  for (const RouteRow& row : kRoutes) {
    if (row.path == path) return {row.route, ""};
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    return {Route::kModel, PercentDecoded(path.substr(kModelPrefix.size()))};
  }
  if (web::FindAsset(path) != nullptr) return {Route::kAsset, std::string(path)};
  return {};
}

std::string_view AllowedMethods(Route route) {
  return IsPost(route) ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

bool MethodAllowed(Route route, Method method) {
  switch (method) {
    case Method::kGet:
    case Method::kHead:
      return !IsPost(route);
    case Method::kPost:
      return IsPost(route);
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

std::string_view RouteName(Route route) {
  switch (route) {
    case Route::kChat:
      return "chat";
    case Route::kCompletions:
      return "completions";
    case Route::kModels:
    case Route::kModel:
      return "models";
    case Route::kHealth:
      return "health";
    case Route::kMetrics:
      return "metrics";
    case Route::kMemory:
      return "memory";
    case Route::kAsset:
      return "page";
    case Route::kNone:
      break;
  }
  return "none";
}

}  // namespace kvist::serve
