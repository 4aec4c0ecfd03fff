#include "model/arch/arch.h"
#include "model/arch/decoder_block.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildQwen2(const GgufFile& file, const ModelSpec& spec) {
  return BuildDecoder(file, spec, {.half_split_rope = true});
}

}  // namespace kvist::model
