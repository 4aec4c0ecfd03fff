#pragma once

/// @file
/// From a request line to what it asks for. Pure; any thread. Non-goals: access, bodies.

#include <cstdint>
#include <string>
#include <string_view>

#include "serve/api_error.h"

namespace kvist::serve {

enum class Route : uint8_t {
  kChat,
  kCompletions,
  kResponses,
  kResponse,
  kMessages,
  kCountTokens,
  kOllamaChat,
  kOllamaGenerate,
  kOllamaTags,
  kOllamaPs,
  kOllamaShow,
  kOllamaVersion,
  kOllamaEmbed,
  kEmbeddings,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kHealth,
  kMetrics,
  kMemory,
  kState,
  kSteps,
  kCapsules,
  kCapsule,
  kRequests,
  kRequest,
  kUsage,
  kAsset,
  kNone
};

/// Methods as far as the server tells them apart.
enum class Method : uint8_t { kGet, kHead, kPost, kDelete, kOptions, kOther };

struct Target {
  Route route = Route::kNone;
  std::string argument;  ///< Of routes that end in an id: the id, percent-decoded. kAsset: the path.
  std::string query;     ///< What follows "?", as it came; "" = none.
};

/// @param target  of the request line: "/path?query". The query does not choose the route. A path that ends in one
/// slash too many is another path.
Target RouteOf(std::string_view target);

/// "%41" is "A"; what is no such escape stays.
std::string PercentDecoded(std::string_view text);

/// Value for the Allow header: "GET, HEAD, OPTIONS". REQUIRES: not kNone.
std::string_view AllowedMethods(Route route);

/// OPTIONS is allowed everywhere.
bool MethodAllowed(Route route, Method method);

/// Needs an API key where there is one.
bool NeedsKey(Route route);

/// Of the route's errors.
Dialect DialectOf(Route route);

/// For metrics: "chat", "models", ...
std::string_view RouteName(Route route);

}  // namespace kvist::serve
