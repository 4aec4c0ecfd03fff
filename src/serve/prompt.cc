#include "serve/prompt.h"

#include <algorithm>
#include <utility>

#include <openssl/rand.h>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/api_error.h"
#include "serve/openai_format.h"
#include "serve/output_rules.h"

namespace kvist::serve {
namespace {

uint64_t FreshSeed() {
  uint64_t seed = 0;
  KVIST_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed) == 1);
  return seed;
}

absl::Status CheckLength(const ServedModel& model, size_t prompt_tokens, std::string_view param) {
  if (prompt_tokens == 0) return BadParam(param, Cat("'", param, "' gives an empty prompt"));
  if (prompt_tokens < model.context_tokens_max) return absl::OkStatus();
  return WithCode(BadParam(param, Cat("the prompt has ", prompt_tokens,
                                      " tokens, but prompt and output together can have ", model.context_tokens_max)),
                  "context_length_exceeded");
}

/// Before anything is tokenized.
absl::Status CheckBytes(const ServedModel& model, size_t prompt_bytes, std::string_view param) {
  if (model.prompt_bytes_max == 0 || prompt_bytes <= model.prompt_bytes_max) return absl::OkStatus();
  return WithCode(BadParam(param, Cat("the prompt has ", prompt_bytes, " bytes, but the context of ",
                                      model.context_tokens_max, " tokens holds at most ", model.prompt_bytes_max)),
                  "context_length_exceeded");
}

/// The parts that both kinds share.
/// @param prompt  empty = the generation goes on from the state that it was restored to.
engine::GenerationRequest Assemble(const ServedModel& model, RequestOptions& options, std::vector<TokenId> prompt) {
  engine::GenerationRequest generation = std::move(options.generation);
  generation.sampling.seed = options.seed ? *options.seed : FreshSeed();
  if (!prompt.empty()) {
    // After a control token text begins anew, and the space that some vocabularies put there is not the model's.
    generation.strip_leading_space = model.tokenizer->IsBreak(prompt.back());
    generation.prompt = std::move(prompt);
    generation.prompt_output_tokens = 0;
  }
  return generation;
}

/// @param follows  other tokens, so that no BOS belongs before it.
std::vector<TokenId> EncodeText(const Tokenizer& tokenizer, std::string_view text, bool follows) {
  if (follows) return tokenizer.Encode(text, {.add_special = false, .parse_special = true});
  const std::string_view bos = tokenizer.bos() ? tokenizer.Piece(*tokenizer.bos()) : std::string_view();
  const bool has_bos = !bos.empty() && text.starts_with(bos);
  std::vector<TokenId> tokens = tokenizer.Encode(text, {.add_special = !has_bos, .parse_special = true});
  // An EOS would end the text that is to be continued.
  if (!has_bos && tokenizer.adds_eos() && !tokens.empty() && tokens.back() == tokenizer.eos()) tokens.pop_back();
  return tokens;
}

/// A restored generation goes on as it is, if it fits.
absl::Status CheckState(const ServedModel& model, const engine::GenerationRequest& state) {
  const auto tokens = static_cast<uint32_t>(state.prompt.size());
  return CheckLength(model, kv::LiveText::Peak(tokens, state.ops).tokens, "kvist.restore");
}

/// Indices of the messages whose places the prompt has to tell, increasing.
/// @param all_texts  Those that say something, too: their attention is measured.
std::vector<uint32_t> MarkedMessages(const MessageMarks& marks, const boost::json::array& messages, bool all_texts) {
  std::vector<uint32_t> marked = marks.forgotten;
  for (uint32_t i = 0; all_texts && i < messages.size(); ++i) {
    if (HasText(messages[i])) marked.push_back(i);
  }
  for (const MessageMarks::Retained& retained : marks.retained) marked.push_back(retained.message);
  std::ranges::sort(marked);
  marked.erase(std::ranges::unique(marked).begin(), marked.end());
  return marked;
}

/// Of each message with an index in `marked`, where its content lies.
TokenRange ContentOf(const MarkedPrompt& prompt, std::span<const uint32_t> marked, uint32_t message) {
  const auto place = static_cast<size_t>(std::ranges::lower_bound(marked, message) - marked.begin());
  return {prompt.ranges[place].begin, prompt.ranges[place].end};
}

