#include "engine/generation.h"

#include "base/check.h"

namespace kvist::engine {

Capsule RolledBack(Capsule capsule, uint32_t output_tokens) {
  KVIST_CHECK(output_tokens <= capsule.prompt_output_tokens);
  if (output_tokens == capsule.prompt_output_tokens) return capsule;
  capsule.prompt.resize(capsule.prompt.size() - (capsule.prompt_output_tokens - output_tokens));
  capsule.prompt_output_tokens = output_tokens;
  capsule.prompt_output_bytes = UINT64_MAX;
  std::erase_if(capsule.ops, [&](const kv::CacheOp& op) { return op.at > capsule.prompt.size(); });
  return capsule;
}

}  // namespace kvist::engine
