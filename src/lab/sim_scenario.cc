#include "lab/sim_scenario.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/prng.h"
#include "base/status.h"
#include "platform/text_file.h"
#include "sched/policy.h"
#include "serve/json_input.h"
#include "serve/toml_input.h"

namespace kvist::lab {
namespace {

using Kind = SimFault::Kind;

/// What is said about a fault of each kind.
struct KindEntry {
  Kind kind;
  std::string_view name;
  bool lasts;               ///< Has `for`.
  bool of_worker;           ///< Has `worker`.
  double min = 0, max = 0;  ///< Of `amount`; equal = it has none.
};
constexpr std::array<KindEntry, 11> kKinds = {{{Kind::kCrash, "crash", true, true},
                                               {Kind::kPowerLoss, "power-loss", true, true},
                                               {Kind::kSlow, "slow", true, true, 1, 100},
                                               {Kind::kPartition, "partition", true, true},
                                               {Kind::kLoss, "loss", true, false, 0, 1},
                                               {Kind::kDrive, "drive", true, true, 0, 1},
                                               {Kind::kDriveFull, "drive-full", true, true},
                                               {Kind::kBitRot, "bit-rot", false, true, 1, 1000},
                                               {Kind::kClockJump, "clock-jump", false, true, 0, 3600},
                                               {Kind::kStepFailure, "step-failure", false, true},
                                               {Kind::kNoMeters, "no-meters", true, true}}};

const KindEntry& EntryOf(Kind kind) {
  return *std::ranges::find(kKinds, kind, &KindEntry::kind);
}

constexpr double kSecondsMax = 3600;
constexpr size_t kFaultsMax = 1000;
constexpr size_t kFileBytesMax = size_t{1} << 20;

/// The fields of a scenario, for reading and writing: a name, where it lies, what it may be.
struct NumberField {
  std::string_view name;
  double SimScenario::*value;
  double min, max;
};
constexpr NumberField kNumbers[] = {
    {"seconds", &SimScenario::seconds, 0.01, kSecondsMax},   {"think", &SimScenario::think_s, 0, 60},
    {"cancel_share", &SimScenario::cancel_share, 0, 1},      {"drop_share", &SimScenario::drop_share, 0, 1},
    {"long_share", &SimScenario::long_share, 0, 1},          {"delay_min_ms", &SimScenario::delay_min_ms, 0, 1000},
    {"delay_max_ms", &SimScenario::delay_max_ms, 0, 1000},   {"loss_share", &SimScenario::loss_share, 0, 0.5},
    {"duplicate_share", &SimScenario::duplicate_share, 0, 1}};
struct CountField {
  std::string_view name;
  uint32_t SimScenario::*value;
  uint32_t min, max;
};
constexpr CountField kCounts[] = {{"workers", &SimScenario::workers, 1, 16},
                                  {"frames", &SimScenario::frames, 16, 4096},
                                  {"cold_memory", &SimScenario::cold_memory, 0, 4096},
                                  {"tokens_per_step", &SimScenario::tokens_per_step, 1, 4096},
                                  {"requests_per_step", &SimScenario::requests_per_step, 1, 256},
                                  {"waiting_max", &SimScenario::waiting_max, 1, 4096},
                                  {"clients", &SimScenario::clients, 1, 256},
                                  {"tenants", &SimScenario::tenants, 1, 64}};

absl::StatusOr<SimFault> ReadFault(const serve::Fields& fields, uint32_t workers) {
  SimFault fault;
  std::string name;
  KVIST_RETURN_IF_ERROR(fields.Read("kind", name));
  const auto* entry = std::ranges::find(kKinds, name, &KindEntry::name);
  if (entry == kKinds.end()) {
    std::string known;
    for (const KindEntry& kind : kKinds) known += Cat(known.empty() ? "" : ", ", kind.name);
    return fields.Bad("kind", Cat("must be one of ", known));
  }
  fault.kind = entry->kind;
  std::vector<std::string_view> allowed = {"kind", "at"};
  if (entry->lasts) allowed.push_back("for");
  if (entry->of_worker) allowed.push_back("worker");
  if (entry->min < entry->max) allowed.push_back("amount");
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(allowed));
  for (const std::string_view key : allowed) {
    if (fields.Find(key) == nullptr) return fields.Bad(key, "is missing");
  }
  KVIST_RETURN_IF_ERROR(fields.Read("at", 0, kSecondsMax, fault.at_s));
  if (entry->lasts) KVIST_RETURN_IF_ERROR(fields.Read("for", 0, kSecondsMax, fault.for_s));
  if (entry->min < entry->max) KVIST_RETURN_IF_ERROR(fields.Read("amount", entry->min, entry->max, fault.amount));
  if (entry->of_worker) {
    int64_t worker = 0;
    KVIST_RETURN_IF_ERROR(fields.Read("worker", 0, int64_t{workers} - 1, worker));
    fault.worker = static_cast<uint32_t>(worker);
  }
  return fault;
}

absl::StatusOr<SimScenario> ReadTree(const boost::json::object& tree) {
  SimScenario scenario;
  const serve::Fields fields(tree, "");
  std::vector<std::string_view> known = {"seed", "policy", "drive", "admission", "fault"};
  for (const NumberField& field : kNumbers) known.push_back(field.name);
  for (const CountField& field : kCounts) known.push_back(field.name);
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(known));
  int64_t seed = 1;
  KVIST_RETURN_IF_ERROR(fields.Read("seed", 0, INT64_MAX, seed));
  scenario.seed = static_cast<uint64_t>(seed);
  for (const NumberField& field : kNumbers) {
    KVIST_RETURN_IF_ERROR(fields.Read(field.name, field.min, field.max, scenario.*field.value));
  }
  for (const CountField& field : kCounts) {
    int64_t value = scenario.*field.value;
    KVIST_RETURN_IF_ERROR(fields.Read(field.name, field.min, field.max, value));
    scenario.*field.value = static_cast<uint32_t>(value);
  }
  KVIST_RETURN_IF_ERROR(fields.Read("drive", scenario.drive));
  KVIST_RETURN_IF_ERROR(fields.Read("policy", scenario.policy));
  if (!scenario.policy.empty() && sched::FindPolicy(scenario.policy) == nullptr) {
    return fields.Bad("policy", "is not known");
  }
  KVIST_RETURN_IF_ERROR(fields.Read("admission", scenario.admission));
  if (scenario.admission != "all" && scenario.admission != "through" && scenario.admission != "a5") {
    return fields.Bad("admission", "must be one of all, through, a5");
  }
  if (scenario.delay_max_ms < scenario.delay_min_ms) return fields.Bad("delay_max_ms", "is below delay_min_ms");
  KVIST_ASSIGN_OR_RETURN(const boost::json::array* faults, fields.ReadArray("fault"));
  if (faults == nullptr) return scenario;
  if (faults->size() > kFaultsMax) return fields.Bad("fault", Cat("are more than ", kFaultsMax));
  for (size_t i = 0; i < faults->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const serve::Fields entry, serve::FieldsOf((*faults)[i], Cat("fault[", i, "]")));
    KVIST_ASSIGN_OR_RETURN(SimFault fault, ReadFault(entry, scenario.workers));
    scenario.faults.push_back(fault);
  }
  return scenario;
}

