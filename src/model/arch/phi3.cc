#include "model/arch/arch.h"
#include "model/arch/decoder_block.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildPhi3(const GgufFile& file, const ModelSpec& spec) {
  return BuildDecoder(file, spec, {.half_split_rope = true, .fused = true, .windowed = true});
}

}  // namespace kvist::model