/// The turn that a chat begins, with what its session remembers of the messages.
Turn TurnOf(const MessageMarks& marks, const MarkedPrompt& prompt, std::span<const uint32_t> marked,
            const SessionState& past, float forget_below) {
  Turn turn{.forget_below = forget_below, .messages = {}};
  for (const uint32_t message : marked) {
    const TokenRange range = ContentOf(prompt, marked, message);
    if (range.begin >= range.end) continue;
    turn.messages.push_back({.index = message,
                             .tokens = range,
                             .may_fade = marks.may_fade[message],
                             .dropped = std::ranges::binary_search(marks.forgotten, message)});
  }
  if (forget_below > 0) Recall(prompt.tokens, past.messages, turn);
  return turn;
}

/// Wishes for messages, as ranges of the text that is read.
void AddRetained(const MessageMarks& marks, const MarkedPrompt& prompt, std::span<const uint32_t> marked,
                 std::span<const TokenRange> left_out, std::vector<kv::RetainRange>& retain) {
  for (const MessageMarks::Retained& retained : marks.retained) {
    const TokenRange range = Without(left_out, ContentOf(prompt, marked, retained.message));
    if (range.begin >= range.end) continue;
    kv::RetainRange wish = retained.wish;
    wish.begin = range.begin;
    wish.end = range.end;
    retain.push_back(wish);
  }
}

/// What the user asked last.
std::string_view LastQuestion(const boost::json::array& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const boost::json::object& message = messages[i].get_object();
    if (message.at("role").as_string() == "user") return message.at("content").as_string();
  }
  return {};
}

}  // namespace

size_t TextBytesMax(const Tokenizer& tokenizer, uint32_t tokens) {
  size_t longest = 4;  // A character that the vocabulary lacks is one unknown token.
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    // The spelling counts too: a text may use the mark that stands for a space, which reads as fewer bytes.
    longest = std::max({longest, tokenizer.Piece(TokenId{id}).size(), tokenizer.TokenBytes(TokenId{id}, true).size()});
  }
  return longest * tokens;
}

RequestContext ContextOf(const ServedModel& model, const PastStates& past) {
  return {
      .model_id = model.id,
      .vocab_size = model.tokenizer->vocab_size(),
      .json = {},
      .may_bias = !model.is_emulated,
      .cache_space = past.cache_space,
      .find_capsule = [&capsules = past.capsules, tenant = past.tenant](uint64_t cache_namespace, std::string_view id) {
        return capsules.Find(tenant, cache_namespace, id);
      }};
}

