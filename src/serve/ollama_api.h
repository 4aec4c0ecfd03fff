#pragma once

/// @file
/// Ollama's API: POST /api/chat, /api/generate and /api/show, GET /api/tags, /api/ps and /api/version. Bodies to the
/// chat or text that they mean, and what is said of the model. What cannot be honoured is refused. Pure; any thread.
/// API: docs/serving.md, "Ollama's API". Format: https://github.com/ollama/ollama/blob/main/docs/api.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "serve/prompt.h"
#include "serve/request.h"

namespace kvist::serve {

/// Errors: InvalidArgument, with the field at fault; NotFound for another model.
absl::StatusOr<ChatRequest> ParseOllamaChat(std::string_view body, const RequestContext& context);

/// A chat with one question, or (`raw`, or where the model has no template) a text. Errors as above.
/// @param has_template  chats are possible
absl::StatusOr<std::variant<ChatRequest, CompletionRequest>> ParseOllamaGenerate(std::string_view body,
                                                                                 const RequestContext& context,
                                                                                 bool has_template);

/// Errors: those of the parsers, of RenderChat and of EncodeCompletion.
absl::StatusOr<PreparedRequest> PrepareOllamaChat(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s);
absl::StatusOr<PreparedRequest> PrepareOllamaGenerate(const ServedModel& model, const PastStates& past,
                                                      std::string_view body, int64_t now_unix_s);

std::string OllamaTagsBody(const ServedModel& model);
std::string OllamaRunningBody(const ServedModel& model);
std::string OllamaVersionBody();
/// Errors: NotFound for another model.
absl::StatusOr<std::string> OllamaShowBody(const ServedModel& model, std::string_view body);

}  // namespace kvist::serve
