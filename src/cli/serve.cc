/// @file
/// `kvist serve [MODEL]`: the OpenAI-compatible server and its chat page.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/serve_flags.h"
#include "cli/served_model.h"
#include "cli/tier_flags.h"
#include "exec/emulated/emulated_executor.h"
#include "modelfile/chat_prompt.h"
#include "platform/anonymous_memory.h"
#include "platform/open_files.h"
#include "runtime/runtime.h"
#include "sched/length_predictor.h"
#include "serve/json_output.h"
#include "serve/server.h"
#include "telemetry/log.h"

namespace kvist::cli {
namespace {

void LogModel(const runtime::Runtime& runtime, const std::string& id) {
  const std::string& file = runtime.model->file->label();
  const std::string executor(runtime.executor->Name());
  if (runtime.cpu == nullptr) return spdlog::info("model {}, {}, with the tokenizer of {}", id, executor, file);
  if (runtime.device != nullptr) {
    return spdlog::info("model {}, {}, with the tokens of {}, {} threads", id, executor, file, runtime.threads);
  }
  spdlog::info("model {} ({}), {} threads, {}", id, file, runtime.threads, executor);
}

/// @param source  what KV memory was taken from
void LogMemory(const runtime::Runtime& runtime, const std::string& source) {
  const step::ExecutorLimits& limits = runtime.executor->Limits();
  const uint64_t tokens = uint64_t{runtime.engine->Stats().kv.frames.total()} * limits.block_tokens;
  spdlog::info("KV memory: {} for {} tokens in {}, from {}", FormatByteSize(runtime.kv_bytes), FormatCount(tokens),
               runtime.kv_type_name, source);
  if (runtime.engine->context_tokens_max() < limits.context_tokens_max) {
    spdlog::warn("the context is cut to {} tokens by KV memory; {} more",
                 FormatCount(runtime.engine->context_tokens_max()),
                 runtime.device == nullptr ? "--kv-memory gives it" : "--memory-share or --tensor-parallel give it");
  }
}

std::string MemorySource(const ServeFlags& flags, uint64_t free_bytes) {
  const std::optional<runtime::Emulation>& emulation = flags.model.runtime.emulation;
  if (!emulation) return FormatByteSize(free_bytes) + " free";
  const cost::StepModelOptions& options = emulation->model.options();
  const auto device_bytes = static_cast<uint64_t>(options.device.capacity_bytes());
  return fmt::format("the {} of {}{}, beside weights of {}", FormatByteSize(device_bytes), options.device.name,
                     options.tensor_parallel * options.pipeline_parallel > 1 ? " each" : "",
                     FormatByteSize(static_cast<uint64_t>(emulation->model.weight_bytes())));
}

void LogLoading(const runtime::Runtime& runtime) {
  if (runtime.cpu == nullptr) return;
  const exec::LoadReport& report = runtime.cpu->weights().report();
  spdlog::info("loaded in {:.2f} s: {} of weights {}{}", runtime.times.total_s,
               FormatByteSize(runtime.cpu->weights().packed_bytes()), DescribeSource(report.source),
               report.cold ? ", from disk" : "");
  if (!report.cache_miss.empty()) spdlog::debug("{}: {}", report.cache_path, report.cache_miss);
}

/// Steps that the model behind an emulated device's tokens was late for.
void CountLateSteps(const exec::EmulatedExecutor& device, std::vector<telemetry::Sample>& out) {
  constexpr auto kCounter = telemetry::Sample::Kind::kCounter;
  const exec::LateSteps late = device.late();
  out.push_back({"kvist_emulation_late_steps_total",
                 "Steps that took the model that gives the tokens longer than the emulated device.",
                 kCounter,
                 static_cast<double>(late.steps),
                 {}});
  out.push_back({"kvist_emulation_late_seconds_total",
                 "By how much, in all.",
                 kCounter,
                 static_cast<double>(late.ns) * 1e-9,
                 {}});
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

/// Reads settings again and lets take effect what can.
void Reread(ServeSources& sources, serve::Server& server, engine::Engine& engine) {
  absl::StatusOr<ServeChange> change = ReadAgain(sources);
  if (!change.ok()) return spdlog::error("settings stay as they were: {}", std::string(change.status().message()));
  sources.in_force = std::move(change->in_force);
  const ServeFlags& flags = change->flags;
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  engine.SetTargets(flags.model.runtime.first_token_ns, flags.model.runtime.next_token_ns);
  server.Adopt(flags.server);
  for (const std::string& flag : change->changed) spdlog::info("--{} has changed", flag);
  for (const std::string& flag : change->restart) spdlog::warn("--{} has changed, and needs a restart", flag);
}

absl::Status Serve(ServeFlags& flags, ServeSources& sources) {
  KVIST_RETURN_IF_ERROR(Resolve(flags));
  KVIST_RETURN_IF_ERROR(serve::Server::CheckOptions(flags.server));
  constexpr uint64_t kOwnFiles = 50;
  if (const uint64_t files = RaiseOpenFilesLimit(); files < flags.server.limits.connections_max + kOwnFiles) {
    spdlog::warn("so many files may be open: {}; --max-connections {} needs {}", files,
                 flags.server.limits.connections_max, flags.server.limits.connections_max + kOwnFiles);
  }
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
  const std::string& folder = flags.model.runtime.tiers.folder;
  if (!folder.empty()) flags.server.tier_places = {{"drive", folder}};
  std::unique_ptr<serve::Server> server;
  std::mutex rereading;
  flags.server.reread = [&] {
    std::lock_guard lock(rereading);
    Reread(sources, *server, *runtime->engine);
  };
  if (runtime->device != nullptr && runtime->cpu != nullptr) {
    flags.server.more_metrics = [device = runtime->device](std::vector<telemetry::Sample>& out) {
      CountLateSteps(*device, out);
    };
  }
  KVIST_ASSIGN_OR_RETURN(server,
                         serve::Server::Create(flags.server, std::move(model), *runtime->engine, runtime->clock));
  LogModel(*runtime, id);
  LogLoading(*runtime);
  LogMemory(*runtime, MemorySource(flags, free_bytes));
  LogTiers(*runtime, flags.model.runtime.tiers);
  spdlog::info("listening on {} (chat page; API at {}/v1)", server->url(), server->url());
  if (flags.json) {
    const boost::json::object ready = {{"event", "ready"},
                                       {"url", server->url()},
                                       {"model", id},
                                       {"threads", runtime->threads},
                                       {"executor", runtime->executor->Name()},
                                       {"kv_bytes", runtime->kv_bytes},
                                       {"kv_type", runtime->kv_type_name},
                                       {"context_tokens_max", runtime->engine->context_tokens_max()}};
    std::printf("%s\n", serve::JsonText(ready).c_str());
    std::fflush(stdout);
  }
  server->Run();
  spdlog::info("stopped");
  return absl::OkStatus();
}

int RunServe(ServeFlags& flags, ServeSources& sources) {
  telemetry::SetUpLog(flags.log_format == "json" ? telemetry::LogFormat::kJson : telemetry::LogFormat::kText,
                      spdlog::level::from_str(flags.log_level));
  const absl::Status status = Serve(flags, sources);
  return status.ok() ? 0 : Report("serve", status);
}

}  // namespace

void AddServe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  auto sources = std::make_shared<ServeSources>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over an OpenAI-compatible API, with a chat page");
  AddServeFlags(*command, *flags);
  // Settings of other places are not applied yet when the command line has been read, and are when the command runs.
  command->parse_complete_callback([command, sources] { sources->command_line = GivenOn(*command); });
  command->callback([&app, command, flags, sources, &exit_code] {
    sources->in_force = GivenOn(*command);
    sources->config = command->get_option("--config")->as<std::string>();
    for (const CLI::App* one : app.get_subcommands({})) sources->commands.push_back(one->get_name());
    exit_code = RunServe(*flags, *sources);
  });
}

}  // namespace kvist::cli
