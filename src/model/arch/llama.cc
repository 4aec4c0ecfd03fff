#include "model/arch/arch.h"
#include "model/arch/decoder_block.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildLlama(const GgufFile& file, const ModelSpec& spec) {
  return BuildDecoder(file, spec, {});
}

}  // namespace kvist::model
