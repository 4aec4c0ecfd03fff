#include "cli/serve_flags.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>

#include <spdlog/spdlog.h>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/flag_rules.h"
#include "cli/policy_flag.h"
#include "cli/ranges.h"
#include "runtime/runtime.h"
#include "sched/policy.h"

namespace kvist::cli {
namespace {

constexpr uint64_t kBodyBytesMax = uint64_t{1} << 30;  // What Tokenizer::Encode takes.

/// Of all others, what depends on them was made when the server started.
constexpr std::string_view kReloaded[] = {"cors-origin",      "drain-seconds",   "log-level",
                                          "max-body",         "max-connections", "max-connections-per-address",
                                          "max-wait-seconds", "tpot-target-ms",  "ttft-target-ms"};

void LogCache(const std::string& path, const absl::Status& status) {
  if (status.ok()) {
    spdlog::info("packed weights are kept in {}", path);
  } else if (!absl::IsCancelled(status)) {
    spdlog::warn("packed weights are not kept: {}", std::string(status.message()));
  }
}

void LogLate(int64_t device_ns, int64_t model_ns) {
  spdlog::warn(
      "a step of {:.1f} ms took the model that gives the tokens {:.1f} ms: such steps are longer than the "
      "device's; /metrics counts them (kvist_emulation_late_steps_total)",
      static_cast<double>(device_ns) * 1e-6, static_cast<double>(model_ns) * 1e-6);
}

void LogOutside(const cost::Excess& excess) {
  spdlog::warn(
      "a step lay outside of what the profile measured, by a factor of {:.2f} ({}): times of such steps are "
      "extended in proportion",
      excess.factor, excess.where);
}

/// Every policy with what it does.
std::string PolicyHelp() {
  std::string text = "Scheduling policy:";
  for (const sched::PolicyEntry& policy : sched::Policies()) text += Cat(" ", policy.name, " (", policy.summary, ")");
  return text;
}

void AddSchedulingFlags(CLI::App& command, ServeFlags& flags) {
  runtime::RuntimeOptions& options = flags.model.runtime;
  command.add_option("--policy", options.policy, PolicyHelp())->check(KnownPolicy())->capture_default_str();
  command.add_option("--chunk", options.chunk_tokens_max, "Prompt tokens of one request in one step")
      ->transform(WholeNumber(1, 1 << 16))
      ->capture_default_str();
  command.add_option("--prefills-max", options.prefills_max, "Prompts read in one step, where the policy bounds it")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command
      .add_option("--ttft-target-ms", flags.first_token_ms,
                  "Wished time to the first token, for policies with deadlines; 0 = none")
      ->check(Number(0, 3'600'000))
      ->capture_default_str();
  command
      .add_option(
          "--tpot-target-ms", flags.next_token_ms,
          "Wished time between tokens while prompts are read, for policies with deadlines; 0 = 150, and more when "
          "prompts have waited long")
      ->check(Number(0, 3'600'000))
      ->capture_default_str();
  command
      .add_option("--length-model", flags.length_model, "File by kvist train-length: guesses how long answers will be")
      ->check(CLI::ExistingFile);
}

void AddEngineFlags(CLI::App& command, ServeFlags& flags) {
  runtime::RuntimeOptions& options = flags.model.runtime;
  command.add_option("MODEL", flags.model.model, "GGUF file or the name of a fetched model; else the default model");
  command.add_option("--served-model-name", flags.served_name, "Name in the API; else the file's");
  AddModelFlags(command, flags.model);
  command.add_option("-c,--context", options.context_tokens_max, "Longest prompt and output together; 0 = the model's")
      ->transform(WholeNumber(0, kCountMax));
  command.add_option("--parallel", options.requests_max, "Requests that run at once")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command.add_option("--queue", options.waiting_max, "Requests that wait; more get 429")
      ->transform(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--forget-below", flags.forget_below,
                  "In sessions, messages with less attention per token for three turns leave the view: 1 = the mean, "
                  "0 = none does")
      ->check(Number(0, 1))
      ->capture_default_str();
  command.add_option("--pin-share", options.pin_share, "Share of KV memory that requests may pin")
      ->check(Number(0, 1))
      ->capture_default_str();
  AddTierFlags(command, flags.tiers);
  command.add_flag("--no-cache", flags.no_reuse, "Do not keep keys and values of finished requests for later prompts");
}

void AddTenantFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--tenants", flags.server.tenants_file,
                     "TOML file of tenants: keys, limits, quotas, budgets. SIGHUP reads it again");
  command.add_option("--usage-db", flags.server.usage_db,
                     "SQLite file that keeps what every request used; GET /kvist/usage and `kvist cost` read it");
  command
      .add_option("--max-wait-seconds", flags.server.max_wait_s,
                  "Refuse requests (429) that would wait longer for their turn; 0 = wait as long as it takes")
      ->check(Number(0, 86400))
      ->capture_default_str();
  command
      .add_option("--max-connections-per-address", flags.server.limits.connections_per_address_max,
                  "Open connections from one address; 0 = no bound (proxies are one address)")
      ->transform(WholeNumber(0, 1 << 20))
      ->capture_default_str();
}

void AddHttpFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.server.host, "Address to listen on; beyond loopback an API key is required")
      ->capture_default_str();
  command.add_option("--port", flags.server.port, "Port; 0 = any free one")
      ->transform(WholeNumber(0, UINT16_MAX))
      ->capture_default_str();
  command
      .add_option("--api-key", flags.api_keys,
                  "Key that clients must send; may be repeated. Also KVIST_API_KEY, which other users cannot see")
      ->allow_extra_args(false);
  command.add_option(
      "--tls-cert", flags.server.tls_certificate,
      "File (PEM) with the server's certificate and those that it rests on: HTTPS. SIGHUP reads it again");
  command.add_option("--tls-key", flags.server.tls_key, "File (PEM) with the certificate's key, without a password");
  command.add_option("--cors-origin", flags.server.cors_origin, "Origin whose pages may call the API, or * for all");
  command.add_option("--max-body", flags.body_max, "Largest request body (default 32MiB)")
      ->check(ByteSize(1, kBodyBytesMax));
  command.add_option("--max-connections", flags.server.limits.connections_max, "Open connections")
      ->transform(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--drain-seconds", flags.drain_s, "Time for open requests after SIGINT or SIGTERM")
      ->check(Number(0, 86400))
      ->capture_default_str();
  command.add_option("--log-level", flags.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  command.add_option("--log-format", flags.log_format, "text, or json: one object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command.add_flag("--json", flags.json, "When ready, one JSON object on standard output");
}

}  // namespace

absl::Status Resolve(ServeFlags& flags) {
  if (!flags.body_max.empty()) {
    KVIST_ASSIGN_OR_RETURN(flags.server.limits.body_bytes_max, ParseByteSize(flags.body_max));
  }
  flags.server.api_keys = flags.api_keys;
  if (const char* key = std::getenv("KVIST_API_KEY"); key != nullptr) {
    if (*key == '\0') return absl::InvalidArgumentError("KVIST_API_KEY is empty: unset it, or let it hold the key");
    flags.server.api_keys.emplace_back(key);
  }
  flags.server.drain = std::chrono::milliseconds(static_cast<int64_t>(flags.drain_s * 1000));
  flags.server.unix_now_s = [] { return static_cast<int64_t>(std::time(nullptr)); };
  flags.server.handle_signals = true;
  constexpr uint32_t kUnwrittenRows = 4096;
  flags.server.usage_places = flags.model.runtime.waiting_max + flags.model.runtime.requests_max + kUnwrittenRows;
  runtime::RuntimeOptions& options = flags.model.runtime;
  options.reuse = !flags.no_reuse;
  options.first_token_ns = static_cast<int64_t>(flags.first_token_ms * 1e6);
  options.next_token_ns = static_cast<int64_t>(flags.next_token_ms * 1e6);
  options.cache_notice = LogCache;
  KVIST_RETURN_IF_ERROR(ResolveTiers(flags.tiers, options));
  flags.model.advise = [](std::string_view kind, std::string_view text) {
    spdlog::log(kind == "warning" ? spdlog::level::warn : spdlog::level::info, "{}", text);
  };
  if (flags.log_format == "json") options.progress = [](uint64_t, uint64_t) {};  // Drawn for people.
  options.tokens_per_step_max = std::max(options.tokens_per_step_max, options.chunk_tokens_max);
  if (!flags.device.device.empty()) {
    KVIST_ASSIGN_OR_RETURN(cost::StepModel device, StepModelOf(flags.device));
    KVIST_ASSIGN_OR_RETURN(const uint32_t blocks, KvBlocksOf(flags.device, device));
    const std::filesystem::path shape = flags.device.shape;
    options.emulation = {.model = std::move(device),
                         .model_id = shape.extension() == ".gguf" ? shape.stem().string() : "",
                         .blocks = blocks,
                         .output_tokens_mean = flags.output_tokens_mean,
                         .runs_model = flags.tokens_from_model,
                         .notices = {.late = LogLate, .outside_profile = LogOutside}};
  }
  return absl::OkStatus();
}

void AddServeFlags(CLI::App& command, ServeFlags& flags) {
  AddEngineFlags(command, flags);
  AddSchedulingFlags(command, flags);
  AddHttpFlags(command, flags);
  AddTenantFlags(command, flags);
  AddDeviceFlags(command, flags.device, "--model-shape");
  command
      .add_option("--emulated-output", flags.output_tokens_mean,
                  "With --device: answers end after so many tokens, on average; 0 = when they may not be longer")
      ->transform(WholeNumber(0, kCountMax))
      ->capture_default_str();
  command.add_flag(
      "--tokens-from-model", flags.tokens_from_model,
      "With --device: run MODEL, and answer in its words. Steps end when both it and the device have ended");
}

bool Reloads(std::string_view flag) {
  return std::ranges::find(kReloaded, flag) != std::end(kReloaded);
}

absl::StatusOr<ServeChange> ReadAgain(const ServeSources& sources) {
  CLI::App app;
  for (const std::string& name : sources.commands) app.add_subcommand(name);
  CLI::App& command = *app.get_subcommand("serve");
  ServeChange change;
  AddServeFlags(command, change.flags);
  KVIST_RETURN_IF_ERROR(Apply(command, sources.command_line));
  KVIST_ASSIGN_OR_RETURN(const std::vector<Setting> others, OtherSettings(command, sources.config));
  KVIST_RETURN_IF_ERROR(Apply(command, others));
  std::vector<Setting> given = sources.command_line;
  given.insert(given.end(), others.begin(), others.end());
  KVIST_RETURN_IF_ERROR(CheckFlagRules(command, given));
  KVIST_RETURN_IF_ERROR(Resolve(change.flags));
  const auto values_in = [](const std::vector<Setting>& settings, const std::string& flag) {
    const auto it = std::ranges::find(settings, flag, &Setting::flag);
    return it == settings.end() ? std::vector<std::string>() : it->values;
  };
  const std::vector<Setting> now = GivenOn(command);
  for (const std::string& flag : FlagsOf(command)) {
    const bool same = values_in(now, flag) == values_in(sources.in_force, flag);
    if (!same) (Reloads(flag) ? change.changed : change.restart).push_back(flag);
    const std::vector<Setting>& from = Reloads(flag) ? now : sources.in_force;
    if (const auto it = std::ranges::find(from, flag, &Setting::flag); it != from.end()) change.in_force.push_back(*it);
  }
  return change;
}

}  // namespace kvist::cli
