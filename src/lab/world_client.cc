#include "lab/world_client.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"
#include "serve/answer_format.h"

namespace kvist::lab {
namespace {

using engine::FinishReason;

/// Templates of system prompts; every tenant uses the same ones.
constexpr uint32_t kTemplates = 3;
/// A request that nobody says a word about for so long is lost.
constexpr int64_t kSilenceNs = 4'000'000'000;
/// Queues so short may be full.
constexpr uint32_t kShortQueue = 16;

TokenId DrawToken(Prng& prng) {
  return TokenId{static_cast<uint32_t>(1 + prng.Below(kContentVocab - 1))};
}

}  // namespace

SimClients::SimClients(WorldLog& log, const SimScenario& scenario, SimRouter& router, const Weather& weather)
    : log_(log),
      scenario_(scenario),
      router_(router),
      weather_(weather),
      limits_{.context_tokens_max = scenario.frames * kv::kBlockTokens, .frames = scenario.frames},
      clients_(scenario.clients) {
  for (uint32_t i = 0; i < clients_.size(); ++i) clients_[i].prng = Prng(Mix64(scenario.seed ^ Mix64(0x636c69 + i)));
}

void SimClients::Start(TimeNs end) {
  end_ = end;
  for (uint32_t i = 0; i < clients_.size(); ++i) Think(i);
}

void SimClients::Think(uint32_t client) {
  const double s = -scenario_.think_s * std::log(1 - clients_[client].prng.Uniform());
  log_.After(static_cast<int64_t>(s * 1e9), [this, client] {
    if (log_.now() < end_) Turn(client);
  });
}

void SimClients::BeginTalk(Client& client) {
  client.talk = {.tenant = static_cast<uint32_t>(client.prng.Below(scenario_.tenants)),
                 .turns = static_cast<uint32_t>(1 + client.prng.Below(6))};
  const uint64_t kind = client.prng.Below(kTemplates);
  Prng text(Mix64(kind));
  for (uint64_t left = 8 + 30 * kind; left > 0; --left) client.talk.tokens.push_back(DrawToken(text));
}

/// Something of the text so far leaves the view.
void SimClients::AddOps(Client& client) {
  Talk& talk = client.talk;
  const auto size = static_cast<uint32_t>(talk.tokens.size());
  const uint32_t first = talk.ops.empty() ? 2 : talk.ops.back().at;
  if (first >= size || size > limits_.context_tokens_max / 3) return;
  const auto at = static_cast<uint32_t>(first + client.prng.Below(size - first + 1));
  const auto begin = static_cast<uint32_t>(client.prng.Below(at));
  const auto end = static_cast<uint32_t>(begin + 1 + client.prng.Below(at - begin));
  talk.ops.push_back({.at = at, .begin = begin, .end = end, .reposition = client.prng.Below(2) == 0});
}

void SimClients::Retain(Client& client, engine::GenerationRequest& request) {
  constexpr kv::Retention kClasses[] = {kv::Retention::kLow, kv::Retention::kHigh, kv::Retention::kPinned};
  request.retain.push_back({.begin = 0,
                            .end = static_cast<uint32_t>(1 + client.prng.Below(request.prompt.size())),
                            .retention = kClasses[client.prng.Below(3)],
                            .for_ns = static_cast<int64_t>(client.prng.Below(3'000'000'000)),
                            .forget = client.prng.Below(2) == 0});
}

void SimClients::Turn(uint32_t index) {
  Client& client = clients_[index];
  Prng& prng = client.prng;
  if (client.talk.turns == 0 || client.talk.tokens.size() > limits_.context_tokens_max / 2) BeginTalk(client);
  --client.talk.turns;
  for (uint64_t left = 3 + prng.Below(40); left > 0; --left) client.talk.tokens.push_back(DrawToken(prng));
  if (prng.Uniform() < scenario_.drop_share) AddOps(client);

  engine::GenerationRequest request;
  request.prompt = client.talk.tokens;
  request.ops = client.talk.ops;
  request.tenant = TenantId{client.talk.tenant + 1};
  request.cache_namespace = Mix64(scenario_.seed ^ client.talk.tenant);
  request.max_tokens = static_cast<uint32_t>(1 + prng.Below(30));
  request.ignore_eos = prng.Below(2) == 0;
  request.sampling.temperature = prng.Below(2) == 0 ? 0.0f : 1.0f;
  request.priority = static_cast<uint8_t>(prng.Below(3) * 127);
  if (prng.Below(4) == 0) request.first_token_ns = static_cast<int64_t>(1 + prng.Below(1'000'000'000));
  if (prng.Below(10) == 0) Retain(client, request);
  client.heard.clear();
  if (prng.Uniform() < scenario_.long_share) {
    const uint64_t more = limits_.context_tokens_max + prng.Below(200);
    while (request.prompt.size() < more) request.prompt.push_back(DrawToken(prng));
  }
  const uint64_t choices = prng.Below(8) == 0 ? 2 : 1;
  for (uint64_t choice = 0; choice < choices; ++choice) {
    request.sampling.seed = prng.Next();
    if (choice > 0 && prng.Below(2) == 0) request.prompt.push_back(DrawToken(prng));  // A fork of the talk.
    ++client.open;
    Ask(index, request);
  }
}

void SimClients::Ask(uint32_t client, engine::GenerationRequest request) {
  const uint64_t id = next_id_++;
  Asked& asked = asked_[id];
  asked = {.generation = std::make_shared<const engine::GenerationRequest>(std::move(request)),
           .client = client,
           .since = log_.now(),
           .heard = log_.now()};
  ++open_;
  ++totals_.requests;
  log_.Add(Cat("client ", client, " asks ", id, ": ", asked.generation->prompt.size(), " tokens and up to ",
               asked.generation->max_tokens, ", tenant ", asked.generation->tenant.value,
               asked.generation->ops.empty() ? "" : ", with parts dropped"));
  router_.Submit({.id = id, .generation = asked.generation}, [this](const SimAnswer& answer) { Take(answer); });
  Prng& prng = clients_[client].prng;
  if (prng.Uniform() >= scenario_.cancel_share) return;
  log_.After(static_cast<int64_t>(prng.Below(400'000'000)), [this, id] {
    Asked& of = asked_.at(id);
    if (of.ends > 0) return;
    of.cancelled = true;
    log_.Add(Cat("client ", of.client, " cancels ", id));
    router_.Cancel(id);
  });
}

void SimClients::Take(const SimAnswer& answer) {
  Asked& asked = asked_.at(answer.id);
  log_.Add(Cat("client ", asked.client, " gets ", answer.id, " from worker ", answer.worker, ": ",
               serve::FinishReasonName(answer.finish), ", ", answer.tokens.size(), " tokens"));
  for (const TokenId token : answer.tokens) log_.Digest(token.value);
  if (++asked.ends > 1) return log_.Report("ends", Cat("request ", answer.id, " ends twice"));
  Judge(asked, answer);
  --open_;
  Client& client = clients_[asked.client];
  if (answer.finish == FinishReason::kStop || answer.finish == FinishReason::kLength) {
    std::vector<TokenId> text = asked.generation->prompt;
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    client.heard.push_back(std::move(text));
  }
  if (--client.open > 0) return;
  if (client.heard.empty()) {
    client.talk.turns = 0;
  } else {
    client.talk.tokens = client.heard[client.prng.Below(client.heard.size())];
  }
  Think(asked.client);
}

bool SimClients::MayFail(const Asked& asked, const absl::Status& status) const {
  const auto was = [&](SimFault::Kind kind) { return weather_.Since(kind, asked.since); };
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return scenario_.waiting_max < kShortQueue || was(SimFault::Kind::kNoMeters);
    case absl::StatusCode::kDataLoss:
      return was(SimFault::Kind::kStepFailure);
    case absl::StatusCode::kUnavailable:
      return was(SimFault::Kind::kCrash) || was(SimFault::Kind::kPowerLoss) || was(SimFault::Kind::kPartition) ||
             was(SimFault::Kind::kLoss);
    default:
      return false;
  }
}

void SimClients::Judge(const Asked& asked, const SimAnswer& answer) {
  const ContentAnswer right = ExpectedAnswer(*asked.generation, limits_);
  const bool refused = answer.finish == FinishReason::kError && absl::IsInvalidArgument(answer.status);
  if (refused) {
    ++totals_.refused;
    if (!right.refused) {
      log_.Report("answers", Cat("request ", answer.id, " is refused, but it fits: ", answer.status.ToString()));
    }
    return;
  }
  if (answer.finish == FinishReason::kError) {
    ++totals_.failed;
    if (!MayFail(asked, answer.status)) {
      log_.Report("ends", Cat("request ", answer.id, " fails, and nothing was wrong: ", answer.status.ToString()));
    }
    return;
  }
  const auto [at, of] = std::ranges::mismatch(answer.tokens, right.tokens);
  if (answer.finish == FinishReason::kCancelled) {
    ++totals_.cancelled;
    if (!asked.cancelled) return log_.Report("ends", Cat("request ", answer.id, " is cancelled by nobody"));
    if (at != answer.tokens.end()) log_.Report("answers", Cat("what ", answer.id, " had got is wrong"));
    return;
  }
  ++totals_.answered;
  totals_.tokens += answer.tokens.size();
  if (right.refused) return log_.Report("answers", Cat("request ", answer.id, " is answered, but fits nowhere"));
  if (at == answer.tokens.end() && of == right.tokens.end() && answer.finish == right.finish) return;
  log_.Report("answers", Cat("request ", answer.id, " gets ", answer.tokens.size(), " tokens and ",
                             serve::FinishReasonName(answer.finish), ", right are ", right.tokens.size(), " and ",
                             serve::FinishReasonName(right.finish), "; they differ from token ",
                             at - answer.tokens.begin(), " on"));
}

void SimClients::Heard(uint64_t id) {
  if (const auto it = asked_.find(id); it != asked_.end()) it->second.heard = log_.now();
}

void SimClients::CheckProgress(TimeNs reachable_since) {
  for (const auto& [id, asked] : asked_) {
    if (asked.ends > 0) continue;
    if (log_.now() - std::max(asked.heard, reachable_since) > kSilenceNs) {
      return log_.Report("progress", Cat("nobody works on request ", id, " any more"));
    }
  }
}

void SimClients::CheckEnd() {
  for (const auto& [id, asked] : asked_) {
    if (asked.ends != 1) return log_.Report("ends", Cat("request ", id, " never ends"));
  }
}

}  // namespace kvist::lab
