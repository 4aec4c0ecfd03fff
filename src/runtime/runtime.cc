#include "runtime/runtime.h"

#include <algorithm>
#include <filesystem>

#include "base/byte_size.h"
#include "base/status.h"
#include "kernels/dispatch.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"

namespace kvist::runtime {
namespace {

/// Share of the memory free after loading that KV memory may take when nothing is said.
constexpr double kFreeMemoryShare = 0.6;
/// More than this many full contexts is never taken by itself.
constexpr uint64_t kContextsMax = 64;

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

absl::Status OpenText(const GgufFile& file, Runtime& runtime) {
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
    return absl::OkStatus();
  }
  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(*source);
  if (parsed.ok()) {
    runtime.chat_template = *std::move(parsed);
  } else {
    runtime.chat_template_status = Annotate(parsed.status(), "tokenizer.chat_template");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Start(const RuntimeOptions& options) {
  auto runtime = std::make_unique<Runtime>();
  KVIST_ASSIGN_OR_RETURN(runtime->model, model::LoadModel(options.model_path));
  const model::ModelSpec& spec = runtime->model->spec;
  KVIST_RETURN_IF_ERROR(OpenText(*runtime->model->file, *runtime));
  runtime->model_id = std::filesystem::path(options.model_path).stem().string();
  runtime->threads = options.threads != 0 ? options.threads : UsableCores();
  kernels::Isa isa = kernels::BestIsa();
  if (!options.isa.empty()) {
    KVIST_ASSIGN_OR_RETURN(isa, kernels::ParseIsa(options.isa));
  }
  const sched::PolicyEntry* policy = sched::FindPolicy(options.policy);
  if (policy == nullptr)
    return absl::InvalidArgumentError(Cat("no scheduling policy is called \"", options.policy, "\""));
  runtime->policy = policy->make({.chunk_tokens_max = options.chunk_tokens_max});

  const uint32_t context = options.context_tokens_max != 0 ? options.context_tokens_max : spec.context_length;
  const uint64_t free_bytes = AvailableMemoryBytes();
  const uint64_t file_bytes = runtime->model->file->file_bytes();
  const uint64_t room = free_bytes > 2 * file_bytes ? free_bytes - 2 * file_bytes : free_bytes / 4;
  KVIST_ASSIGN_OR_RETURN(uint32_t frames, FramesFor(options, spec, room, context));
  runtime->kv_bytes = frames * exec::LayoutOf(spec, options.kv_type).frame_bytes();
  runtime->kv_type = options.kv_type;
  runtime->memory = std::make_unique<kv::KvMemory>(kv::KvMemoryOptions{.frames_count = frames, .reuse = options.reuse});
  exec::CpuExecutorOptions executor_options{.threads = runtime->threads,
                                            .isa = isa,
                                            .tokens_per_step_max = options.tokens_per_step_max,
                                            .slices_per_step_max = options.requests_max,
                                            .context_tokens_max = context,
                                            .frames_count = frames,
                                            .kv_type = options.kv_type,
                                            .share_segments = options.share_segments,
                                            .progress = options.progress};
  KVIST_ASSIGN_OR_RETURN(runtime->executor, exec::CpuExecutor::Create(runtime->model, executor_options,
                                                                      runtime->memory->spans(), runtime->clock));
  runtime->engine =
      std::make_unique<engine::Engine>(*runtime->executor, *runtime->memory, *runtime->policy, *runtime->tokenizer,
                                       runtime->clock, engine::EngineOptions{.waiting_max = options.waiting_max});
  return runtime;
}

}  // namespace kvist::runtime
