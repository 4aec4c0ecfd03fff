#include "runtime/runtime.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "base/byte_size.h"
#include "base/prng.h"
#include "base/status.h"
#include "kernels/dispatch.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"
#include "runtime/emulated.h"

namespace kvist::runtime {
namespace {

/// Share of the memory free after loading that KV memory may take when nothing is said.
constexpr double kFreeMemoryShare = 0.6;
/// More than this many full contexts is never taken by itself.
constexpr uint64_t kContextsMax = 64;

/// What the weights of a file take beside the file's own size, and what else a process needs.
constexpr double kOverheadShare = 0.05;

/// What packed weights may take of the memory that is free.
uint64_t WeightMemoryMax(const RuntimeOptions& options, uint64_t free_bytes) {
  if (options.weight_memory_bytes != 0) return options.weight_memory_bytes;
  if (free_bytes == 0) return UINT64_MAX;  // Unknown.
  const auto overhead = static_cast<uint64_t>(static_cast<double>(free_bytes) * kOverheadShare);
  const uint64_t taken = overhead + options.kv_memory_bytes + options.tiers.cold_memory_bytes;
  return free_bytes > taken ? free_bytes - taken : 0;
}

/// What weights and cold memory leave for hot memory; 0 = unknown.
absl::StatusOr<uint64_t> RoomForKv(const RuntimeOptions& options, const GgufFile& file, uint64_t free_bytes) {
  const auto weight_bytes = static_cast<uint64_t>(static_cast<double>(file.file_bytes()) * (1 + kOverheadShare));
  // Weights that do not fit are mapped, and leave what KV memory takes.
  const uint64_t room = free_bytes > weight_bytes ? free_bytes - weight_bytes : free_bytes / 4;
  const uint64_t cold_bytes = options.tiers.cold_memory_bytes;
  if (room == 0 || cold_bytes < room) return room - std::min(room, cold_bytes);
  return absl::InvalidArgumentError(Cat("cold memory of ", FormatByteSize(cold_bytes),
                                        " does not fit: ", FormatByteSize(room), " are free beside the weights"));
}

absl::Status CheckTiers(const RuntimeOptions& options) {
  if (options.emulation && options.tiers.any()) {
    return absl::InvalidArgumentError("--kv-disk, --kv-cold-memory: an emulated device has none");
  }
  if (options.tiers.any() && !options.reuse) {
    return absl::InvalidArgumentError("--kv-disk and --kv-cold-memory keep what --no-cache does not want kept");
  }
  return absl::OkStatus();
}

/// Of the model's files, where it has to be known beyond this process.
absl::StatusOr<std::optional<uint64_t>> ContentOf(const RuntimeOptions& options, const GgufFile& file) {
  if (options.tiers.folder.empty()) return std::nullopt;
  return ModelDigest(file, options.tiers.folder);
}

/// @param room_bytes  what the weights leave free
absl::StatusOr<uint32_t> FramesFor(const RuntimeOptions& options, const model::ModelSpec& spec, uint64_t room_bytes,
                                   uint32_t context_tokens) {
  const uint64_t frame_bytes = exec::LayoutOf(spec, options.kv_type).frame_bytes();
  const uint64_t context_frames = kv::BlocksFor(context_tokens);
  uint64_t bytes = options.kv_memory_bytes;
  if (bytes == 0) {
    bytes = std::min(static_cast<uint64_t>(static_cast<double>(room_bytes) * kFreeMemoryShare),
                     context_frames * kContextsMax * frame_bytes);
  }
  if (bytes > room_bytes && room_bytes > 0) {
    return absl::InvalidArgumentError(Cat("KV memory of ", FormatByteSize(bytes), " does not fit: ",
                                          FormatByteSize(room_bytes), " are free beside the weights"));
  }
  const uint64_t frames = bytes / frame_bytes;
  if (frames < 2) {
    return absl::InvalidArgumentError(Cat("KV memory of ", FormatByteSize(bytes), " holds ", frames, " blocks of ",
                                          FormatByteSize(frame_bytes), " (", kv::kBlockTokens,
                                          " tokens); at least 2 are needed"));
  }
  return static_cast<uint32_t>(std::min<uint64_t>(frames, 1u << 24));
}

/// @param content  of the model's files; nullopt = they are known by name and size, which is enough inside a process
uint64_t FingerprintOf(const Runtime& runtime, const RuntimeOptions& options, kernels::Isa isa, uint32_t context_tokens,
                       std::optional<uint64_t> content) {
  const std::string_view bits = kernels::IsaName(kernels::BitsOf(isa));
  uint64_t hash = Mix64(content.value_or(runtime.model->file->file_bytes()));
  // What went through a lossy tier is another content than what did not, and so is all that is computed after it.
  const std::string lossy = options.tiers.LosesBits() ? Cat("/cold ", options.tiers.cold_codec) : "";
  for (const char c :
       Cat(content ? "" : runtime.model_id, "/", bits, "/", KvTypeName(options.kv_type), "/", KVIST_VERSION, lossy)) {
    hash = Mix64(hash ^ static_cast<unsigned char>(c));
  }
  for (const model::RopeSpec& rope : runtime.model->graph.ropes) {
    for (const double frequency : rope.FrequenciesFor(context_tokens)) {
      hash = Mix64(hash ^ std::bit_cast<uint64_t>(frequency));
    }
  }
  return hash;
}

absl::Status OpenText(Runtime& runtime) {
  const GgufFile& file = *runtime.model->file;
  const TimeNs start = runtime.clock.Now();
  KVIST_ASSIGN_OR_RETURN(runtime.tokenizer, Tokenizer::FromGguf(file));
  if (runtime.tokenizer->vocab_size() != runtime.model->spec.vocab_size) {
    // Padded embeddings are common; the other way round a prompt could name a row that does not exist.
    if (runtime.tokenizer->vocab_size() > runtime.model->spec.vocab_size) {
      return absl::InvalidArgumentError(Cat(file.label(), ": the tokenizer has ", runtime.tokenizer->vocab_size(),
                                            " tokens, the embedding only ", runtime.model->spec.vocab_size));
    }
  }
  absl::StatusOr<std::string_view> source = file.GetString("tokenizer.chat_template");
  if (!source.ok()) {
    runtime.chat_template_status = absl::NotFoundError(Cat(file.label(), " has no chat template"));
  } else if (absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(*source); parsed.ok()) {
    runtime.chat_template = *std::move(parsed);
  } else {
    runtime.chat_template_status = Annotate(parsed.status(), "tokenizer.chat_template");
  }
  runtime.times.text_s = Seconds(runtime.clock.Now() - start);
  return absl::OkStatus();
}

void MakeEngine(const RuntimeOptions& options, Runtime& runtime) {
  runtime.engine = std::make_unique<engine::Engine>(*runtime.executor, *runtime.memory, *runtime.policy,
                                                    *runtime.tokenizer, runtime.clock,
                                                    engine::EngineOptions{.waiting_max = options.waiting_max,
                                                                          .first_token_ns = options.first_token_ns,
                                                                          .next_token_ns = options.next_token_ns});
}

}  // namespace

std::string DefaultPackedCache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return Cat(cache, "/kvist/packed");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return Cat(home, "/.cache/kvist/packed");
  return "";
}

