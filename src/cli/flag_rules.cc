#include "cli/flag_rules.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/status.h"

namespace kvist::cli {
namespace {

enum class Does : uint8_t { kOnlyWith, kNothingWith };

struct FlagRule {
  std::vector<std::string_view> commands;
  Does does;
  std::string_view other;
  std::vector<std::string_view> flags;
  std::vector<std::string_view> values = {};  ///< Of `other`, for which the rule holds; empty: for all but off.
  std::string_view unless = {};               ///< This one makes them do something all the same.
};

std::span<const FlagRule> Rules() {
  // Of AddDeviceFlags.
  static const std::vector<std::string_view> of_device = {
      "model-shape", "dtype",   "kv-dtype",     "tensor-parallel", "pipeline-parallel",
      "link",        "profile", "memory-share", "devices"};
  // Of AddTierFlags.
  static const std::vector<std::string_view> of_drive = {"kv-disk-size", "kv-disk-read-only", "kv-admission",
                                                         "kv-disk-daily-writes", "no-kv-pacing"};
  // What a processor of this machine is told.
  static const std::vector<std::string_view> of_machine = {"threads", "isa", "kv-memory", "kv-type", "packed-cache"};
  static const std::vector<FlagRule> rules = {
      {{"serve", "replay"}, Does::kOnlyWith, "device", of_device},
      {{"serve"}, Does::kOnlyWith, "device", {"emulated-output", "tokens-from-model"}},
      // Its memory and its speed are the device's.
      {{"serve"}, Does::kNothingWith, "device", {"kv-memory", "kv-cold-memory", "kv-disk"}},
      {{"serve"},
       Does::kNothingWith,
       "device",
       {"threads", "isa", "kv-type", "packed-cache", "forget-below"},
       {},
       /*unless=*/"tokens-from-model"},
      {{"serve"}, Does::kNothingWith, "tokens-from-model", {"emulated-output"}},
      {{"serve", "eval"}, Does::kOnlyWith, "kv-cold-memory", {"kv-cold-codec", "no-kv-pacing"}},
      {{"serve", "eval"}, Does::kOnlyWith, "kv-disk", of_drive},
      {{"serve", "eval"}, Does::kNothingWith, "kv-disk-read-only", {"kv-admission", "kv-disk-daily-writes"}},
      {{"serve", "eval"}, Does::kNothingWith, "kv-admission", {"kv-disk-daily-writes"}, {"all", "through"}},
      {{"serve"}, Does::kNothingWith, "no-cache", {"pin-share"}},
      {{"serve"},
       Does::kNothingWith,
       "policy",
       {"prefills-max", "ttft-target-ms", "tpot-target-ms"},
       {"fcfs", "chunked", "splitfuse", "fair", "sjf", "prefix-batch"}},
      {{"replay"},
       Does::kOnlyWith,
       "device",
       {"model", "policy", "max-batched-tokens", "max-requests", "concurrency", "requests", "no-cache", "plan-behind",
        "real-time", "replicas", "copies", "host-memory"}},
      {{"replay"}, Does::kOnlyWith, "host-memory", {"host-link"}},
      {{"replay"}, Does::kNothingWith, "no-cache", {"host-memory"}},
      {{"replay"}, Does::kOnlyWith, "replicas", {"route"}},
      {{"replay"}, Does::kNothingWith, "device", {"share", "buckets", "tiers", "daily-writes", "block-kib"}},
      {{"replay"}, Does::kOnlyWith, "tiers", {"daily-writes", "block-kib"}},
      {{"replay"}, Does::kNothingWith, "tiers", {"buckets"}},
      {{"replay"}, Does::kNothingWith, "blocks", {"share"}},
      {{"calibrate"}, Does::kOnlyWith, "profile", of_device},
      {{"calibrate"}, Does::kOnlyWith, "profile", {"device", "like", "samples", "seed"}},
      {{"calibrate"}, Does::kNothingWith, "profile", of_machine},
      {{"calibrate"}, Does::kNothingWith, "profile", {"model"}},
      {{"calibrate"}, Does::kOnlyWith, "steps", {"decodes", "context"}},
      {{"sim"}, Does::kNothingWith, "scenario", {"seed", "seconds"}},
      {{"sim"}, Does::kNothingWith, "for", {"runs"}},
      {{"batch"}, Does::kNothingWith, "url", of_machine},
      {{"batch"}, Does::kNothingWith, "url", {"model", "context"}},
      {{"batch"}, Does::kOnlyWith, "url", {"api-key", "ca-file"}},
      {{"batch"}, Does::kNothingWith, "plain", {"priority"}},
      {{"bench-serve"}, Does::kOnlyWith, "trace", {"speed", "length-scale"}},
      {{"bench-serve"}, Does::kNothingWith, "trace", {"burstiness"}},
      {{"bench-serve"}, Does::kNothingWith, "tenant", {"api-key"}},
      {{"bench-serve"}, Does::kNothingWith, "dataset", {"input-tokens", "output-tokens"}},
  };
  return rules;
}

const Setting* Find(const std::vector<Setting>& given, std::string_view flag) {
  const auto it = std::ranges::find(given, flag, &Setting::flag);
  return it == given.end() ? nullptr : &*it;
}

/// A flag without a value that is set to false is not given; one that turns something off is, and says "false".
bool IsOn(const Setting* setting) {
  if (setting == nullptr || setting->values.empty() || setting->values.front().empty()) return false;
  const bool turns_off = setting->flag.starts_with("no-") && setting->place.starts_with("--");
  return turns_off || setting->values.front() != "false";
}

/// Whether the rule's other flag is there, with one of the rule's values. An amount of 0 is none.
bool Holds(const FlagRule& rule, const Setting* other) {
  if (!IsOn(other) || other->values.front() == "0") return false;
  return rule.values.empty() || std::ranges::find(rule.values, other->values.front()) != rule.values.end();
}

bool SaysNothing(const CLI::App& command, const Setting& setting) {
  if (!IsOn(&setting)) return true;
  if (setting.place.starts_with("--")) return false;
  const CLI::Option* option = OptionOf(command, setting.flag);
  return option != nullptr && setting.values == std::vector<std::string>{option->get_default_str()};
}

/// "--threads", with the place of a setting from elsewhere.
std::string Named(const Setting& setting) {
  const std::string flag = Cat("--", setting.flag);
  return setting.place.starts_with("--") ? flag : Cat(setting.place, ": ", flag);
}

}  // namespace

absl::Status CheckFlagRules(const CLI::App& command, const std::vector<Setting>& given) {
  for (const FlagRule& rule : Rules()) {
    if (std::ranges::find(rule.commands, command.get_name()) == rule.commands.end()) continue;
    const Setting* other = Find(given, rule.other);
    if (Holds(rule, other) != (rule.does == Does::kNothingWith)) continue;
    if (!rule.unless.empty() && IsOn(Find(given, rule.unless))) continue;
    for (const std::string_view flag : rule.flags) {
      const Setting* setting = Find(given, flag);
      if (setting == nullptr || flag == rule.other || SaysNothing(command, *setting)) continue;
      if (rule.does == Does::kOnlyWith)
        return absl::InvalidArgumentError(Cat(Named(*setting), " needs --", rule.other));
      return absl::InvalidArgumentError(Cat(Named(*setting), " does nothing with --", rule.other,
                                            rule.values.empty() ? "" : Cat(" ", other->values.front()),
                                            other->place.starts_with("--") ? "" : Cat(" (", other->place, ")")));
    }
  }
  return absl::OkStatus();
}

}  // namespace kvist::cli