absl::StatusOr<PreparedRequest> RenderChat(const ServedModel& model, const PastStates& past_states,
                                           ChatRequest& request, size_t body_bytes, int64_t now_unix_s) {
  PreparedRequest prepared;
  if (request.messages.empty()) {
    KVIST_RETURN_IF_ERROR(CheckState(model, request.options.generation));
    prepared.generations.push_back(Assemble(model, request.options, {}));
    return prepared;
  }
  if (!model.encode_chat) {
    return absl::InvalidArgumentError(
        Cat("the model '", model.id, "' cannot chat: ", model.no_chat_because, "; use /v1/completions"));
  }
  const OutputWish wish = std::move(request.options.wish);
  const boost::json::value tools = request.tools;
  const uint32_t predicted = model.predict_output ? model.predict_output(LastQuestion(request.messages)) : 0;
  ChatTemplateInputs inputs{.messages = std::move(request.messages),
                            .tools = std::move(request.tools),
                            .extra = std::move(request.template_extra),
                            .now_unix_s = now_unix_s};
  // A template may leave out most of what was sent, and most of what is marked is out of the view.
  const std::string session = past_states.SessionName(request.options.forget.session);
  const bool forgets = !request.marks.forgotten.empty() || !session.empty();
  if (model.chat_bytes && !forgets && body_bytes > model.prompt_bytes_max) {
    const absl::StatusOr<size_t> bytes = model.chat_bytes(inputs);
    if (bytes.ok()) KVIST_RETURN_IF_ERROR(CheckBytes(model, *bytes, "messages"));
  }
  const bool measured = !session.empty() && request.options.frames.window_tokens == 0;
  const float forget_below = !measured ? 0 : request.options.forget.forget_below.value_or(model.forget_below);
  const std::vector<uint32_t> marked = MarkedMessages(request.marks, inputs.messages, forget_below > 0);
  absl::StatusOr<MarkedPrompt> prompt = model.encode_chat(std::move(inputs), marked);
  if (!prompt.ok()) {
    // Templates refuse what they do not support; a limit that is hit is the request's doing too.
    return BadParam("messages", Cat("the model's chat template refused the messages: ", prompt.status().message()));
  }
  const uint64_t cache_namespace = request.options.generation.cache_namespace;
  SessionState past;
  if (!session.empty()) past = past_states.sessions.Find(cache_namespace, session);
  if (request.options.restored) {
    past.history = {std::move(request.options.generation.prompt), std::move(request.options.generation.ops)};
  }
  Turn turn = TurnOf(request.marks, *prompt, marked, past, forget_below);
  std::vector<TokenRange> dropped;
  for (const TurnMessage& message : turn.messages) {
    if (!message.in_view()) dropped.push_back(message.tokens);
  }
  std::vector<TokenRange> left_out;
  History history = Continue(past.history, prompt->tokens, dropped, &left_out);
  const FrameWish& frames = request.options.frames;
  if (frames.window_tokens > 0) {
    if (!dropped.empty())
      return BadParam("kvist.window", "'kvist.window' cannot be combined with marks that drop messages");
    history = WithWindow(past.history, std::move(history), frames.sink_tokens, frames.window_tokens);
  }
  AddRetained(request.marks, *prompt, marked, left_out, request.options.generation.retain);
  const uint32_t tokens = static_cast<uint32_t>(history.tokens.size());
  KVIST_RETURN_IF_ERROR(CheckLength(model, kv::LiveText::Peak(tokens, history.ops).tokens, "messages"));
  const OutputContext output{*model.tokenizer, model.tools, *model.grammars, prompt->tokens, past_states.stop};
  KVIST_ASSIGN_OR_RETURN(OutputRules rules, MakeChatRules(output, wish, tools));
  prepared.generations.push_back(Assemble(model, request.options, std::move(history.tokens)));
  engine::GenerationRequest& generation = prepared.generations[0];
  generation.constraint = std::move(rules.constraint);
  generation.shown_controls = rules.syntax == nullptr ? std::vector<TokenId>() : rules.syntax->controls;
  prepared.syntax = std::move(rules.syntax);
  generation.ops = std::move(history.ops);
  generation.output_tokens_predicted = predicted;
  prepared.session = session;
  prepared.frames = frames;
  prepared.frames.known_tokens = SharedTokens(past.history, generation.prompt);
  if (forget_below == 0) return prepared;
  for (const TurnMessage& message : turn.messages) {
    if (message.in_view()) generation.mass_ranges.push_back(Without(left_out, message.tokens));
  }
  prepared.turn = std::move(turn);
  return prepared;
}

