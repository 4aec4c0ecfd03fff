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
    {"/kvist/capsules", Route::kCapsules},  {"/kvist/requests", Route::kRequests},
};
/// With an id behind.
constexpr RouteRow kPrefixes[] = {
    {"/v1/models/", Route::kModel}, {"/kvist/capsules/", Route::kCapsule}, {"/kvist/requests/", Route::kRequest}};

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

enum MethodSet : uint8_t { kRead = 1, kWrite = 2, kRemove = 4 };

uint8_t MethodsOf(Route route) {
  switch (route) {
    case Route::kChat:
    case Route::kCompletions:
      return kWrite;
    case Route::kCapsules:
      return kRead | kWrite;
    case Route::kCapsule:
      return kRead | kRemove;
    default:
      return kRead;
  }
}

}  // namespace

Target RouteOf(std::string_view target) {
  constexpr std::string_view kScheme = "http://";  // The form that proxies use; servers must know it.
  if (target.starts_with(kScheme)) target.remove_prefix(std::min(target.find('/', kScheme.size()), target.size()));
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  for (const RouteRow& row : kRoutes) {
    if (row.path == path) return {row.route, ""};
  }
  for (const RouteRow& row : kPrefixes) {
    if (path.starts_with(row.path) && path.size() > row.path.size()) {
      return {row.route, PercentDecoded(path.substr(row.path.size()))};
    }
  }
  if (web::FindAsset(path) != nullptr) return {Route::kAsset, std::string(path)};
  return {};
}

std::string_view AllowedMethods(Route route) {
  switch (MethodsOf(route)) {
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
      return (MethodsOf(route) & kRead) != 0;
    case Method::kPost:
      return (MethodsOf(route) & kWrite) != 0;
    case Method::kDelete:
      return (MethodsOf(route) & kRemove) != 0;
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
    case Route::kCapsules:
    case Route::kCapsule:
      return "capsules";
    case Route::kRequests:
    case Route::kRequest:
      return "requests";
    case Route::kAsset:
      return "page";
    case Route::kNone:
      break;
  }
  return "none";
}

}  // namespace kvist::serve
