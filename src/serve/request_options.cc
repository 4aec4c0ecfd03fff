#include <algorithm>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/request.h"
#include "serve/retain.h"

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

/// Of "kvist" in the body.
constexpr std::string_view kOwnFields[] = {"cache_salt",     "priority",   "session",      "keep_tool_results",
                                           "keep_ephemeral", "keep_turns", "drop",         "capsule",
                                           "restore",        "retain",     "forget_below", "ttft_ms",
                                           "tpot_ms",        "frame_ms",   "window",       "window_sinks"};
/// Of a range in "kvist.drop".
constexpr std::string_view kRangeFields[] = {"begin", "end", "at", "reposition"};
constexpr size_t kOperationsMax = 4096;
constexpr int64_t kStopStringsMax = 16;
constexpr size_t kStopBytesMax = 1024;  // Looking for a stop string costs its length at every token.

absl::Status AddStop(const json::value& value, std::string_view name, std::vector<std::string>& stops) {
  if (!value.is_string()) return BadParam(name, Cat("'", name, "' must be a string, not ", JsonKindName(value)));
  const json::string& text = value.get_string();
  if (text.size() > kStopBytesMax) return BadParam(name, Cat("'", name, "' is longer than ", kStopBytesMax, " bytes"));
  if (!text.empty()) stops.emplace_back(text.begin(), text.end());
  return absl::OkStatus();
}

/// "drop": operations on a prompt of tokens, as the engine has them.
absl::Status ReadOperations(const Fields& own, std::vector<kv::CacheOp>& ops) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, own.ReadArray("drop"));
  if (given == nullptr) return absl::OkStatus();
  if (given->size() > kOperationsMax) return own.Bad("drop", Cat("may have at most ", kOperationsMax, " ranges"));
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string place = Cat(own.NameOf("drop"), "[", i, "]");
    if (!(*given)[i].is_object()) {
      return BadParam(place, Cat("'", place, "' must be an object, not ", JsonKindName((*given)[i])));
    }
    const Fields range((*given)[i].get_object(), place);
    KVIST_RETURN_IF_ERROR(range.RefuseUnknown(kRangeFields));
    for (const std::string_view needed : {"begin", "end", "at"}) {
      if (range.Find(needed) == nullptr) return range.Bad(needed, "is missing");
    }
    int64_t begin = 0, end = 0, at = 0;
    kv::CacheOp op;
    KVIST_RETURN_IF_ERROR(range.Read("begin", 0, INT32_MAX, begin));
    KVIST_RETURN_IF_ERROR(range.Read("end", 0, INT32_MAX, end));
    KVIST_RETURN_IF_ERROR(range.Read("at", 0, INT32_MAX, at));
    KVIST_RETURN_IF_ERROR(range.Read("reposition", op.reposition));
    op.begin = static_cast<uint32_t>(begin);
    op.end = static_cast<uint32_t>(end);
    op.at = static_cast<uint32_t>(at);
    ops.push_back(op);
  }
  const std::string fault = kv::FindFault(ops);
  return fault.empty() ? absl::OkStatus() : own.Bad("drop", Cat("cannot be done: ", fault));
}

/// Wished times, as the engine has them.
absl::Status ReadDeadlines(const Fields& own, engine::GenerationRequest& generation) {
  constexpr double kMsMax = 86'400'000;
  float first_ms = 0, next_ms = 0;
  KVIST_RETURN_IF_ERROR(own.Read("ttft_ms", 0, kMsMax, first_ms));
  KVIST_RETURN_IF_ERROR(own.Read("tpot_ms", 0, kMsMax, next_ms));
  generation.first_token_ns = static_cast<int64_t>(double{first_ms} * 1e6);
  generation.next_token_ns = static_cast<int64_t>(double{next_ms} * 1e6);
  return absl::OkStatus();
}

