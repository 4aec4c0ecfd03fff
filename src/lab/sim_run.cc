#include "lab/sim_run.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <boost/json.hpp>

#include "base/status.h"
#include "platform/child.h"

namespace kvist::lab {

namespace json = boost::json;

namespace {

/// Digests are written as text: JSON numbers of that size are not safe everywhere.
std::string Encode(const WorldResult& result) {
  const WorkerTotals& workers = result.workers;
  const ClientTotals& clients = result.clients;
  const json::object out = {
      {"checker", result.violation.checker},
      {"message", result.violation.message},
      {"at_s", result.violation.at_s},
      {"lines", json::value_from(result.last_lines)},
      {"digest", std::to_string(result.digest)},
      {"seconds", result.seconds},
      {"clients",
       {clients.requests, clients.answered, clients.cancelled, clients.refused, clients.failed, clients.tokens}},
      {"workers",
       {workers.steps, workers.computed_tokens, workers.generated_tokens, workers.cached_tokens, workers.preemptions,
        workers.restored_blocks, workers.stored_blocks, workers.lives}}};
  return json::serialize(out);
}

absl::StatusOr<WorldResult> Decode(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error) return absl::InternalError("a simulated world told nothing that can be read");
  const json::object& in = value.as_object();
  const auto number = [](const json::value& entry) { return entry.to_number<uint64_t>(); };
  WorldResult result{.violation = {.checker = json::value_to<std::string>(in.at("checker")),
                                   .message = json::value_to<std::string>(in.at("message")),
                                   .at_s = in.at("at_s").to_number<double>()},
                     .last_lines = json::value_to<std::vector<std::string>>(in.at("lines")),
                     .digest = std::strtoull(in.at("digest").as_string().c_str(), nullptr, 10),
                     .seconds = in.at("seconds").to_number<double>()};
  const json::array& clients = in.at("clients").as_array();
  result.clients = {number(clients[0]), number(clients[1]), number(clients[2]),
                    number(clients[3]), number(clients[4]), number(clients[5])};
  const json::array& workers = in.at("workers").as_array();
  result.workers = {number(workers[0]), number(workers[1]), number(workers[2]), number(workers[3]),
                    number(workers[4]), number(workers[5]), number(workers[6]), number(workers[7])};
  return result;
}

/// One step shorter in each way, the largest steps first.
std::vector<SimScenario> ShorterOnes(const SimScenario& scenario, double failed_at_s) {
  std::vector<SimScenario> out;
  const auto add = [&](const std::function<void(SimScenario&)>& change) {
    SimScenario shorter = scenario;
    change(shorter);
    if (!(shorter == scenario)) out.push_back(std::move(shorter));
  };
  add([&](SimScenario& s) { s.seconds = std::min(s.seconds, failed_at_s + 0.01); });
  add([](SimScenario& s) { s.faults.clear(); });
  add([](SimScenario& s) {
    s.workers = 1;
    for (SimFault& fault : s.faults) fault.worker = 0;
  });
  add([](SimScenario& s) { s.drive = false; });
  add([](SimScenario& s) { s.clients = (s.clients + 1) / 2; });
  add([](SimScenario& s) { s.seconds /= 2; });
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    add([i](SimScenario& s) { s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(i)); });
  }
  add([](SimScenario& s) { s.clients = std::max(1u, s.clients - 1); });
  add([](SimScenario& s) { s.tenants = 1; });
  add([](SimScenario& s) { s.loss_share = s.duplicate_share = 0; });
  add([](SimScenario& s) { s.cancel_share = 0; });
  add([](SimScenario& s) { s.drop_share = 0; });
  add([](SimScenario& s) { s.long_share = 0; });
  add([](SimScenario& s) { s.delay_max_ms = s.delay_min_ms; });
  add([](SimScenario& s) { s.seconds *= 0.9; });
  std::erase_if(out, [](const SimScenario& s) { return s.seconds < 0.01; });
  return out;
}

}  // namespace

absl::StatusOr<WorldResult> RunApart(const SimScenario& scenario, const SimRunOptions& options) {
  KVIST_ASSIGN_OR_RETURN(
      const ChildOutcome outcome,
      RunInChild([&] { return Encode(RunWorld(scenario, options.defect)); }, options.real_seconds_max));
  if (outcome.returned) return Decode(outcome.result);
  WorldResult result;
  if (outcome.signal == SIGALRM) {
    result.violation = {.checker = "progress", .message = Cat("no end within ", options.real_seconds_max, " s")};
  } else {
    result.violation = {.checker = "checks", .message = Cat("signal ", outcome.signal, ": ", outcome.errors)};
  }
  return result;
}

absl::StatusOr<Shrunk> Shrink(const SimScenario& scenario, const WorldResult& result, const SimRunOptions& options,
                              uint32_t runs_max) {
  Shrunk best{.scenario = scenario, .result = result};
  for (bool shorter = true; shorter && best.runs < runs_max;) {
    shorter = false;
    const double failed_at_s = best.result.violation.at_s > 0 ? best.result.violation.at_s : best.scenario.seconds;
    for (const SimScenario& candidate : ShorterOnes(best.scenario, failed_at_s)) {
      if (best.runs++ >= runs_max) break;
      KVIST_ASSIGN_OR_RETURN(WorldResult tried, RunApart(candidate, options));
      if (tried.violation.checker != best.result.violation.checker) continue;
      best.scenario = candidate;
      best.result = std::move(tried);
      shorter = true;
      break;
    }
  }
  return best;
}

}  // namespace kvist::lab
