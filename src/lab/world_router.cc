#include "lab/world_router.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kvist::lab {
namespace {

constexpr int64_t kRemindNs = 250'000'000;
constexpr int64_t kSuspicionNs = 2'000'000'000;
constexpr uint32_t kSilentMax = 4;    ///< Reminders before a worker is taken for dead.
constexpr uint32_t kMovesMax = 6;     ///< Workers tried before a request is given up.
constexpr uint32_t kFailuresMax = 3;  ///< Times that a step of it failed.
constexpr size_t kPrefixTokens = 24;

uint64_t PrefixOf(const engine::GenerationRequest& request) {
  uint64_t hash = Mix64(request.cache_namespace);
  for (size_t i = 0; i < std::min(request.prompt.size(), kPrefixTokens); ++i) {
    hash = Mix64(hash ^ request.prompt[i].value);
  }
  return hash;
}

}  // namespace

SimRouter::SimRouter(WorldLog& log, const SimScenario& scenario, DefectDice& dice, Wire wire)
    : log_(log),
      scenario_(scenario),
      dice_(dice),
      wire_(std::move(wire)),
      prng_(Mix64(scenario.seed ^ 0x726f757465)),
      suspected_until_(scenario.workers, TimeNs{0}),
      load_(scenario.workers, 0) {}

uint32_t SimRouter::Choose(const Entry& entry) {
  const auto route = routes_.find(entry.prefix);
  const auto suspected = [&](uint32_t worker) { return suspected_until_[worker] > log_.now(); };
  if (route != routes_.end() && !suspected(route->second)) return route->second;
  auto best = static_cast<uint32_t>(prng_.Below(scenario_.workers));
  for (uint32_t worker = 0; worker < scenario_.workers; ++worker) {
    if (std::pair(suspected(worker), load_[worker]) < std::pair(suspected(best), load_[best])) best = worker;
  }
  return best;
}

void SimRouter::Submit(const SimRequest& request, Deliver deliver) {
  Entry& entry = entries_[request.id];
  entry = {.request = request, .deliver = std::move(deliver), .prefix = PrefixOf(*request.generation)};
  entry.worker = Choose(entry);
  ++load_[entry.worker];
  ++open_;
  Ask(entry);
  log_.After(kRemindNs, [this, id = request.id] { Remind(id); });
}

void SimRouter::Ask(Entry& entry) {
  if (entry.cancelled) return wire_.cancel(entry.worker, WireId(entry));
  wire_.request(entry.worker, {.id = WireId(entry), .generation = entry.request.generation});
}

void SimRouter::Cancel(uint64_t id) {
  Entry& entry = entries_.at(id);
  if (entry.ended) return;
  entry.cancelled = true;
  Ask(entry);
}

void SimRouter::Remind(uint64_t id) {
  Entry& entry = entries_.at(id);
  if (entry.ended) return;
  if (++entry.silent > kSilentMax && !dice_.Is(Defect::kStaleRoute)) {
    suspected_until_[entry.worker] = log_.now() + kSuspicionNs;
    Move(entry);
  }
  if (entry.ended) return;
  if (entry.silent > 1 && dice_.Is(Defect::kLostRequest)) return;
  Ask(entry);
  log_.After(kRemindNs, [this, id] { Remind(id); });
}

void SimRouter::Move(Entry& entry) {
  if (entry.moves == kMovesMax) {
    return EndWith(entry, {.id = WireId(entry),
                           .worker = entry.worker,
                           .finish = engine::FinishReason::kError,
                           .status = absl::UnavailableError("no worker answers")});
  }
  wire_.cancel(entry.worker, WireId(entry));  // Should it still be there.
  --load_[entry.worker];
  ++entry.moves;
  entry.worker = Choose(entry);
  ++load_[entry.worker];
  entry.silent = 0;
  log_.Add(Cat("router moves ", entry.request.id, " to worker ", entry.worker));
}

void SimRouter::Take(const SimAnswer& answer) {
  const auto it = entries_.find(answer.id >> kMoveBits);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  suspected_until_[answer.worker] = TimeNs{0};
  if (entry.ended && !(dice_.Is(Defect::kAnsweredTwice) && answer.finish != engine::FinishReason::kNone)) return;
  const bool current = answer.id == WireId(entry);
  const bool whole = answer.finish == engine::FinishReason::kStop || answer.finish == engine::FinishReason::kLength;
  // A worker that was given up was told to stop: that is not its client's wish.
  if (!current && !whole) return;
  entry.silent = 0;
  if (answer.finish == engine::FinishReason::kNone) return;
  if (absl::IsDataLoss(answer.status) && ++entry.failures < kFailuresMax) {
    Move(entry);
    if (!entry.ended) Ask(entry);
    return;
  }
  if (!entry.ended && !current) wire_.cancel(entry.worker, WireId(entry));
  EndWith(entry, answer);
}

void SimRouter::EndWith(Entry& entry, const SimAnswer& answer) {
  if (!entry.ended) {
    --load_[entry.worker];
    --open_;
  }
  entry.ended = true;
  routes_[entry.prefix] = answer.worker;
  SimAnswer told = answer;
  told.id = entry.request.id;
  entry.deliver(told);
}

}  // namespace kvist::lab