/// "frame_ms", "window" and "window_sinks".
absl::Status ReadFrames(const Fields& own, const ForgetRules& rules, FrameWish& frames) {
  constexpr double kPeriodMsMax = 3'600'000;
  constexpr int64_t kWindowMin = 16;
  double period_ms = 0;
  KVIST_RETURN_IF_ERROR(own.Read("frame_ms", 1, kPeriodMsMax, period_ms));
  frames.period_ns = static_cast<int64_t>(period_ms * 1e6);
  int64_t window = 0, sinks = frames.sink_tokens;
  KVIST_RETURN_IF_ERROR(own.Read("window", kWindowMin, INT32_MAX, window));
  KVIST_RETURN_IF_ERROR(own.Read("window_sinks", 0, 4096, sinks));
  frames.window_tokens = static_cast<uint32_t>(window);
  frames.sink_tokens = static_cast<uint32_t>(sinks);
  for (const std::string_view key : {"frame_ms", "window"}) {
    if (own.Find(key) != nullptr && rules.session.empty()) return own.Bad(key, "needs a 'session'");
  }
  if (window == 0) {
    return own.Find("window_sinks") == nullptr ? absl::OkStatus() : own.Bad("window_sinks", "needs a 'window'");
  }
  if (rules.keep_tool_results >= 0 || rules.keep_turns_last >= 0 || rules.forget_below) {
    return own.Bad("window", "cannot be combined with other rules of what is forgotten");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const json::object*> RootObject(const JsonDocument& document) {
  if (!document.root().is_object()) {
    return absl::InvalidArgumentError(
        Cat("the request body must be a JSON object, not ", JsonKindName(document.root())));
  }
  return &document.root().get_object();
}

absl::Status ReadModel(const Fields& body, std::string_view served) {
  std::string model;
  KVIST_RETURN_IF_ERROR(body.Read("model", model));
  // What has no tag means the latest, as Ollama's clients say.
  if (model.empty() || model == served || model == Cat(served, ":latest")) return absl::OkStatus();
  return WithCode(
      UnknownParam("model", Cat("the model '", Shortened(model), "' is not served here; '", served, "' is")),
      "model_not_found");
}

absl::Status ReadSampling(const Fields& body, RequestOptions& options) {
  step::Sampling& sampling = options.generation.sampling;
  KVIST_RETURN_IF_ERROR(body.Read("temperature", 0, 2, sampling.temperature));
  KVIST_RETURN_IF_ERROR(body.Read("top_p", 0, 1, sampling.top_p));
  KVIST_RETURN_IF_ERROR(body.Read("min_p", 0, 1, sampling.min_p));
  int64_t top_k = sampling.top_k;  // Other servers write "off" as -1.
  KVIST_RETURN_IF_ERROR(body.Read("top_k", -1, INT32_MAX, top_k));
  sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(top_k, 0));
  KVIST_RETURN_IF_ERROR(body.Read("repeat_penalty", 0.01, 100, sampling.repetition_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("repetition_penalty", 0.01, 100, sampling.repetition_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("presence_penalty", -2, 2, sampling.presence_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("frequency_penalty", -2, 2, sampling.frequency_penalty));
  if (body.Find("seed") != nullptr) {
    int64_t seed = 0;
    KVIST_RETURN_IF_ERROR(body.Read("seed", INT64_MIN, INT64_MAX, seed));
    options.seed = static_cast<uint64_t>(seed);
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const json::array& list, std::string_view name, uint32_t vocab_size,
                        std::vector<TokenId>& tokens) {
  tokens.reserve(tokens.size() + list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const int64_t* plain = list[i].if_int64();
    if (plain != nullptr && *plain >= 0 && *plain < int64_t{vocab_size}) {  // Most are; names are for faults.
      tokens.push_back(TokenId{static_cast<uint32_t>(*plain)});
      continue;
    }
    KVIST_ASSIGN_OR_RETURN(const int64_t id, IntegerOf(list[i], Cat(name, "[", i, "]"), 0, int64_t{vocab_size} - 1));
    tokens.push_back(TokenId{static_cast<uint32_t>(id)});
  }
  return absl::OkStatus();
}

absl::Status ReadStopStrings(const Fields& body, std::string_view key, std::vector<std::string>& stops) {
  const json::value* stop = body.Find(key);
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) return AddStop(*stop, body.NameOf(key), stops);
  if (!stop->is_array())
    return body.Bad(key, Cat("must be a string or an array of strings, not ", JsonKindName(*stop)));
  const json::array& list = stop->get_array();
  if (list.size() > kStopStringsMax) return body.Bad(key, Cat("may have at most ", kStopStringsMax, " strings"));
  for (size_t i = 0; i < list.size(); ++i) {
    KVIST_RETURN_IF_ERROR(AddStop(list[i], Cat(body.NameOf(key), "[", i, "]"), stops));
  }
  return absl::OkStatus();
}

/// A field that is not known is refused here: who asks for a service that is not given must learn of it.
absl::Status ReadOwnFields(const Fields& body, const RequestContext& context, RequestOptions& options) {
  engine::GenerationRequest& generation = options.generation;
  std::string salt;
  KVIST_RETURN_IF_ERROR(body.Read("cache_salt", salt));  // vLLM's place for it.
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("kvist"));
  const json::object none;
  const Fields own(given == nullptr ? none : *given, "kvist");
  KVIST_RETURN_IF_ERROR(own.RefuseUnknown(kOwnFields));
  KVIST_RETURN_IF_ERROR(own.Read("cache_salt", salt));
  generation.cache_namespace = CacheNamespaceOf(context.cache_space, salt);
  KVIST_RETURN_IF_ERROR(ReadCapsule(body, own, context, options));
  KVIST_RETURN_IF_ERROR(ReadForgetRules(own, options.forget));
  KVIST_RETURN_IF_ERROR(ReadFrames(own, options.forget, options.frames));
  if (options.restored && own.Find("drop") != nullptr) {
    return own.Bad("drop", "cannot be combined with 'kvist.restore': the capsule has its operations");
  }
  KVIST_RETURN_IF_ERROR(ReadOperations(own, generation.ops));
  KVIST_RETURN_IF_ERROR(ReadRetain(own, RetainForm::kRanges, generation.retain));
  int64_t priority = generation.priority;
  KVIST_RETURN_IF_ERROR(own.Read("priority", 0, UINT8_MAX, priority));
  generation.priority = static_cast<uint8_t>(priority);
  KVIST_RETURN_IF_ERROR(ReadDeadlines(own, generation));
  return absl::OkStatus();
}

}  // namespace kvist::serve::internal
