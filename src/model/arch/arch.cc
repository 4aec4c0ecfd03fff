#include "model/arch/arch.h"

#include <array>

namespace kvist::model {
namespace {

constexpr std::array kArchitectures{
    Architecture{"llama", BuildLlama},       Architecture{"qwen2", BuildQwen2},   Architecture{"qwen3", BuildQwen3},
    Architecture{"qwen3moe", BuildQwen3Moe}, Architecture{"gemma3", BuildGemma3}, Architecture{"phi3", BuildPhi3},
};

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

}  // namespace kvist::model