absl::StatusOr<std::unique_ptr<Runtime>> Start(const RuntimeOptions& options) {
  auto runtime = std::make_unique<Runtime>();
  const TimeNs start = runtime->clock.Now();
  KVIST_ASSIGN_OR_RETURN(runtime->model, model::LoadModel(options.model_path));
  runtime->times.open_s = Seconds(runtime->clock.Now() - start);
  const model::ModelSpec& spec = runtime->model->spec;
  runtime->model_id = std::filesystem::path(options.model_path).stem().string();
  runtime->threads = options.threads != 0 ? options.threads : UsableCores();
  kernels::Isa isa = kernels::BestIsa();
  if (!options.isa.empty()) {
    KVIST_ASSIGN_OR_RETURN(isa, kernels::ParseIsa(options.isa));
  }
  const sched::PolicyEntry* policy = sched::FindPolicy(options.policy);
  if (policy == nullptr)
    return absl::InvalidArgumentError(Cat("no scheduling policy is called \"", options.policy, "\""));
  runtime->policy = policy->make({.chunk_tokens_max = options.chunk_tokens_max, .prefills_max = options.prefills_max});

  const std::optional<Emulation>& emulation = options.emulation;
  KVIST_RETURN_IF_ERROR(CheckTiers(options));
  if (emulation && !emulation->runs_model) {
    KVIST_RETURN_IF_ERROR(OpenText(*runtime));
    UseEmulation(*emulation, options, *runtime);
    MakeEngine(options, *runtime);
    runtime->times.total_s = Seconds(runtime->clock.Now() - start);
    return runtime;
  }
  const uint32_t context_usual = emulation ? ContextOf(*emulation, spec) : spec.context_length;
  const uint32_t context = options.context_tokens_max != 0 ? options.context_tokens_max : context_usual;
  const uint64_t free_bytes = AvailableMemoryBytes();
  KVIST_ASSIGN_OR_RETURN(const uint64_t room, RoomForKv(options, *runtime->model->file, free_bytes));
  const uint64_t frame_bytes = exec::LayoutOf(spec, options.kv_type).frame_bytes();
  KVIST_ASSIGN_OR_RETURN(const uint32_t frames, emulation ? FramesForModel(*emulation, frame_bytes, room)
                                                          : FramesFor(options, spec, room, context));
  runtime->kv_bytes = frames * frame_bytes;
  runtime->kv_type = options.kv_type;
  runtime->kv_type_name = KvTypeName(options.kv_type);
  const bool has_tiers = options.tiers.any();
  KVIST_ASSIGN_OR_RETURN(const std::optional<uint64_t> content, ContentOf(options, *runtime->model->file));
  runtime->fingerprint = FingerprintOf(*runtime, options, isa, context, content);
  runtime->memory = std::make_unique<kv::KvMemory>(kv::KvMemoryOptions{.frames_count = frames,
                                                                       .layout = exec::LayoutOf(spec, options.kv_type),
                                                                       .fingerprint = runtime->fingerprint,
                                                                       .reuse = options.reuse,
                                                                       .pin_share = options.pin_share,
                                                                       .uses_remembered = has_tiers ? 4 * frames : 0});
  exec::CpuExecutorOptions executor_options{.threads = runtime->threads,
                                            .isa = isa,
                                            .tokens_per_step_max = options.tokens_per_step_max,
                                            .slices_per_step_max = options.requests_max,
                                            .context_tokens_max = context,
                                            .frames_count = frames,
                                            .kv_type = options.kv_type,
                                            .share_segments = options.share_segments,
                                            .load = {.cache = {.folder = options.packed_cache},
                                                     .memory_bytes_max = WeightMemoryMax(options, free_bytes),
                                                     .progress = options.progress,
                                                     .notice = options.cache_notice}};
  std::future<absl::Status> text = std::async(std::launch::async, [&] { return OpenText(*runtime); });
  absl::StatusOr<std::unique_ptr<exec::CpuExecutor>> executor =
      exec::CpuExecutor::Create(runtime->model, executor_options, runtime->memory->spans(), runtime->clock);
  KVIST_RETURN_IF_ERROR(text.get());
  if (!executor.ok()) return executor.status();
  runtime->cpu = executor->get();
  runtime->times.weights_s = runtime->cpu->load_s();
  runtime->executor = *std::move(executor);
  if (emulation) UseDeviceAround(*emulation, *runtime);
  MakeEngine(options, *runtime);
  if (has_tiers) {
    KVIST_ASSIGN_OR_RETURN(runtime->tiers, OpenTiers(options.tiers, runtime->fingerprint,
                                                     exec::LayoutOf(spec, options.kv_type), runtime->cpu->arena()));
    runtime->populating = std::jthread([&arena = runtime->cpu->arena()](const std::stop_token& stop) {
      LowerPriority();
      arena.Populate([&] { return !stop.stop_requested(); });
    });
    runtime->engine->SetColdBlocks(runtime->tiers.cold.get(), runtime->tiers.admission.get(),
                                   {.frame_bytes = runtime->cpu->arena().frame_bytes()});
  }
  runtime->times.total_s = Seconds(runtime->clock.Now() - start);
  return runtime;
}

}  // namespace kvist::runtime
