#include "model/arch/arch.h"
#include "model/arch/decoder_block.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildQwen3(const GgufFile& file, const ModelSpec& spec) {
  return BuildDecoder(file, spec, {.half_split_rope = true, .qk_norm = true});
}

}  // namespace kvist::model
