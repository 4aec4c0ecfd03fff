#pragma once

/// @file
/// Bodies of POST /v1/chat/completions and /v1/completions as checked, plain data. Every field is either read with its
/// exact type and bounds, refused because kvist cannot honour it yet, or unknown and ignored; nothing is bent silently.
/// Pure functions; any thread. Non-goals: tokenizing, templates (prompt.h), HTTP. Format:
/// https://platform.openai.com/docs/api-reference/chat/create and .../completions/create; own fields are listed in
/// docs/serving.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "engine/generation.h"
#include "serve/forget.h"
#include "serve/frame_wish.h"
#include "serve/json_input.h"
#include "serve/output_wish.h"

namespace kvist::serve {

/// What a request is checked against.
struct RequestContext {
  std::string_view model_id;  ///< The one served model; a request may also leave it out.
  uint32_t vocab_size = 0;    ///< Tokens.
  JsonLimits json;
  bool may_bias = true;          ///< Tokens come from a model, whose choice `logit_bias` can change.
  std::string cache_space = {};  ///< Of the tenant; "" = nobody's.
  /// The capsule of this name in a namespace, or nullptr. Empty = there are none.
  std::function<std::shared_ptr<const engine::Capsule>(uint64_t cache_namespace, std::string_view id)> find_capsule;
};

/// Prompts share cached keys and values only within a namespace: one for each salt of each cache space. 0 is that of no
/// salt and no space. No salt spells another space's namespace: what is hashed of a space has 64 bytes of digests. To
/// find a salt of one's own that collides with a given namespace takes 2^64 hashes.
uint64_t CacheNamespaceOf(std::string_view cache_space, std::string_view salt);

/// Common to both kinds.
struct RequestOptions {
  /// All but the prompt, the seed and strip_leading_space; of a restored capsule, these too.
  engine::GenerationRequest generation;
  bool restored = false;         ///< `generation` began as a capsule's.
  std::optional<uint64_t> seed;  ///< Not given = a fresh one.
  uint32_t choices = 1;
  bool stream = false;
  bool include_usage = false;  ///< A last chunk with the usage; only with `stream`.
  bool logprobs = false;
  ForgetRules forget;
  FrameWish frames;
  OutputWish wish;
};

struct ChatRequest {
  RequestOptions options;
  /// Objects with "role" and a string "content": at least one, or none to go on with a restored answer.
  boost::json::array messages;
  MessageMarks marks;                  ///< Messages that leave the view, may leave it, or are to stay cached.
  boost::json::value tools;            ///< Array of function tools, or null.
  boost::json::object template_extra;  ///< chat_template_kwargs, and reasoning_effort when given.
};

/// A text or its tokens.
using TextOrTokens = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  RequestOptions options;
  /// At least one. Of a restored generation exactly one: empty text = go on with it; other prompts follow it.
  std::vector<TextOrTokens> prompts;
  bool echo = false;  ///< The outputs begin with their prompts; with `options.logprobs`, these have theirs too.

  /// Of a prompt, for errors.
  std::string PlaceOf(size_t index) const;
};

/// Errors: InvalidArgument, with the field at fault (api_error.h); NotFound for another model (code model_not_found).
absl::StatusOr<ChatRequest> ParseChatRequest(std::string_view body, const RequestContext& context);
absl::StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body, const RequestContext& context);

/// What parsers of request bodies share, those of other protocols too.
namespace internal {

/// The object that a body is.
absl::StatusOr<const boost::json::object*> RootObject(const JsonDocument& document);

/// "model": not given, the served one, or that with ":latest". Errors: NotFound, code model_not_found.
absl::Status ReadModel(const Fields& body, std::string_view served);

/// Temperature, truncation, penalties and seed.
absl::Status ReadSampling(const Fields& body, RequestOptions& options);

/// Appends token ids. @param name  of the list, for errors
absl::Status ReadTokens(const boost::json::array& list, std::string_view name, uint32_t vocab_size,
                        std::vector<TokenId>& tokens);

/// A string or an array of strings; empty ones are nothing.
absl::Status ReadStopStrings(const Fields& body, std::string_view key, std::vector<std::string>& stops);

/// "cache_salt" and all under "kvist".
absl::Status ReadOwnFields(const Fields& body, const RequestContext& context, RequestOptions& options);

/// Model, streaming, sampling, stops and own fields: what both kinds have in common.
absl::Status ReadOptions(const Fields& body, const RequestContext& context, RequestOptions& options);

/// "kvist.capsule" and "kvist.restore". Before sampling is read: what the request does not say is the capsule's.
absl::Status ReadCapsule(const Fields& body, const Fields& own, const RequestContext& context, RequestOptions& options);

/// A string, or text parts of these types joined by line breaks; "" when not given.
absl::StatusOr<std::string> ReadText(const Fields& fields, std::string_view key,
                                     std::span<const std::string_view> part_types);

/// "messages": roles and contents checked, contents made strings, arguments of tool calls made objects.
absl::Status ReadMessages(const Fields& body, boost::json::array& messages);

/// "response_format", "grammar" and other servers' names for these; "reasoning_format".
absl::Status ReadOutputWish(const Fields& body, OutputWish& wish);

/// "tools", "tool_choice" and "parallel_tool_calls". `tools` are those that are offered.
absl::Status ReadTools(const Fields& body, boost::json::value& tools, OutputWish& wish);

}  // namespace internal
}  // namespace kvist::serve