namespace {

/// @param place  of the prompt, for errors
absl::Status EncodePrompt(const ServedModel& model, const TextOrTokens& given, const std::string& place,
                          RequestOptions options, const std::stop_token& stop, PreparedRequest& prepared) {
  const std::string* text = std::get_if<std::string>(&given);
  const bool restored = options.restored;
  if (restored && text != nullptr && text->empty()) {
    KVIST_RETURN_IF_ERROR(CheckState(model, options.generation));
    prepared.generations.push_back(Assemble(model, options, {}));
    return absl::OkStatus();
  }
  const std::vector<kv::CacheOp>& ops = options.generation.ops;
  if (text != nullptr && ops.empty()) KVIST_RETURN_IF_ERROR(CheckBytes(model, text->size(), place));
  std::vector<TokenId> prompt = text != nullptr ? EncodeText(*model.tokenizer, *text, /*follows=*/restored)
                                                : std::get<std::vector<TokenId>>(given);
  if (restored) {
    std::vector<TokenId> before = std::move(options.generation.prompt);
    before.insert(before.end(), prompt.begin(), prompt.end());
    prompt = std::move(before);
  }
  const uint32_t tokens = static_cast<uint32_t>(prompt.size());
  KVIST_RETURN_IF_ERROR(CheckLength(model, kv::LiveText::Peak(tokens, ops).tokens, place));
  if (!ops.empty() && ops.back().at > tokens) {
    return BadParam("kvist.drop", Cat("'kvist.drop' drops after ", ops.back().at, " tokens of a prompt of ", tokens));
  }
  if (const std::string fault = kv::FindFault(options.generation.retain, tokens); !fault.empty()) {
    return BadParam("kvist.retain", Cat("'kvist.retain' cannot be done: ", fault));
  }
  const OutputContext output{*model.tokenizer, model.tools, *model.grammars, prompt, stop};
  KVIST_ASSIGN_OR_RETURN(OutputRules rules, MakeTextRules(output, options.wish));
  prepared.generations.push_back(Assemble(model, options, std::move(prompt)));
  engine::GenerationRequest& generation = prepared.generations.back();
  generation.constraint = std::move(rules.constraint);
  generation.shown_controls.clear();
  if (text != nullptr && model.predict_output) generation.output_tokens_predicted = model.predict_output(*text);
  return absl::OkStatus();
}

/// How the prompts show in the answer.
std::vector<CompletionPrompt> ShownPrompts(const Tokenizer& tokenizer, const CompletionRequest& request,
                                           const PreparedRequest& prepared) {
  std::vector<CompletionPrompt> shown;
  for (size_t i = 0; i < prepared.generations.size(); ++i) {
    const engine::GenerationRequest& generation = prepared.generations[i];
    CompletionPrompt& prompt = shown.emplace_back();
    prompt.strips_first_space =
        generation.prompt_output_tokens == 0 && generation.strip_leading_space && tokenizer.adds_space_prefix();
    if (!request.echo) continue;
    const std::string* text = std::get_if<std::string>(&request.prompts[i]);
    std::string bytes = text != nullptr ? *text : tokenizer.Decode(generation.prompt);
    TakeCharacters(bytes, /*last=*/true, prompt.echo.emplace());  // Token ids may spell what is no text.
    prompt.echo_scored = generation.want_prompt_logprobs;
    if (text == nullptr) continue;
    prompt.shows_controls = true;
    const bool has_bos = tokenizer.bos() && generation.prompt.front() == *tokenizer.bos();
    prompt.tokens_before = has_bos && !text->starts_with(tokenizer.Piece(*tokenizer.bos())) ? 1 : 0;
  }
  return shown;
}

}  // namespace

absl::StatusOr<PreparedRequest> EncodeCompletion(const ServedModel& model, CompletionRequest& request,
                                                 const std::stop_token& stop) {
  PreparedRequest prepared;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    KVIST_RETURN_IF_ERROR(EncodePrompt(model, request.prompts[i], request.PlaceOf(i), request.options, stop, prepared));
  }
  return prepared;
}

AnswerInfo InfoOf(const ServedModel& model, const RequestOptions& options, int64_t now_unix_s) {
  return {.created_unix_s = now_unix_s,
          .model = model.id,
          .fingerprint = model.fingerprint,
          .stream = options.stream,
          .logprobs = options.logprobs,
          .choices = options.choices};
}

absl::StatusOr<PreparedRequest> PrepareChat(const ServedModel& model, const PastStates& past, std::string_view body,
                                            int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(body, ContextOf(model, past)));
  KVIST_ASSIGN_OR_RETURN(PreparedRequest prepared, RenderChat(model, past, request, body.size(), now_unix_s));
  AnswerInfo info = InfoOf(model, request.options, now_unix_s);
  info.kind = "chat";
  info.id = NewId("chatcmpl-");
  prepared.format = std::make_unique<ChatFormat>(std::move(info), *model.tokenizer, request.options.include_usage);
  return prepared;
}

absl::StatusOr<PreparedRequest> PrepareCompletion(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(CompletionRequest request, ParseCompletionRequest(body, ContextOf(model, past)));
  KVIST_ASSIGN_OR_RETURN(PreparedRequest prepared, EncodeCompletion(model, request, past.stop));
  AnswerInfo info = InfoOf(model, request.options, now_unix_s);
  info.kind = "completion";
  info.id = NewId("cmpl-");
  prepared.format = std::make_unique<CompletionFormat>(std::move(info), *model.tokenizer, request.options.include_usage,
                                                       ShownPrompts(*model.tokenizer, request, prepared));
  return prepared;
}

}  // namespace kvist::serve