/// Times are drawn in whole milliseconds, so that a file says them exactly.
double Milli(double value) {
  return std::round(value * 1000) / 1000;
}

SimFault DrawFault(Prng& prng, const SimScenario& scenario) {
  const KindEntry& entry = kKinds[prng.Below(kKinds.size())];
  SimFault fault{.kind = entry.kind, .at_s = Milli(scenario.seconds * prng.Uniform())};
  // Most faults are short; some last until the end.
  if (entry.lasts) fault.for_s = Milli(0.05 + 2 * prng.Uniform() * prng.Uniform());
  if (entry.lasts && prng.Below(3) == 0) fault.for_s = scenario.seconds;
  if (entry.of_worker) fault.worker = static_cast<uint32_t>(prng.Below(scenario.workers));
  const double amount = prng.Uniform();
  switch (entry.kind) {
    case Kind::kSlow:
      fault.amount = Milli(1 + 9 * amount);
      break;
    case Kind::kLoss:
      fault.amount = Milli(0.6 * amount);
      break;
    case Kind::kDrive:
      fault.amount = Milli(0.3 * amount);
      break;
    case Kind::kBitRot:
      fault.amount = std::round(1 + 20 * amount);
      break;
    case Kind::kClockJump:
      fault.amount = Milli(5 * amount);
      break;
    default:
      break;
  }
  return fault;
}

}  // namespace

