#include "serve/request_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "serve/answer_format.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

double Milliseconds(int64_t ns) {
  return std::round(static_cast<double>(ns) * 1e-3) / 1e3;
}

/// Null where one of the two did not happen.
json::value Between(TimeNs begin, TimeNs end, int64_t without_ns = 0) {
  if (begin == kTimeNever || end == kTimeNever) return nullptr;
  return Milliseconds(std::max<int64_t>(end - begin - without_ns, 0));
}

/// In order; what did not happen is null. Their sum is the whole time, but for a wait that begins before the first
/// token and ends after it.
json::object PhasesOf(const LoggedRequest& request, const engine::RequestTrace* trace) {
  json::object out = {{"prepare", Between(request.received_at, request.submitted_at)}};
  if (trace == nullptr) return out;
  out["queue"] = Between(trace->arrived_at, trace->began_at, trace->leader_wait_ns);
  out["leader"] = Milliseconds(trace->leader_wait_ns);
  out["prefill"] = Between(trace->began_at, trace->first_token_at, trace->preempted_prefill_ns);
  out["decode"] = Between(trace->first_token_at, trace->finished_at, trace->preempted_ns - trace->preempted_prefill_ns);
  out["preempted"] = Milliseconds(trace->preempted_ns);
  out["answer"] = Between(trace->finished_at, request.finished_at);
  return out;
}

double Mean(uint64_t sum, uint32_t count) {
  return count == 0 ? 0 : std::round(static_cast<double>(sum) / count * 100) / 100;
}

json::object ShortObject(const LoggedRequest& request) {
  json::object out = {{"id", request.id},
                      {"object", "kvist.request"},
                      {"kind", request.kind},
                      {"created", request.created_unix_s},
                      {"finish_reason", FinishReasonName(request.reason)},
                      {"prompt_tokens", request.usage.prompt_tokens},
                      {"cached_tokens", request.usage.cached_tokens},
                      {"output_tokens", request.usage.output_tokens},
                      {"total_ms", Between(request.received_at, request.finished_at)}};
  if (request.http_status != 200) out["error_status"] = request.http_status;
  return out;
}

/// The tier that a part of a text came from.
std::string_view SourceName(kv::BlockSource source) {
  switch (source) {
    case kv::BlockSource::kComputed:
      return "hot";
    case kv::BlockSource::kColdMemory:
      return "cold_memory";
    case kv::BlockSource::kDrive:
      return "drive";
    case kv::BlockSource::kColdMemoryAndDrive:
      return "cold_memory_and_drive";
  }
  return "";
}

json::object StepsObject(const engine::RequestTrace& trace) {
  return {{"count", trace.steps},
          {"time_ms", Milliseconds(trace.step_ns)},
          {"requests_mean", Mean(trace.batch_requests, trace.steps)},
          {"requests_max", trace.batch_requests_max},
          {"tokens_mean", Mean(trace.batch_tokens, trace.steps)}};
}

}  // namespace

void RequestLog::Name(RequestId engine_id, const std::string& id, TenantId tenant) {
  std::lock_guard lock(mutex_);
  names_[engine_id] = id;
  running_.try_emplace(id, Running{engine_id, tenant});
}

std::optional<RequestId> RequestLog::FindRunning(std::string_view id, Viewer viewer) const {
  std::lock_guard lock(mutex_);
  const auto it = running_.find(ToAbsl(id));
  if (it == running_.end() || !viewer.Sees(it->second.tenant)) return std::nullopt;
  return it->second.first_choice;
}

void RequestLog::Add(LoggedRequest request) {
  std::lock_guard lock(mutex_);
  running_.erase(request.id);
  request.traces.resize(request.engine_ids.size());
  requests_.push_back(std::move(request));
  if (requests_.size() <= requests_max_) return;
  for (const RequestId engine_id : requests_.front().engine_ids) names_.erase(engine_id);
  requests_.pop_front();
}

void RequestLog::AddTrace(std::string_view id, size_t choice, std::shared_ptr<const engine::RequestTrace> trace) {
  std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(requests_, id, &LoggedRequest::id);
  if (it != requests_.end() && choice < it->traces.size()) it->traces[choice] = std::move(trace);
}

std::string RequestLog::ListBody(Viewer viewer) const {
  std::lock_guard lock(mutex_);
  json::array data;
  for (auto it = requests_.rbegin(); it != requests_.rend(); ++it) {
    if (viewer.Sees(it->tenant)) data.push_back(ShortObject(*it));
  }
  return JsonText(json::object{{"object", "list"}, {"data", std::move(data)}});
}

json::value RequestLog::NameOf(RequestId engine_id) const {
  std::lock_guard lock(mutex_);
  return NameOfLocked(engine_id);
}

json::value RequestLog::NameOfLocked(RequestId engine_id) const {
  const auto it = names_.find(engine_id);
  if (it == names_.end()) return nullptr;
  return json::value(it->second);
}

json::object RequestLog::ChoiceObject(const engine::RequestTrace& trace) const {
  json::array reused;
  uint32_t whole = 0, copied = 0;
  for (const kv::ReusedPart& part : trace.reused) {
    (part.copied ? copied : whole) += part.tokens;
    const bool here = part.source == kv::BlockSource::kComputed;  // A tier does not know who computed it.
    // What came back after the request had come was brought for it, or for others that wanted the same.
    const bool in_memory = here || part.computed_at < trace.arrived_at;
    reused.push_back({{"tokens", part.tokens},
                      {"copied", part.copied},
                      {"node", part.node},
                      {"from", SourceName(part.source)},
                      {"in_memory", in_memory},
                      {"computed_by", here ? NameOfLocked(part.computed_by) : nullptr},
                      {"ms_before", Between(part.computed_at, trace.began_at)}});
  }
  json::value leader;
  if (trace.leader != RequestId{}) {
    leader = {{"id", NameOfLocked(trace.leader)},
              {"tokens", trace.leader_tokens},
              {"waited_ms", Milliseconds(trace.leader_wait_ns)}};
  }
  return {{"tokens",
           {{"prompt", trace.prompt_tokens},
            {"reused", whole},
            {"copied", copied},
            {"computed", trace.computed_tokens},
            {"recomputed", trace.recomputed_tokens},
            {"dropped", trace.dropped_tokens},
            {"output", trace.output_tokens}}},
          {"restored", {{"tokens", trace.restored_tokens}, {"waited_ms", Milliseconds(trace.restore_wait_ns)}}},
          {"own_blocks", trace.own_blocks},
          {"reused_from", std::move(reused)},
          {"leader", std::move(leader)},
          {"preemptions", trace.preemptions},
          {"steps", StepsObject(trace)}};
}

std::optional<std::string> RequestLog::Body(std::string_view id, Viewer viewer) const {
  std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(requests_, id, &LoggedRequest::id);
  if (it == requests_.end() || !viewer.Sees(it->tenant)) return std::nullopt;
  json::object body = ShortObject(*it);
  body["phases_ms"] = PhasesOf(*it, it->traces.empty() ? nullptr : it->traces[0].get());
  json::array choices;
  for (const auto& trace : it->traces) {
    if (trace != nullptr) choices.push_back(ChoiceObject(*trace));
  }
  body["choices"] = std::move(choices);
  return JsonText(body);
}

}  // namespace kvist::serve
