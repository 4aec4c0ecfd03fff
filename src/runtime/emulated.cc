#include "runtime/emulated.h"

#include <algorithm>

#include "base/byte_size.h"
#include "base/prng.h"
#include "base/status.h"

namespace kvist::runtime {
namespace {

/// What emulated answers are made of: short common words, which any tokenizer has.
constexpr std::string_view kWords =
    " the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these";

/// What the server says of itself is the device's.
void TellOfDevice(const Emulation& emulation, Runtime& runtime) {
  const cost::StepModelOptions& options = emulation.model.options();
  runtime.model_id = emulation.model_id.empty() ? std::string(options.shape.name) : emulation.model_id;
  runtime.kv_type_name = device::kNumberNames[static_cast<size_t>(options.keys)];
  runtime.kv_bytes = static_cast<uint64_t>(emulation.blocks * kv::kBlockTokens * emulation.model.kv_bytes_per_token());
}

}  // namespace

void UseEmulation(const Emulation& emulation, const RuntimeOptions& options, Runtime& runtime) {
  const cost::ModelShape& shape = emulation.model.options().shape;
  const uint32_t vocab = runtime.tokenizer->vocab_size();
  TellOfDevice(emulation, runtime);
  runtime.fingerprint = Mix64(emulation.blocks ^ Mix64(shape.layers ^ Mix64(shape.width)));
  runtime.memory = std::make_unique<kv::KvMemory>(kv::KvMemoryOptions{.frames_count = emulation.blocks,
                                                                      .fingerprint = runtime.fingerprint,
                                                                      .reuse = options.reuse,
                                                                      .pin_share = options.pin_share});
  exec::SyntheticTokens tokens{.alphabet = runtime.tokenizer->Encode(kWords, {.add_special = false})};
  if (const std::optional<TokenId> end = runtime.tokenizer->eos(); end && emulation.output_tokens_mean > 0) {
    tokens.end = *end;
    tokens.end_chance = 1.0 / emulation.output_tokens_mean;
  }
  auto device = std::make_unique<exec::EmulatedExecutor>(
      emulation.model,
      exec::EmulatedOptions{
          .limits = {.tokens_per_step_max = options.tokens_per_step_max,
                     .slices_per_step_max = options.requests_max,
                     .block_tokens = kv::kBlockTokens,
                     .vocab_size = vocab,
                     .hidden_size = shape.width,
                     .context_tokens_max =
                         options.context_tokens_max != 0 ? options.context_tokens_max : shape.context_length},
          .tokens = std::move(tokens),
          .real_time = true,
          .notices = emulation.notices},
      runtime.clock);
  runtime.device = device.get();
  runtime.executor = std::move(device);
}

uint32_t ContextOf(const Emulation& emulation, const model::ModelSpec& spec) {
  return std::min(emulation.model.options().shape.context_length, spec.context_length);
}

absl::StatusOr<uint32_t> FramesForModel(const Emulation& emulation, uint64_t frame_bytes, uint64_t room_bytes) {
  const uint64_t bytes = emulation.blocks * frame_bytes;
  if (room_bytes == 0 || bytes <= room_bytes) return emulation.blocks;
  return absl::InvalidArgumentError(
      Cat("the device has room for ", emulation.blocks, " blocks of KV memory; what this model keeps in so many takes ",
          FormatByteSize(bytes), ", and ", FormatByteSize(room_bytes),
          " are free beside its weights. A lower --memory-share, --kv-type q8 or a smaller model needs less"));
}

void UseDeviceAround(const Emulation& emulation, Runtime& runtime) {
  TellOfDevice(emulation, runtime);
  auto device = std::make_unique<exec::EmulatedExecutor>(
      emulation.model, exec::EmulatedOptions{.real_time = true, .notices = emulation.notices}, runtime.clock,
      std::move(runtime.executor));
  runtime.device = device.get();
  runtime.executor = std::move(device);
}

}  // namespace kvist::runtime
