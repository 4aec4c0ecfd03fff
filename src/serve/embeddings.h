#pragma once

/// @file
/// POST /v1/embeddings (OpenAI's shape) and /api/embed (Ollama's): texts to vectors. The vector of a text is the state
/// of its last token, as the head of the model reads it, divided by its length: what models that are trained for
/// embedding with last-token pooling want. Pure; any thread. API: docs/serving.md, "Embeddings".

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "serve/prompt.h"

namespace kvist::serve {

/// One generation for each text, without output. Errors: InvalidArgument, with the field at fault; NotFound for another
/// model; code context_length_exceeded.
absl::StatusOr<PreparedRequest> PrepareEmbeddings(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s);
absl::StatusOr<PreparedRequest> PrepareOllamaEmbed(const ServedModel& model, const PastStates& past,
                                                   std::string_view body, int64_t now_unix_s);

}  // namespace kvist::serve
