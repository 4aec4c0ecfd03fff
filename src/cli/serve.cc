/// @file
/// `kvist serve [MODEL]`: the OpenAI-compatible server and its chat page.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/model_flags.h"
#include "cli/ranges.h"
#include "cli/served_model.h"
#include "cli/tier_flags.h"
#include "modelfile/chat_prompt.h"
#include "platform/anonymous_memory.h"
#include "runtime/runtime.h"
#include "sched/length_predictor.h"
#include "sched/policy.h"
#include "serve/server.h"
#include "telemetry/log.h"

namespace kvist::cli {
namespace {

constexpr uint64_t kBodyBytesMax = uint64_t{1} << 30;  // What Tokenizer::Encode takes.

struct ServeFlags {
  ModelFlags model;
  TierFlags tiers;
  serve::ServerOptions server;
  std::string served_name, body_max, log_level = "info", log_format = "text";
  std::vector<std::string> api_keys;
  double drain_s = 30, forget_below = 0;
  double first_token_ms = 0, next_token_ms = 0;
  std::string length_model;
  DeviceFlags device;
  uint32_t output_tokens_mean = 200;
  bool json = false, no_reuse = false;
};

void LogMemory(const runtime::Runtime& runtime, uint64_t free_bytes) {
  const step::ExecutorLimits& limits = runtime.executor->Limits();
  const uint64_t tokens = uint64_t{runtime.engine->Stats().kv.frames.total()} * limits.block_tokens;
  spdlog::info("KV memory: {} for {} tokens in {}, from {} free", FormatByteSize(runtime.kv_bytes), FormatCount(tokens),
               KvTypeName(runtime.kv_type), FormatByteSize(free_bytes));
  if (runtime.engine->context_tokens_max() < limits.context_tokens_max) {
    spdlog::warn("the context is cut to {} tokens by KV memory; --kv-memory gives it more",
                 FormatCount(runtime.engine->context_tokens_max()));
  }
}

void LogCache(const std::string& path, const absl::Status& status) {
  if (status.ok()) {
    spdlog::info("packed weights are kept in {}", path);
  } else if (!absl::IsCancelled(status)) {
    spdlog::warn("packed weights are not kept: {}", std::string(status.message()));
  }
}

void LogLoading(const runtime::Runtime& runtime) {
  if (runtime.cpu == nullptr) return;
  const exec::LoadReport& report = runtime.cpu->weights().report();
  spdlog::info("loaded in {:.2f} s: {} of weights {}{}", runtime.times.total_s,
               FormatByteSize(runtime.cpu->weights().packed_bytes()), DescribeSource(report.source),
               report.cold ? ", from disk" : "");
  if (!report.cache_miss.empty()) spdlog::debug("{}: {}", report.cache_path, report.cache_miss);
}

absl::Status Resolve(ServeFlags& flags) {
  if (!flags.body_max.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseByteSize(flags.body_max);
    if (!bytes.ok()) return Annotate(bytes.status(), "--max-body");
    if (*bytes == 0 || *bytes > kBodyBytesMax) {
      return absl::InvalidArgumentError(
          Cat("--max-body: ", flags.body_max, " is not from 1 byte to ", FormatByteSize(kBodyBytesMax)));
    }
    flags.server.limits.body_bytes_max = *bytes;
  }
  flags.server.api_keys = flags.api_keys;
  if (const char* key = std::getenv("KVIST_API_KEY"); key != nullptr) flags.server.api_keys.emplace_back(key);
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
  if (flags.device.device.empty()) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(cost::StepModel device, StepModelOf(flags.device));
  KVIST_ASSIGN_OR_RETURN(const uint32_t blocks, KvBlocksOf(flags.device, device));
  options.emulation = {.model = std::move(device), .blocks = blocks, .output_tokens_mean = flags.output_tokens_mean};
  return absl::OkStatus();
}

/// Nothing when there is no model file.
absl::StatusOr<std::function<uint32_t(std::string_view)>> LengthPrediction(const std::string& path) {
  if (path.empty()) return nullptr;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<sched::LengthPredictor> predictor = sched::LengthPredictor::Parse(text);
  if (!predictor.ok()) return Annotate(predictor.status(), path);
  return [predictor = std::make_shared<const sched::LengthPredictor>(*std::move(predictor))](std::string_view prompt) {
    return predictor->Predict(prompt);
  };
}

absl::Status Serve(ServeFlags& flags) {
  KVIST_RETURN_IF_ERROR(Resolve(flags));
  KVIST_RETURN_IF_ERROR(serve::Server::CheckOptions(flags.server));
  const uint64_t free_bytes = AvailableMemoryBytes();
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, StartRuntime(flags.model));
  std::unique_ptr<const ChatEncoder> encoder;
  if (runtime->chat_template.has_value()) {
    encoder = std::make_unique<const ChatEncoder>(*runtime->tokenizer, *runtime->chat_template);
  } else {
    spdlog::warn("no chat: {}; /v1/completions works", std::string(runtime->chat_template_status.message()));
  }
  serve::ServedModel model = ServedModelOf(*runtime, encoder.get(), flags.served_name);
  model.forget_below = static_cast<float>(flags.forget_below);
  model.block_bytes = runtime->kv_bytes / std::max(1u, runtime->engine->Stats().kv.frames.total());
  KVIST_ASSIGN_OR_RETURN(model.predict_output, LengthPrediction(flags.length_model));
  const std::string id = model.id;
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<serve::Server> server,
                         serve::Server::Create(flags.server, std::move(model), *runtime->engine, runtime->clock));
  spdlog::info("model {} ({}), {} threads, {}", id, runtime->model->file->label(), runtime->threads,
               std::string(runtime->executor->Name()));
  LogLoading(*runtime);
  LogMemory(*runtime, free_bytes);
  LogTiers(*runtime, flags.model.runtime.tiers.folder);
  spdlog::info("listening on {} (chat page; API at {}/v1)", server->url(), server->url());
  if (flags.json) {
    const boost::json::object ready = {{"event", "ready"},
                                       {"url", server->url()},
                                       {"model", id},
                                       {"threads", runtime->threads},
                                       {"executor", runtime->executor->Name()},
                                       {"kv_bytes", runtime->kv_bytes},
                                       {"kv_type", KvTypeName(runtime->kv_type)},
                                       {"context_tokens_max", runtime->engine->context_tokens_max()}};
    std::printf("%s\n", boost::json::serialize(ready).c_str());
    std::fflush(stdout);
  }
  server->Run();
  spdlog::info("stopped");
  return absl::OkStatus();
}

