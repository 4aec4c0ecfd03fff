#include "serve/embeddings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/status.h"
#include "serve/api_error.h"
#include "serve/json_output.h"
#include "serve/request.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr size_t kInputsMax = 512;

enum class Shape : uint8_t { kOpenAi, kOpenAiBase64, kOllama };

/// Never a stream.
class EmbeddingsFormat final : public AnswerFormat {
 public:
  /// @param dimensions  first ones that are kept; 0 = all
  EmbeddingsFormat(AnswerInfo info, Shape shape, uint32_t dimensions)
      : AnswerFormat(std::move(info)), shape_(shape), dimensions_(dimensions) {}

  std::string Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) override {
    json::array vectors;
    for (const ChoiceOutput& choice : choices) vectors.push_back(VectorOf(choice.hidden));
    const uint32_t tokens = totals.usage.prompt_tokens;
    if (shape_ == Shape::kOllama) {
      return JsonText(json::object{{"model", info().model},
                                   {"embeddings", std::move(vectors)},
                                   {"total_duration", static_cast<int64_t>(totals.timings.total_ms * 1e6)},
                                   {"load_duration", 0},
                                   {"prompt_eval_count", tokens}});
    }
    json::array data;
    for (size_t i = 0; i < vectors.size(); ++i) {
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(vectors[i])}});
    }
    return JsonText(json::object{{"object", "list"},
                                 {"data", std::move(data)},
                                 {"model", info().model},
                                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
  }

  void Begin(uint32_t, const engine::Usage&, std::string&) override { NoStream(); }
  void Add(uint32_t, std::span<const OutputPart>, std::span<const engine::TokenEvent>, std::string&) override {
    NoStream();
  }
  void FinishChoice(uint32_t, const ChoiceEnd&, std::string&) override { NoStream(); }
  void End(const AnswerTotals&, std::string&) override { NoStream(); }
  void Fail(const ApiError&, std::string&) override { NoStream(); }

 private:
  static void NoStream() { KVIST_CHECK(false); }

  json::value VectorOf(std::span<const float> state) const {
    if (dimensions_ > 0) state = state.first(std::min<size_t>(dimensions_, state.size()));
    double square = 0;
    for (const float x : state) square += double{x} * x;
    const double scale = square > 0 && std::isfinite(square) ? 1 / std::sqrt(square) : 0;
    std::vector<float> unit;
    unit.reserve(state.size());
    for (const float x : state) unit.push_back(scale == 0 ? 0.0f : static_cast<float>(x * scale));
    if (shape_ == Shape::kOpenAiBase64) {  // Of 32-bit floats, little-endian as this machine is.
      static_assert(std::endian::native == std::endian::little);
      const auto* bytes = reinterpret_cast<const char*>(unit.data());
      return json::string(absl::Base64Escape(absl::string_view(bytes, unit.size() * sizeof(float))));
    }
    json::array list;
    list.reserve(unit.size());
    for (const float x : unit) list.emplace_back(double{x});
    return list;
  }

  const Shape shape_;
  const uint32_t dimensions_;
};

absl::Status AddTokens(const ServedModel& model, std::vector<TokenId> tokens, const std::string& place,
                       const engine::GenerationRequest& base, PreparedRequest& prepared) {
  if (tokens.empty()) return BadParam(place, Cat("'", place, "' is empty"));
  if (tokens.size() > model.context_tokens_max) {
    return WithCode(BadParam(place, Cat("'", place, "' has ", tokens.size(), " tokens, but the context has ",
                                        model.context_tokens_max)),
                    "context_length_exceeded");
  }
  prepared.generations.push_back(base);
  prepared.generations.back().prompt = std::move(tokens);
  return absl::OkStatus();
}

absl::Status AddText(const ServedModel& model, std::string_view text, const std::string& place,
                     const engine::GenerationRequest& base, PreparedRequest& prepared) {
  if (text.empty()) return BadParam(place, Cat("'", place, "' is empty"));
  if (model.prompt_bytes_max > 0 && text.size() > model.prompt_bytes_max) {
    return WithCode(BadParam(place, Cat("'", place, "' has ", text.size(), " bytes, but the context of ",
                                        model.context_tokens_max, " tokens holds at most ", model.prompt_bytes_max)),
                    "context_length_exceeded");
  }
  return AddTokens(model, model.tokenizer->Encode(text), place, base, prepared);
}

