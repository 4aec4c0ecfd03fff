#include "serve/capsules.h"

#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "serve/answer_format.h"
#include "serve/engine_question.h"
#include "serve/json_input.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

/// Of the body of POST /kvist/capsules.
constexpr std::string_view kCapsuleFields[] = {"request"};

json::object ObjectOf(const CapsuleInfo& info) {
  return {{"id", info.id},
          {"object", "kvist.capsule"},
          {"created", info.created_unix_s},
          {"tokens", info.tokens},
          {"output_tokens", info.output_tokens}};
}

}  // namespace

CapsuleInfo Capsules::InfoOf(std::string_view id, const Kept& kept) {
  return {.id = std::string(id),
          .tokens = static_cast<uint32_t>(kept.state->prompt.size()),
          .output_tokens = kept.state->prompt_output_tokens,
          .created_unix_s = kept.created_unix_s};
}

std::string Capsules::Store(std::shared_ptr<const engine::Capsule> state, int64_t now_unix_s) {
  std::string id = NewId("cap-");
  const size_t tokens = state->prompt.size();
  store_.Store(id, {std::move(state), now_unix_s}, tokens);
  return id;
}

std::shared_ptr<const engine::Capsule> Capsules::Find(TenantId tenant, uint64_t cache_namespace, std::string_view id) {
  const std::optional<Kept> kept = store_.Find(id);
  if (!kept || kept->state->tenant != tenant || kept->state->cache_namespace != cache_namespace) return nullptr;
  return kept->state;
}

std::optional<CapsuleInfo> Capsules::Show(std::string_view id, Viewer viewer) {
  const std::optional<Kept> kept = store_.Find(id);
  return kept && viewer.Sees(kept->state->tenant) ? std::optional(InfoOf(id, *kept)) : std::nullopt;
}

std::vector<CapsuleInfo> Capsules::List(Viewer viewer) const {
  std::vector<CapsuleInfo> list;
  store_.ForEach([&](const std::string& id, const Kept& kept) {
    if (viewer.Sees(kept.state->tenant)) list.push_back(InfoOf(id, kept));
  });
  return list;
}

absl::StatusOr<std::string> ParseCapsuleRequest(std::string_view text) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text));
  if (!document.root().is_object()) {
    return absl::InvalidArgumentError(
        Cat("the request body must be a JSON object, not ", JsonKindName(document.root())));
  }
  const Fields body(document.root().get_object(), "");
  KVIST_RETURN_IF_ERROR(body.RefuseUnknown(kCapsuleFields));
  if (body.Find("request") == nullptr) return body.Bad("request", "is missing");
  std::string name;
  KVIST_RETURN_IF_ERROR(body.Read("request", name));
  return name;
}

std::string CapsuleBody(const CapsuleInfo& info) {
  return JsonText(ObjectOf(info));
}

std::string CapsuleListBody(const std::vector<CapsuleInfo>& list) {
  json::array data;
  for (const CapsuleInfo& info : list) data.push_back(ObjectOf(info));
  return JsonText(json::object{{"object", "list"}, {"data", std::move(data)}});
}

absl::StatusOr<engine::Capsule> AskForCapsule(engine::Engine& engine, RequestId id) {
  const auto answer =
      AskEngine<std::optional<engine::Capsule>>([&](auto receive) { engine.Snapshot(id, std::move(receive)); });
  if (!answer.ok()) return answer.status();
  if (!answer->has_value()) return absl::NotFoundError("the request has ended");
  return **answer;
}

}  // namespace kvist::serve
