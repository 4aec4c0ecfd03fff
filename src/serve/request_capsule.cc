#include "base/status.h"
#include "serve/api_error.h"
#include "serve/request.h"

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

constexpr std::string_view kRestoreFields[] = {"capsule", "output_tokens"};

/// A name, or an object with the name and how much of the output stays.
absl::Status ReadRestore(const json::value& given, const std::string& place, std::string& id, int64_t& output_tokens) {
  if (given.is_string()) {
    id = std::string(given.get_string().begin(), given.get_string().end());
    return absl::OkStatus();
  }
  if (!given.is_object()) {
    return BadParam(place, Cat("'", place, "' must be a capsule's id or an object, not ", JsonKindName(given)));
  }
  const Fields fields(given.get_object(), place);
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kRestoreFields));
  if (fields.Find("capsule") == nullptr) return fields.Bad("capsule", "is missing");
  KVIST_RETURN_IF_ERROR(fields.Read("capsule", id));
  return fields.Read("output_tokens", 0, UINT32_MAX, output_tokens);
}

}  // namespace

absl::Status ReadCapsule(const Fields& body, const Fields& own, const RequestContext& context,
                         RequestOptions& options) {
  engine::GenerationRequest& generation = options.generation;
  bool keep = false;
  KVIST_RETURN_IF_ERROR(own.Read("capsule", keep));
  if (const json::value* given = own.Find("restore"); given != nullptr) {
    const std::string place = own.NameOf("restore");
    std::string id;
    int64_t output_tokens = -1;
    KVIST_RETURN_IF_ERROR(ReadRestore(*given, place, id, output_tokens));
    const std::shared_ptr<const engine::Capsule> capsule =
        context.find_capsule ? context.find_capsule(generation.cache_namespace, id) : nullptr;
    if (capsule == nullptr) {
      return WithCode(UnknownParam(place, Cat("'", place, "': there is no capsule '", Shortened(id),
                                              "' here; it may have been forgotten")),
                      "capsule_not_found");
    }
    if (output_tokens > capsule->prompt_output_tokens) {
      return BadParam(place, Cat("'", place, ".output_tokens' is ", output_tokens, ", but the capsule has ",
                                 capsule->prompt_output_tokens, " tokens of output"));
    }
    generation = output_tokens < 0 ? *capsule : RolledBack(*capsule, static_cast<uint32_t>(output_tokens));
    generation.max_tokens = UINT32_MAX;
    generation.retain.clear();
    const bool new_format = body.Find("response_format") != nullptr || body.Find("grammar") != nullptr;
    if (new_format && body.Find("messages") == nullptr && body.Find("prompt") == nullptr) {
      return BadParam(place, Cat("'", place, "': the answer that goes on keeps the format that it began with"));
    }
    if (body.Find("logit_bias") != nullptr) generation.biases.clear();
    if (body.Find("stop") != nullptr) generation.stop.clear();
    if (body.Find("stop_token_ids") != nullptr) generation.stop_tokens.clear();
    generation.sampling.want_logprobs = false;
    generation.sampling.logprobs_count = 0;
    options.seed = generation.sampling.seed;
    options.restored = true;
  }
  generation.want_capsule = keep;
  return absl::OkStatus();
}

}  // namespace kvist::serve::internal
