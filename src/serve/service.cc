#include "serve/service.h"

#include <algorithm>

#include <fmt/format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "serve/access.h"
#include "serve/embeddings.h"
#include "serve/json_input.h"
#include "serve/json_output.h"
#include "serve/memory_view.h"
#include "serve/messages_api.h"
#include "serve/ollama_api.h"
#include "serve/openai_format.h"
#include "serve/request.h"
#include "serve/state_view.h"
#include "serve/tokenize.h"
#include "serve/usage_view.h"
#include "web/assets.h"

namespace kvist::serve {
namespace {

ModelInfo InfoOf(const ServedModel& model) {
  return {.id = model.id, .created_unix_s = model.created_unix_s, .context_tokens_max = model.context_tokens_max};
}

constexpr double kUsagePatienceS = 1;
/// So many are expected at most of a frame that does not bound its answer.
constexpr uint32_t kFrameAnswerTokens = 64;

/// What they tell cannot be told apart by tenant.
bool OfAllTenants(Route route) {
  return route == Route::kMetrics || route == Route::kState || route == Route::kSteps;
}

/// If-None-Match: a list of tags, weak or strong, or "*".
bool TagMatches(std::string_view header, std::string_view etag) {
  for (absl::string_view tag : absl::StrSplit(ToAbsl(header), ',')) {
    tag = absl::StripAsciiWhitespace(tag);
    if (tag.substr(0, 2) == "W/") tag.remove_prefix(2);
    if (tag == "*" || tag == ToAbsl(etag)) return true;
  }
  return false;
}

/// An answer that changes all the time, and is for who asked.
HttpReply Private(std::string body) {
  HttpReply reply{.body = std::move(body)};
  reply.headers.emplace_back("Cache-Control", "no-store");
  return reply;
}

/// How the body of a POST that starts a generation becomes one.
using Preparer = absl::StatusOr<PreparedRequest>(const ServedModel& model, const PastStates& past,
                                                 std::string_view body, int64_t now_unix_s);

Preparer* PreparerOf(Route route) {
  switch (route) {
    case Route::kChat:
      return PrepareChat;
    case Route::kCompletions:
      return PrepareCompletion;
    case Route::kResponses:
      return PrepareResponse;
    case Route::kMessages:
      return PrepareMessages;
    case Route::kOllamaChat:
      return PrepareOllamaChat;
    case Route::kOllamaGenerate:
      return PrepareOllamaGenerate;
    case Route::kEmbeddings:
      return PrepareEmbeddings;
    case Route::kOllamaEmbed:
      return PrepareOllamaEmbed;
    default:
      return nullptr;
  }
}

ServedModel WithBound(ServedModel model) {
  if (model.prompt_bytes_max == 0) {
    model.prompt_bytes_max = TextBytesMax(*model.tokenizer, model.context_tokens_max);
  }
  if (model.grammars == nullptr) model.grammars = std::make_shared<Grammars>(*model.tokenizer);
  return model;
}

}  // namespace

std::string AcceptedRequestId(std::string_view given) {
  const auto sane = [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view(".-_:").find(c) != std::string_view::npos;
  };
  const bool taken = !given.empty() && given.size() <= 128 && std::ranges::all_of(given, sane);
  return taken ? std::string(given) : NewId("req-");
}

HttpReply ErrorReply(const ApiError& error) {
  HttpReply reply{.status = error.http_status, .error = error};
  if (error.retry_after_s > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return reply;
}

Service::Service(ServiceOptions options, ServedModel model, engine::Engine& engine, Tenants& tenants,
                 Metering& metering, const Clock& clock)
    : options_(std::move(options)),
      model_(WithBound(std::move(model))),
      engine_(engine),
      tenants_(tenants),
      metering_(metering),
      clock_(clock),
      started_at_(clock.Now()),
      frame_sessions_(std::make_shared<FrameSessions>(clock)),
      metrics_(model_.id, engine, metering, tenants, *frame_sessions_) {
  engine_.SetMeterBook(&metering_);
}

std::optional<HttpReply> Service::Refusal(HttpHead& head) const {
  const bool open = tenants_.open();
  if (open && options_.on_loopback && !head.host.empty() && !NamesThisMachine(head.host)) {
    return ErrorReply(HttpError(403, Cat("this server answers to localhost only, not to '", Shortened(head.host),
                                         "'; start it with an API key to use it under other names")));
  }
  if (head.target.route == Route::kNone) return ErrorReply(HttpError(404, "there is nothing at this path"));
  if (!MethodAllowed(head.target.route, head.method)) {
    const std::string_view allowed = AllowedMethods(head.target.route);
    HttpReply reply = ErrorReply(HttpError(405, Cat("this path takes ", allowed, " only")));
    reply.headers.emplace_back("Allow", allowed);
    return reply;
  }
  if (head.method == Method::kOptions) return Preflight(head);
  const bool changes = head.method == Method::kPost || head.method == Method::kDelete;
  if (open && changes && !OriginMayCall(head.origin, head.host, options_.cors_origin)) {
    return ErrorReply(HttpError(
        403, Cat("pages of '", Shortened(head.origin), "' may not use this server; allow them with --cors-origin")));
  }
  head.tenant = tenants_.Find(head.authorization);
  if (!open && NeedsKey(head.target.route) && head.tenant == nullptr) {
    const std::string_view why = head.authorization.empty()
                                     ? "an API key is required: send the header 'Authorization: Bearer KEY'"
                                     : "the API key is wrong";
    HttpReply reply = ErrorReply(ErrorFromStatus(absl::UnauthenticatedError(ToAbsl(why))));
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  if (OfAllTenants(head.target.route) && head.tenant != nullptr && !head.tenant->config.admin) {
    return ErrorReply(ErrorFromStatus(absl::PermissionDeniedError(
        ToAbsl(Cat(RouteName(head.target.route), " is of all tenants: an admin's key is required")))));
  }
  // What makes the model work takes a place; the rest is answered whatever goes on.
  if (head.method == Method::kPost && Generates(head.target.route)) {
    if (const absl::Status status = Enter(head); !status.ok()) return ErrorReply(ErrorFromStatus(status));
  }
  return std::nullopt;
}

absl::Status Service::CheckWait() const {
  if (options_.max_wait_s <= 0) return absl::OkStatus();
  const double wait_s = Seconds(engine_.PredictedWaitNs(/*prompt_tokens=*/0));
  if (wait_s <= options_.max_wait_s) return absl::OkStatus();
  return WithRetry(
      absl::ResourceExhaustedError(fmt::format("the server is busy: a request would wait for about {:.0f} s, "
                                               "{:g} s are allowed",
                                               wait_s, options_.max_wait_s)),
      wait_s - options_.max_wait_s);
}

absl::Status Service::Enter(HttpHead& head) const {
  KVIST_RETURN_IF_ERROR(CheckWait());
  if (head.tenant == nullptr) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(const Entry entry, head.tenant->limits->Enter(head.tenant->config, unix_now_s()));
  head.ticket = std::make_shared<TenantTicket>(head.tenant, entry);
  return absl::OkStatus();
}

/// Whose request it is, within what its tenant may ask for.
absl::Status Service::Bind(const HttpHead& head, PreparedRequest& prepared) const {
  const Entry entry = head.ticket != nullptr ? head.ticket->entry() : Entry{};
  const TenantId tenant = head.tenant != nullptr ? head.tenant->id : TenantId{};
  const uint32_t blocks_max =
      head.tenant != nullptr ? head.tenant->config.KvBlocksMax(engine_.Stats().kv.frames.total()) : 0;
  size_t prompt_tokens = 0;
  for (engine::GenerationRequest& generation : prepared.generations) {
    generation.tenant = tenant;
    generation.tenant_key = head.tenant != nullptr ? TenantKey(head.tenant->config.name) : 0;
    generation.tenant_blocks_max = blocks_max;
    generation.max_tokens = std::min(generation.max_tokens, entry.max_tokens);
    generation.priority = std::max(generation.priority, entry.priority_min);
    prompt_tokens += generation.prompt.size();
  }
  if (head.tenant == nullptr) return absl::OkStatus();
  return head.tenant->limits->TakePrompt(head.tenant->config, static_cast<uint32_t>(prompt_tokens));
}

/// Lets a frame in, or not, and says when its tokens are due: half of its period is for reading, half for the answer.
absl::Status Service::EnterFrame(PreparedRequest& prepared) const {
  engine::GenerationRequest& generation = prepared.generations.at(0);
  const int64_t period_ns = prepared.frames.period_ns;
  const auto prompt = static_cast<uint32_t>(generation.prompt.size());
  const uint32_t context = kv::LiveText::After(prompt, generation.ops).live_tokens();
  const uint32_t read = prompt - std::min(prompt, prepared.frames.known_tokens);
  const uint32_t answer = std::min(generation.max_tokens, kFrameAnswerTokens);
  const sched::StepCost cost = engine_.Stats().step_cost;
  sched::StepWork token;
  token.Add(1, context, /*samples=*/true);
  const double frame_ns = cost.PromptNs(read, context - std::min(context, read)) + answer * cost.Ns(token);
  const std::string key = Cat(generation.cache_namespace, "/", prepared.session);
  KVIST_ASSIGN_OR_RETURN(prepared.frame, frame_sessions_->Enter(key, period_ns, frame_ns));
  if (generation.first_token_ns == 0) generation.first_token_ns = period_ns / 2;
  if (generation.next_token_ns == 0) generation.next_token_ns = period_ns / 2 / std::max(answer, 1u);
  return absl::OkStatus();
}

Viewer Service::ViewerOf(const HttpHead& head) const {
  if (head.tenant == nullptr) return {.all = true};  // No key was needed.
  return {.tenant = head.tenant->id, .all = head.tenant->config.admin};
}

bool Service::AnswerWaits(const HttpHead& head) {
  const Route route = head.target.route;  // Steps ask nobody, but there may be many to write out.
  return route == Route::kMemory || route == Route::kState || route == Route::kSteps || route == Route::kUsage;
}

HttpReply Service::Answer(const HttpHead& head) {
  switch (head.target.route) {
    case Route::kModels:
      return {.body = ModelListBody(InfoOf(model_))};
    case Route::kModel:
      return Model(head.target.argument);
    case Route::kHealth:
      return Health();
    case Route::kMetrics:
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.Text()};
    case Route::kMemory:
      return Memory(head);
    case Route::kState:
      return State();
    case Route::kSteps:
      return Steps(head.target.query);
    case Route::kCapsules:
      return {.body = CapsuleListBody(capsules_.List(ViewerOf(head)))};
    case Route::kCapsule:
      return Capsule(head);
    case Route::kResponse:
      return Response(head);
    case Route::kOllamaTags:
      return {.body = OllamaTagsBody(model_)};
    case Route::kOllamaPs:
      return {.body = OllamaRunningBody(model_)};
    case Route::kOllamaVersion:
      return {.body = OllamaVersionBody()};
    case Route::kRequests:
      return Private(request_log_.ListBody(ViewerOf(head)));
    case Route::kRequest:
      return Request(head);
    case Route::kUsage:
      return Usage(head);
    case Route::kAsset:
      return Asset(head);
    default:
      KVIST_CHECK(false);  // The router lets no other method come here.
  }
}

bool Service::Generates(Route route) {
  return PreparerOf(route) != nullptr;
}

PastStates Service::PastOf(const HttpHead& head) {
  PastStates past{.sessions = sessions_, .capsules = capsules_, .responses = responses_};
  if (head.tenant == nullptr) return past;
  past.tenant = head.tenant->id;
  past.cache_space = head.tenant->cache_space();
  return past;
}

absl::StatusOr<PreparedRequest> Service::Prepare(const HttpHead& head, std::string_view body,
                                                 const std::stop_token& stop) {
  Preparer* prepare = PreparerOf(head.target.route);
  KVIST_CHECK(prepare != nullptr);
  PastStates past = PastOf(head);
  past.stop = stop;
  absl::StatusOr<PreparedRequest> prepared = prepare(model_, past, body, unix_now_s());
  if (!prepared.ok()) return prepared;
  if (prepared->frames.period_ns > 0) KVIST_RETURN_IF_ERROR(EnterFrame(*prepared));  // Refused, it costs nothing.
  KVIST_RETURN_IF_ERROR(Bind(head, *prepared));
  return prepared;
}

HttpReply Service::AnswerPost(const HttpHead& head, std::string_view body) {
  const auto reply_of = [](absl::StatusOr<std::string> answer) -> HttpReply {
    if (!answer.ok()) return ErrorReply(ErrorFromStatus(answer.status()));
    return {.body = *std::move(answer)};
  };
  switch (head.target.route) {
    case Route::kCapsules:
      return KeepCapsule(head, body);
    case Route::kTokenize:
      return reply_of(TokenizeBody(model_, body, unix_now_s()));
    case Route::kDetokenize:
      return reply_of(DetokenizeBody(model_, body));
    case Route::kCountTokens:
      return reply_of(CountTokensBody(model_, PastOf(head), body, unix_now_s()));
    case Route::kOllamaShow:
      return reply_of(OllamaShowBody(model_, body));
    default:
      KVIST_CHECK(false);  // The router lets no other path come here.
  }
}

HttpReply Service::KeepCapsule(const HttpHead& head, std::string_view body) {
  const Viewer viewer = ViewerOf(head);
  const auto keep = [&]() -> absl::StatusOr<std::string> {
    KVIST_ASSIGN_OR_RETURN(const std::string name, ParseCapsuleRequest(body));
    const std::optional<RequestId> id = request_log_.FindRunning(name, viewer);
    if (!id) {
      return BadParam("request", Cat("'request': '", Shortened(name),
                                     "' is not running; ask for a capsule at its end with \"kvist\": "
                                     "{\"capsule\": true}"));
    }
    KVIST_ASSIGN_OR_RETURN(engine::Capsule state, AskForCapsule(engine_, *id));
    return capsules_.Store(std::make_shared<const engine::Capsule>(std::move(state)), unix_now_s());
  };
  const absl::StatusOr<std::string> kept = keep();
  if (!kept.ok()) return ErrorReply(ErrorFromStatus(kept.status()));
  return {.status = 201, .body = CapsuleBody(capsules_.Show(*kept, viewer).value_or(CapsuleInfo{.id = *kept}))};
}

HttpReply Service::Capsule(const HttpHead& head) {
  const std::string& id = head.target.argument;
  const std::optional<CapsuleInfo> info = capsules_.Show(id, ViewerOf(head));
  if (!info || (head.method == Method::kDelete && !capsules_.Erase(id))) {
    return ErrorReply(ErrorFromStatus(
        WithCode(absl::NotFoundError(Cat("there is no capsule '", Shortened(id), "'")), "capsule_not_found")));
  }
  return Private(CapsuleBody(*info));
}

HttpReply Service::Response(const HttpHead& head) {
  const std::string& id = head.target.argument;
  const auto found = responses_.Find(id);
  const bool erases = head.method == Method::kDelete;
  if (!found || !ViewerOf(head).Sees((*found)->tenant) || (erases && !responses_.Erase(id))) {
    return ErrorReply(ErrorFromStatus(
        WithCode(absl::NotFoundError(Cat("there is no response '", Shortened(id), "'")), "response_not_found")));
  }
  if (!erases) return Private((*found)->body);
  return Private(JsonText(boost::json::object{{"id", id}, {"object", "response"}, {"deleted", true}}));
}

std::vector<std::pair<std::string, std::string>> Service::CommonHeaders(const HttpHead& head) const {
  std::vector<std::pair<std::string, std::string>> headers;
  // A head that could not be read has no id yet.
  headers.emplace_back("x-request-id", head.request_id.empty() ? AcceptedRequestId("") : head.request_id);
  if (head.tenant != nullptr) head.tenant->limits->AddHeaders(head.tenant->config, headers);
  const std::string& allowed = options_.cors_origin;
  if (allowed.empty()) return headers;
  if (allowed == "*" || head.origin == allowed) headers.emplace_back("Access-Control-Allow-Origin", allowed);
  if (allowed != "*") headers.emplace_back("Vary", "Origin");
  return headers;
}

HttpReply Service::Preflight(const HttpHead& head) const {
  HttpReply reply{.status = 204, .content_type = ""};
  const std::string_view allowed = AllowedMethods(head.target.route);
  reply.headers.emplace_back("Allow", allowed);
  if (options_.cors_origin.empty()) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", allowed);
  reply.headers.emplace_back("Access-Control-Allow-Headers",
                             "Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta");
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

HttpReply Service::Health() const {
  const engine::EngineStats stats = engine_.Stats();
  std::string_view state = "ok";
  // While requests are there steps follow each other; an engine without work has old steps and is well.
  const bool busy = stats.running + stats.waiting > 0;
  if (busy && Seconds(clock_.Now() - stats.last_step_at) > options_.stalled_after_s) state = "stalled";
  if (stopping_) state = "stopping";
  HttpReply reply{.status = state == "ok" ? 200 : 503, .body = Cat("{\"status\":\"", state, "\"}")};
  reply.headers.emplace_back("Cache-Control", "no-store");
  return reply;
}

HttpReply Service::Memory(const HttpHead& head) const {
  const absl::StatusOr<engine::MemorySnapshot> snapshot = AskForMemory(engine_, engine::SnapshotDetail::kWithNodes);
  if (!snapshot.ok()) return ErrorReply(ErrorFromStatus(snapshot.status()));
  if (head.tenant == nullptr || head.tenant->config.admin)
    return Private(MemoryBody(*snapshot, request_log_, tenants_));
  return Private(TenantMemoryBody(*snapshot, request_log_, tenants_, head.tenant->id,
                                  CacheNamespaceOf(head.tenant->cache_space(), "")));
}

HttpReply Service::State() const {
  const absl::StatusOr<engine::MemorySnapshot> snapshot = AskForMemory(engine_, engine::SnapshotDetail::kRequests);
  if (!snapshot.ok()) return ErrorReply(ErrorFromStatus(snapshot.status()));
  const StateSources sources{.model = model_.id,
                             .stats = engine_.Stats(),
                             .steps = engine_.step_log().Times(snapshot->now + -kStepWindowNs),
                             .latencies = metrics_.recent().Summary(clock_.Now(), kLatencyWindowS),
                             .log = request_log_,
                             .tenants = tenants_,
                             .keeps_usage = metering_.has_db(),
                             .started_at = started_at_};
  return Private(StateBody(*snapshot, sources));
}

HttpReply Service::Steps(std::string_view query) const {
  const absl::StatusOr<std::optional<StepId>> since = ParseStepsQuery(query);
  if (!since.ok()) return ErrorReply(ErrorFromStatus(since.status()));
  const std::vector<engine::StepRecord> steps = engine_.step_log().Since(*since, kStepsMax);
  return Private(StepsBody(steps, request_log_, started_at_, clock_.Now()));
}

HttpReply Service::Request(const HttpHead& head) const {
  const std::string& id = head.target.argument;
  std::optional<std::string> body = request_log_.Body(id, ViewerOf(head));
  if (body) return Private(*std::move(body));
  return ErrorReply(ErrorFromStatus(WithCode(
      absl::NotFoundError(Cat("nothing is known of a request '", Shortened(id), "': it is running, or too long ago")),
      "request_not_found")));
}

HttpReply Service::Model(const std::string& id) const {
  if (id == model_.id) return {.body = ModelBody(InfoOf(model_))};
  return ErrorReply(ErrorFromStatus(
      WithCode(absl::NotFoundError(Cat("the model '", Shortened(id), "' is not served here; '", model_.id, "' is")),
               "model_not_found")));
}

HttpReply Service::Usage(const HttpHead& head) const {
  const auto usage = [&]() -> absl::StatusOr<std::string> {
    if (!metering_.has_db()) return absl::NotFoundError("usage is not kept: start the server with --usage-db");
    KVIST_ASSIGN_OR_RETURN(UsageQuery query, ParseUsageQuery(head.target.query));
    if (const Viewer viewer = ViewerOf(head); !viewer.all) query.tenant = head.tenant->config.name;
    metering_.Flush(kUsagePatienceS);  // So that who asks right after an answer finds it.
    KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<UsageDb> db, UsageDb::OpenToRead(metering_.options().db_path));
    KVIST_ASSIGN_OR_RETURN(const std::vector<UsageSum> sums, db->Sum(query));
    return UsageBody(query, sums, [this](const std::string& name) { return tenants_.PricesOf(name); });
  };
  absl::StatusOr<std::string> body = usage();
  return body.ok() ? Private(*std::move(body)) : ErrorReply(ErrorFromStatus(body.status()));
}

HttpReply Service::Asset(const HttpHead& head) const {
  const web::Asset* asset = web::FindAsset(head.target.argument);
  KVIST_CHECK(asset != nullptr);
  HttpReply reply{.content_type = std::string(asset->content_type)};
  reply.headers = {{"ETag", std::string(asset->etag)},
                   {"Cache-Control", asset->immutable ? "public, max-age=31536000, immutable" : "no-cache"},
                   {"Content-Security-Policy", std::string(web::kContentSecurityPolicy)},
                   {"Referrer-Policy", "no-referrer"}};
  if (TagMatches(head.if_none_match, asset->etag)) {
    reply.status = 304;
  } else {
    reply.body = std::string(asset->body);
  }
  return reply;
}

}  // namespace kvist::serve
