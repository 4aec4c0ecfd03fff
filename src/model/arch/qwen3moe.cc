#include "base/status.h"
#include "model/arch/arch.h"
#include "model/arch/decoder_block.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildQwen3Moe(const GgufFile& file, const ModelSpec& spec) {
  KVIST_ASSIGN_OR_RETURN(ExpertSpec experts, ReadExperts(file, spec));
  return BuildDecoder(file, spec, {.half_split_rope = true, .qk_norm = true, .experts = experts});
}

}  // namespace kvist::model
