#include "serve/state_view.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "serve/api_error.h"
#include "serve/json_input.h"
#include "serve/json_output.h"
#include "serve/memory_view.h"
#include "serve/recent_latencies.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

double Milliseconds(int64_t ns) {
  return std::round(static_cast<double>(ns) * 1e-3) / 1e3;
}

std::string_view StateOf(const engine::RequestMemory& request) {
  return request.running ? "running" : request.preempted ? "preempted" : "waiting";
}

json::array RequestsOf(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants) {
  json::array out;
  for (const engine::RequestMemory& request : snapshot.requests) {
    if (out.size() == kStateRequestsMax) break;
    out.push_back({{"number", request.id.value},
                   {"id", log.NameOf(request.id)},
                   {"tenant", tenants.NameOf(request.tenant)},
                   {"state", StateOf(request)},
                   {"age_ms", std::round(request.age_s * 1e6) / 1e3},
                   {"prompt_tokens", request.tokens_prompt},
                   {"cached_tokens", request.tokens_cached},
                   {"computed_tokens", request.tokens_computed},
                   {"output_tokens", request.tokens_output}});
  }
  return out;
}

json::object StepsObject(const std::vector<engine::StepTime>& steps, const engine::EngineStats& stats) {
  std::vector<double> seconds;
  for (const engine::StepTime& step : steps) seconds.push_back(Seconds(step.finished_at - step.started_at));
  json::value error;  // What is said before the first step is a guess.
  if (stats.steps > 0) error = std::round(stats.step_cost.error_ratio * 1e4) / 1e4;
  return {{"window_s", Seconds(kStepWindowNs)},
          {"ms", PercentilesMs(std::move(seconds))},
          {"prediction_error", std::move(error)}};
}

json::object TotalsObject(const engine::EngineStats& stats) {
  return {{"steps", stats.steps},
          {"step_ms", Milliseconds(static_cast<int64_t>(stats.step_ns))},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"computed_tokens", stats.computed_tokens},
          {"output_tokens", stats.generated_tokens},
          {"preemptions", stats.preemptions},
          {"waited_for_prefix", stats.waited_for_prefix},
          {"finished",
           {{"stop", stats.finished_stop},
            {"length", stats.finished_length},
            {"abort", stats.finished_cancelled},
            {"error", stats.finished_error}}}};
}

json::object StepObject(const engine::StepRecord& step, TimeNs started_at) {
  json::array parts, preempted;
  for (const engine::StepPart& part : step.parts) {
    json::object one = {{"number", part.request.value}};
    if (part.prefill_tokens > 0) one["prefill"] = part.prefill_tokens;
    if (part.decode_tokens > 0) one["decode"] = part.decode_tokens;
    if (part.waited_ns > 0) one["waited_ms"] = Milliseconds(part.waited_ns);
    parts.push_back(std::move(one));
  }
  json::object out = {{"id", step.id.value},
                      {"start_ms", Milliseconds(step.started_at - started_at)},
                      {"ms", Milliseconds(step.finished_at - step.started_at)},
                      {"requests", std::move(parts)}};
  for (const RequestId id : step.preempted) preempted.push_back(id.value);
  if (!preempted.empty()) out["preempted"] = std::move(preempted);
  return out;
}

}  // namespace

std::string StateBody(const engine::MemorySnapshot& snapshot, const StateSources& sources) {
  const auto count = [&](std::string_view state) { return std::ranges::count(snapshot.requests, state, StateOf); };
  const json::object body = {
      {"object", "kvist.state"},
      {"model", sources.model},
      {"now_ms", Milliseconds(snapshot.now - sources.started_at)},
      {"counts", {{"running", count("running")}, {"waiting", count("waiting")}, {"preempted", count("preempted")}}},
      {"requests", RequestsOf(snapshot, sources.log, sources.tenants)},
      {"tiers", TiersArray(snapshot)},
      {"keeps_usage", sources.keeps_usage},
      {"since_start", TotalsObject(sources.stats)},
      {"latency", sources.latencies},
      {"steps", StepsObject(sources.steps, sources.stats)}};
  return JsonText(body);
}

absl::StatusOr<std::optional<StepId>> ParseStepsQuery(std::string_view query) {
  for (const absl::string_view part : absl::StrSplit(ToAbsl(query), '&')) {
    constexpr absl::string_view kSince = "since=";
    if (part.substr(0, kSince.size()) != kSince) continue;
    const absl::string_view text = part.substr(kSince.size());
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size()) {
      return BadParam("since", Cat("'since': '", Shortened({text.data(), text.size()}), "' is not the id of a step"));
    }
    return StepId{id};
  }
  return std::nullopt;
}

std::string StepsBody(const std::vector<engine::StepRecord>& steps, const RequestLog& log, TimeNs started_at,
                      TimeNs now) {
  json::array data, names;
  absl::flat_hash_set<RequestId> named;
  for (const engine::StepRecord& step : steps) {
    data.push_back(StepObject(step, started_at));
    for (const engine::StepPart& part : step.parts) {
      if (named.insert(part.request).second) {
        names.push_back({{"number", part.request.value}, {"id", log.NameOf(part.request)}});
      }
    }
  }
  return JsonText(json::object{{"object", "kvist.steps"},
                               {"now_ms", Milliseconds(now - started_at)},
                               {"requests", std::move(names)},
                               {"data", std::move(data)}});
}

}  // namespace kvist::serve
