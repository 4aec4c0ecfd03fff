#include "serve/tokenize.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/api_error.h"
#include "serve/json_output.h"
#include "serve/request.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

/// Text whose characters are whole: what a token has of one becomes U+FFFD.
std::string Shown(std::string bytes) {
  std::string text;
  TakeCharacters(bytes, /*last=*/true, text);
  return text;
}

/// A piece as text, or as its bytes where it is none.
json::value PieceOf(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  if (ValidUtf8Prefix(bytes) == bytes.size()) return json::string(bytes);
  json::array list;
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

json::array IdsOf(const std::vector<TokenId>& tokens) {
  json::array ids;
  ids.reserve(tokens.size());
  for (const TokenId token : tokens) ids.push_back(token.value);
  return ids;
}

/// What says what is to be encoded: one of these.
constexpr std::string_view kTexts[] = {"content", "prompt", "messages"};
/// Fields of any shape, so that a wrong type is told whatever it stands beside.
constexpr std::string_view kTruths[] = {"add_special",           "parse_special",      "with_pieces",
                                        "add_generation_prompt", "add_special_tokens", "return_token_strs",
                                        "continue_final_message"};

absl::Status CheckFields(const Fields& body) {
  std::string_view given;
  for (const std::string_view key : kTexts) {
    if (body.Find(key) == nullptr) continue;
    if (!given.empty()) return body.Bad(key, Cat("cannot be combined with '", given, "'"));
    given = key;
  }
  for (const std::string_view key : kTruths) {
    bool wanted = false;
    KVIST_RETURN_IF_ERROR(body.Read(key, wanted));
    const bool unsupported = key == "return_token_strs" || key == "continue_final_message";
    if (wanted && unsupported) return body.Bad(key, "is not supported");
  }
  return absl::OkStatus();
}

/// llama.cpp's shape.
absl::StatusOr<std::string> TokenizeContent(const Tokenizer& tokenizer, const Fields& body) {
  std::string content;
  EncodeOptions options{.add_special = false, .parse_special = true};
  bool with_pieces = false;
  KVIST_RETURN_IF_ERROR(body.Read("content", content));
  KVIST_RETURN_IF_ERROR(body.Read("add_special", options.add_special));
  KVIST_RETURN_IF_ERROR(body.Read("parse_special", options.parse_special));
  KVIST_RETURN_IF_ERROR(body.Read("with_pieces", with_pieces));
  const std::vector<TokenId> tokens = tokenizer.Encode(content, options);
  if (!with_pieces) return JsonText(json::object{{"tokens", IdsOf(tokens)}});
  json::array pieces;
  for (const TokenId token : tokens) {
    pieces.push_back(json::object{{"id", token.value}, {"piece", PieceOf(tokenizer, token)}});
  }
  return JsonText(json::object{{"tokens", std::move(pieces)}});
}

/// vLLM's shape.
std::string CountedBody(const ServedModel& model, const std::vector<TokenId>& tokens) {
  return JsonText(
      json::object{{"count", tokens.size()}, {"max_model_len", model.context_tokens_max}, {"tokens", IdsOf(tokens)}});
}

absl::StatusOr<std::string> TokenizeChat(const ServedModel& model, const Fields& body, int64_t now_unix_s) {
  if (!model.encode_chat) {
    return absl::InvalidArgumentError(
        Cat("the model '", model.id, "' cannot chat: ", model.no_chat_because, "; send 'prompt'"));
  }
  ChatTemplateInputs inputs{.now_unix_s = now_unix_s};
  KVIST_RETURN_IF_ERROR(internal::ReadMessages(body, inputs.messages));
  OutputWish wish;  // A forced call changes what may follow the prompt, not the prompt.
  KVIST_RETURN_IF_ERROR(internal::ReadTools(body, inputs.tools, wish));
  KVIST_RETURN_IF_ERROR(body.Read("add_generation_prompt", inputs.add_generation_prompt));
  KVIST_ASSIGN_OR_RETURN(const json::object* extra, body.ReadObject("chat_template_kwargs"));
  if (extra != nullptr) inputs.extra = json::object(*extra, json::storage_ptr());
  const absl::StatusOr<MarkedPrompt> prompt = model.encode_chat(std::move(inputs), {});
  if (!prompt.ok()) {
    return BadParam("messages", Cat("the model's chat template refused the messages: ", prompt.status().message()));
  }
  return CountedBody(model, prompt->tokens);
}

}  // namespace

absl::StatusOr<std::string> TokenizeBody(const ServedModel& model, std::string_view text, int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, model.id));
  KVIST_RETURN_IF_ERROR(CheckFields(body));
  if (body.Find("content") != nullptr) return TokenizeContent(*model.tokenizer, body);
  if (body.Find("messages") != nullptr) return TokenizeChat(model, body, now_unix_s);
  if (body.Find("prompt") == nullptr) return body.Bad("content", "is missing, and so are 'prompt' and 'messages'");
  std::string prompt;
  EncodeOptions options{.add_special = true, .parse_special = true};
  KVIST_RETURN_IF_ERROR(body.Read("prompt", prompt));
  KVIST_RETURN_IF_ERROR(body.Read("add_special_tokens", options.add_special));
  return CountedBody(model, model.tokenizer->Encode(prompt, options));
}

absl::StatusOr<std::string> DetokenizeBody(const ServedModel& model, std::string_view text) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, model.id));
  KVIST_ASSIGN_OR_RETURN(const json::array* list, body.ReadArray("tokens"));
  if (list == nullptr) return body.Bad("tokens", "is missing");
  std::vector<TokenId> tokens;
  KVIST_RETURN_IF_ERROR(internal::ReadTokens(*list, "tokens", model.tokenizer->vocab_size(), tokens));
  const std::string shown = Shown(model.tokenizer->Decode(tokens, /*render_control=*/true));
  return JsonText(json::object{{"content", shown}, {"prompt", shown}});
}

}  // namespace kvist::serve