std::string_view FaultName(SimFault::Kind kind) {
  return EntryOf(kind).name;
}

SimScenario DrawScenario(uint64_t seed, double seconds) {
  Prng prng(Mix64(seed ^ 0x5ce7a210));
  SimScenario scenario{.seed = seed, .seconds = seconds};
  scenario.workers = static_cast<uint32_t>(1 + prng.Below(3));
  scenario.frames = static_cast<uint32_t>(24 + prng.Below(60));
  scenario.drive = prng.Below(4) != 0;
  constexpr std::string_view kAdmissions[] = {"all", "through", "a5"};
  scenario.admission = kAdmissions[prng.Below(3)];
  scenario.tokens_per_step = static_cast<uint32_t>(16 << prng.Below(4));
  scenario.requests_per_step = static_cast<uint32_t>(2 + prng.Below(10));
  if (prng.Below(8) == 0) scenario.waiting_max = static_cast<uint32_t>(1 + prng.Below(4));
  scenario.clients = static_cast<uint32_t>(2 + prng.Below(8));
  scenario.tenants = static_cast<uint32_t>(1 + prng.Below(3));
  scenario.think_s = Milli(0.05 + 0.5 * prng.Uniform());
  if (prng.Below(3) == 0) scenario.loss_share = Milli(0.1 * prng.Uniform());
  if (prng.Below(3) == 0) scenario.duplicate_share = Milli(0.2 * prng.Uniform());
  if (prng.Below(3) == 0) scenario.delay_max_ms = Milli(2 + 60 * prng.Uniform());
  Prng cold(Mix64(seed ^ 0xc01d));  // Of its own, so that the rest of a seed's world is what it was without.
  if (cold.Below(2) == 0) scenario.cold_memory = static_cast<uint32_t>(1 + cold.Below(120));
  for (uint64_t left = prng.Below(7); left > 0; --left) scenario.faults.push_back(DrawFault(prng, scenario));
  return scenario;
}

absl::StatusOr<SimScenario> ParseScenario(std::string_view text, const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const boost::json::object tree, serve::ParseToml(text, path));
  absl::StatusOr<SimScenario> scenario = ReadTree(tree);
  if (!scenario.ok()) return Annotate(scenario.status(), path);
  return scenario;
}

absl::StatusOr<SimScenario> ReadScenario(const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kFileBytesMax));
  return ParseScenario(text, path);
}

std::string EncodeScenario(const SimScenario& scenario) {
  std::string out = fmt::format("seed = {}\n", scenario.seed);
  for (const NumberField& field : kNumbers) out += fmt::format("{} = {}\n", field.name, scenario.*field.value);
  for (const CountField& field : kCounts) out += fmt::format("{} = {}\n", field.name, scenario.*field.value);
  out += fmt::format("drive = {}\nadmission = \"{}\"\n", scenario.drive, scenario.admission);
  if (!scenario.policy.empty()) out += fmt::format("policy = \"{}\"\n", scenario.policy);
  for (const SimFault& fault : scenario.faults) {
    const KindEntry& entry = EntryOf(fault.kind);
    out += fmt::format("\n[[fault]]\nkind = \"{}\"\nat = {}\n", entry.name, fault.at_s);
    if (entry.lasts) out += fmt::format("for = {}\n", fault.for_s);
    if (entry.of_worker) out += fmt::format("worker = {}\n", fault.worker);
    if (entry.min < entry.max) out += fmt::format("amount = {}\n", fault.amount);
  }
  return out;
}

}  // namespace kvist::lab
