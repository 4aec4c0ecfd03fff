#pragma once

/// @file
/// POST /v1/messages and /v1/messages/count_tokens: bodies in Anthropic's shape, to the chat that they mean. What
/// cannot be honoured is refused. Pure; any thread. API: docs/serving.md, "Anthropic's messages". Format:
/// https://docs.anthropic.com/en/api/messages.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "serve/prompt.h"
#include "serve/request.h"

namespace kvist::serve {

/// @param counts_only  for count_tokens, where nothing is generated: "max_tokens" need not be there.
/// Errors: InvalidArgument, with the field at fault; NotFound for another model.
absl::StatusOr<ChatRequest> ParseMessagesRequest(std::string_view body, const RequestContext& context,
                                                 bool counts_only = false);

/// Errors: those of ParseMessagesRequest and RenderChat.
absl::StatusOr<PreparedRequest> PrepareMessages(const ServedModel& model, const PastStates& past, std::string_view body,
                                                int64_t now_unix_s);

/// Answer to count_tokens. Errors as above.
absl::StatusOr<std::string> CountTokensBody(const ServedModel& model, const PastStates& past, std::string_view body,
                                            int64_t now_unix_s);

}  // namespace kvist::serve
