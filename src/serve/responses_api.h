#pragma once

/// @file
/// POST /v1/responses: bodies in the shape of OpenAI's Responses API, to the chat that they mean, and the responses
/// that are kept for later ones to go on from. What cannot be honoured is refused. Threads: any. API: docs/serving.md,
/// "Responses". Format: https://platform.openai.com/docs/api-reference/responses/create.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "serve/bounded_store.h"
#include "serve/prompt.h"
#include "serve/request.h"

namespace kvist::serve {

/// A response that another may go on from.
struct StoredResponse {
  TenantId tenant{};
  uint64_t cache_namespace = 0;
  boost::json::array messages;  ///< All of its chat without the instructions, its answer last.
  std::string body;
};

/// By id; the one unused for longest goes first.
class ResponseStore : public BoundedStore<std::shared_ptr<const StoredResponse>> {
 public:
  explicit ResponseStore(size_t responses_max = 4096, size_t tokens_max = size_t{16} << 20)
      : BoundedStore(responses_max, tokens_max) {}
};

struct ResponsesRequest {
  ChatRequest chat;
  bool store = true;
  boost::json::array remembered;  ///< With `store`: its messages without the instructions.
  boost::json::object shown;      ///< Fields of the request that stand in the response again.
};

/// @param find  the response of an id in a namespace, or nullptr
/// Errors: InvalidArgument, with the field at fault; NotFound for another model or an unknown previous response.
absl::StatusOr<ResponsesRequest> ParseResponsesRequest(
    std::string_view body, const RequestContext& context,
    const std::function<std::shared_ptr<const StoredResponse>(uint64_t cache_namespace, std::string_view id)>& find);

/// Errors: those of ParseResponsesRequest and RenderChat.
absl::StatusOr<PreparedRequest> PrepareResponse(const ServedModel& model, const PastStates& past, std::string_view body,
                                                int64_t now_unix_s);

}  // namespace kvist::serve
