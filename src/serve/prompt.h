#pragma once

/// @file
/// From the body of a request to what the engine wants and how the answer looks: parsing, the chat template,
/// tokenizing. This is the server's only heavy work besides the engine; it runs beside the network thread. Threads:
/// any. Non-goals: HTTP.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "engine/generation.h"
#include "modelfile/chat_prompt.h"
#include "modelfile/chat_template.h"
#include "modelfile/tokenizer.h"
#include "serve/answer_format.h"
#include "serve/capsules.h"
#include "serve/frame_sessions.h"
#include "serve/grammars.h"
#include "serve/output_parser.h"
#include "serve/request.h"
#include "serve/sessions.h"

namespace kvist::serve {

class ResponseStore;

/// What is told of the model's file, to clients that ask.
struct ModelDetails {
  std::string architecture;   ///< "llama", "qwen2", ...
  std::string weight_type;    ///< Of most of the weights: "q8_0", ...
  std::string chat_template;  ///< Its text; "" = none.
  uint64_t parameters = 0, file_bytes = 0;
};

/// The model behind the API. Immutable while the server lives; what it points to outlives the server.
struct ServedModel {
  std::string id;
  const Tokenizer* tokenizer = nullptr;
  /// Messages to prompt tokens, e.g. ChatEncoder::EncodeMarked; called from several threads. Empty when the model has
  /// no template.
  std::function<absl::StatusOr<MarkedPrompt>(ChatTemplateInputs, std::span<const uint32_t> marked)> encode_chat;
  std::string no_chat_because;  ///< Said to users when encode_chat is empty.
  /// Bytes of the text that encode_chat would tokenize; asked only about large requests. May be empty.
  std::function<absl::StatusOr<size_t>(const ChatTemplateInputs&)> chat_bytes;
  /// Output tokens that the text of a prompt (of a chat, its last message by the user) lets expect; 0 = cannot tell.
  /// Called from several threads. May be empty.
  std::function<uint32_t(std::string_view)> predict_output;
  uint32_t context_tokens_max = 0;  ///< Prompt and output together.
  uint32_t embedding_length = 0;    ///< Numbers of a state, and so of a vector of a text.
  bool is_emulated = false;         ///< Tokens are made up; there are no weights.
  int64_t created_unix_s = 0;
  std::string fingerprint;
  ModelDetails details;
  uint64_t block_bytes = 0;  ///< Of KV memory, a block.
  float forget_below = 0;    ///< For sessions that do not say it themselves; 0 = nothing fades (fading.h).
  /// Longer texts cannot fit the context whatever they say, and are refused before they are tokenized. 0 = no bound.
  size_t prompt_bytes_max = 0;
  ToolSyntax tools;                    ///< Of the chat template.
  std::shared_ptr<Grammars> grammars;  ///< Null = the server makes its own.
};

/// Most bytes of text that so many tokens of this vocabulary can stand for.
size_t TextBytesMax(const Tokenizer& tokenizer, uint32_t tokens);

struct PreparedRequest {
  std::vector<engine::GenerationRequest> generations;  ///< One per prompt, at least one.
  std::unique_ptr<AnswerFormat> format;
  std::shared_ptr<const OutputSyntax> syntax;   ///< How the output is taken apart; null = all of it is content.
  FrameWish frames;                             ///< A frame of the session, if it is one,
  std::unique_ptr<FrameSessions::Frame> frame;  ///< under way since it was let in (Service::Prepare).
  std::string session;                          ///< Under which prompt and answer are remembered; "" = not at all.
  std::optional<Turn> turn;  ///< When attention is measured: the first generation's mass_ranges are its messages.
};

/// What prompts may go on from, whose they are, and how long they are wanted.
struct PastStates {
  Sessions& sessions;
  Capsules& capsules;
  ResponseStore& responses;
  TenantId tenant{};        ///< Sessions, capsules and responses of others are not found.
  std::string cache_space;  ///< Texts share cached keys and values within it (CacheNamespaceOf).
  std::stop_token stop{};   ///< The client has left, or the server stops.

  /// A session's name among those of all tenants; "" stays "".
  std::string SessionName(const std::string& session) const {
    return session.empty() || tenant == TenantId{} ? session : Cat(tenant.value, ":", session);
  }
};

/// What a parser of request bodies needs to know. `model` and what `past` refers to outlive it.
RequestContext ContextOf(const ServedModel& model, const PastStates& past);

/// A chat of whatever protocol becomes a generation; the format is the caller's. Takes from `request` what it needs: of
/// the options, the generation. @param body_bytes  of the request, which the chat's text hardly exceeds
/// Errors: of the template, as InvalidArgument with "messages"; a prompt that does not fit the context,
/// InvalidArgument with code context_length_exceeded; Cancelled.
absl::StatusOr<PreparedRequest> RenderChat(const ServedModel& model, const PastStates& past, ChatRequest& request,
                                           size_t body_bytes, int64_t now_unix_s);

/// The same for a text. Errors: InvalidArgument, also with code context_length_exceeded; Cancelled.
absl::StatusOr<PreparedRequest> EncodeCompletion(const ServedModel& model, CompletionRequest& request,
                                                 const std::stop_token& stop);

/// What the format of an answer is told, all but kind and id.
AnswerInfo InfoOf(const ServedModel& model, const RequestOptions& options, int64_t now_unix_s);

/// POST /v1/chat/completions. Errors: those of ParseChatRequest and RenderChat.
absl::StatusOr<PreparedRequest> PrepareChat(const ServedModel& model, const PastStates& past, std::string_view body,
                                            int64_t now_unix_s);

/// POST /v1/completions. The prompt's text is the whole prompt: control tokens written in it are control tokens, and a
/// BOS it begins with is not doubled. Errors: those of ParseCompletionRequest and EncodeCompletion.
absl::StatusOr<PreparedRequest> PrepareCompletion(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s);

}  // namespace kvist::serve