int RunServe(ServeFlags& flags) {
  telemetry::SetUpLog(flags.log_format == "json" ? telemetry::LogFormat::kJson : telemetry::LogFormat::kText,
                      spdlog::level::from_str(flags.log_level));
  const absl::Status status = Serve(flags);
  return status.ok() ? 0 : Report("serve", status);
}

/// Every policy with what it does.
std::string PolicyHelp() {
  std::string text = "Scheduling policy:";
  for (const sched::PolicyEntry& policy : sched::Policies()) text += Cat(" ", policy.name, " (", policy.summary, ")");
  return text;
}

void AddSchedulingFlags(CLI::App& command, ServeFlags& flags) {
  runtime::RuntimeOptions& options = flags.model.runtime;
  std::vector<std::string> policies;
  for (const sched::PolicyEntry& policy : sched::Policies()) policies.emplace_back(policy.name);
  command.add_option("--policy", options.policy, PolicyHelp())->check(CLI::IsMember(policies))->capture_default_str();
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

void AddServerFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.server.host, "Address to listen on; beyond loopback an API key is required")
      ->capture_default_str();
  command.add_option("--port", flags.server.port, "Port; 0 = any free one")
      ->transform(WholeNumber(0, UINT16_MAX))
      ->capture_default_str();
  command
      .add_option("--api-key", flags.api_keys,
                  "Key that clients must send; may be repeated. Also KVIST_API_KEY, which other users cannot see")
      ->allow_extra_args(false);
  command.add_option("--cors-origin", flags.server.cors_origin, "Origin whose pages may call the API, or * for all");
  command.add_option("--max-body", flags.body_max, "Largest request body (default 32MiB)");
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

void AddServe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over an OpenAI-compatible API, with a chat page");
  AddEngineFlags(*command, *flags);
  AddSchedulingFlags(*command, *flags);
  AddServerFlags(*command, *flags);
  AddTenantFlags(*command, *flags);
  AddDeviceFlags(*command, flags->device, "--model-shape");
  command
      ->add_option("--emulated-output", flags->output_tokens_mean,
                   "With --device: answers end after so many tokens, on average; 0 = when they may not be longer")
      ->transform(WholeNumber(0, kCountMax))
      ->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = RunServe(*flags); });
}

}  // namespace kvist::cli