absl::Status AddIds(const ServedModel& model, const json::array& ids, const std::string& place,
                    const engine::GenerationRequest& base, PreparedRequest& prepared) {
  std::vector<TokenId> tokens;
  KVIST_RETURN_IF_ERROR(internal::ReadTokens(ids, place, model.tokenizer->vocab_size(), tokens));
  return AddTokens(model, std::move(tokens), place, base, prepared);
}

/// A text, token ids, or an array of these.
absl::Status ReadInput(const ServedModel& model, const Fields& body, const engine::GenerationRequest& base,
                       PreparedRequest& prepared) {
  const json::value* input = body.Find("input");
  if (input == nullptr) return body.Bad("input", "is missing");
  if (input->is_string()) return AddText(model, input->get_string(), "input", base, prepared);
  KVIST_ASSIGN_OR_RETURN(const json::array* list, body.ReadArray("input"));
  if (list->empty()) return body.Bad("input", "is empty");
  if (list->front().is_number()) return AddIds(model, *list, "input", base, prepared);
  if (list->size() > kInputsMax) return body.Bad("input", Cat("may have at most ", kInputsMax, " texts"));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = Cat("input[", i, "]");
    const json::value& one = (*list)[i];
    if (one.is_string()) {
      KVIST_RETURN_IF_ERROR(AddText(model, one.get_string(), place, base, prepared));
    } else if (one.is_array()) {
      KVIST_RETURN_IF_ERROR(AddIds(model, one.get_array(), place, base, prepared));
    } else {
      return BadParam(place, Cat("'", place, "' must be a string or an array of token ids, not ", JsonKindName(one)));
    }
  }
  return absl::OkStatus();
}

/// Fields that change no vector are read all the same: a wrong type is a mistake of whoever sends it.
absl::Status ReadOthers(const Fields& body, bool ollama, RequestOptions& options) {
  if (!ollama) {
    std::string user;
    return body.Read("user", user);
  }
  bool truncate = true;  // A text that does not fit is refused, not cut.
  KVIST_RETURN_IF_ERROR(body.Read("truncate", truncate));
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("options"));
  if (given == nullptr) return absl::OkStatus();
  const Fields fields(*given, "options");
  int64_t context_tokens = 0;
  KVIST_RETURN_IF_ERROR(fields.Read("num_ctx", 0, INT32_MAX, context_tokens));
  return internal::ReadSampling(fields, options);
}

absl::StatusOr<PreparedRequest> Prepare(const ServedModel& model, const PastStates& past, std::string_view text,
                                        int64_t now_unix_s, bool ollama) {
  const RequestContext context = ContextOf(model, past);
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  RequestOptions options;
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, model.id));
  KVIST_RETURN_IF_ERROR(internal::ReadOwnFields(body, context, options));
  const engine::GenerationRequest& given = options.generation;
  if (options.restored || given.want_capsule || !given.ops.empty() || !given.retain.empty() ||
      !options.forget.session.empty() || options.frames.any()) {
    return body.Bad("kvist", "may have only 'cache_salt' and 'priority' here");
  }
  KVIST_RETURN_IF_ERROR(ReadOthers(body, ollama, options));
  Shape shape = ollama ? Shape::kOllama : Shape::kOpenAi;
  std::string encoding = "float";
  if (!ollama) KVIST_RETURN_IF_ERROR(body.Read("encoding_format", encoding));
  if (encoding != "float" && encoding != "base64") return body.Bad("encoding_format", "must be float or base64");
  if (encoding == "base64") shape = Shape::kOpenAiBase64;
  int64_t dimensions = 0;
  KVIST_RETURN_IF_ERROR(body.Read("dimensions", 1, INT32_MAX, dimensions));
  if (dimensions > model.embedding_length) {
    return body.Bad("dimensions", Cat("is ", dimensions, ", but vectors of this model have ", model.embedding_length));
  }
  options.generation.want_hidden = true;
  PreparedRequest prepared;
  KVIST_RETURN_IF_ERROR(ReadInput(model, body, options.generation, prepared));
  AnswerInfo info = InfoOf(model, options, now_unix_s);
  info.kind = "embeddings";
  info.id = NewId("embd-");
  prepared.format = std::make_unique<EmbeddingsFormat>(std::move(info), shape, static_cast<uint32_t>(dimensions));
  return prepared;
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareEmbeddings(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s) {
  return Prepare(model, past, body, now_unix_s, /*ollama=*/false);
}

absl::StatusOr<PreparedRequest> PrepareOllamaEmbed(const ServedModel& model, const PastStates& past,
                                                   std::string_view body, int64_t now_unix_s) {
  return Prepare(model, past, body, now_unix_s, /*ollama=*/true);
}

}  // namespace kvist::serve
