#pragma once

/// @file
/// Small model files in memory, whole or with lies in them, for tests of what a model is built from.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "modelfile/gguf_writer.h"

namespace kvist::model {

/// Keys and tensors of a model, to be changed before it is built. Tensors are F32 zeros.
struct FakeModel {
  std::string architecture;
  std::map<std::string, uint32_t> numbers;  ///< Without the architecture's prefix.
  std::map<std::string, float> fractions{{"attention.layer_norm_rms_epsilon", 1e-5f}};
  std::map<std::string, bool> switches;
  std::map<std::string, std::vector<uint64_t>> tensors;
  std::map<std::string, std::vector<float>> values;  ///< Of tensors that are not zero.

  absl::StatusOr<std::shared_ptr<const Model>> Build();

 private:
  std::vector<std::vector<std::byte>> images_;  ///< The built model's.
};

/// Width 64, 4 heads on 2 of 16, 96 feed-forward features, 2 layers, 40 tokens.
FakeModel FakePhi3();
/// The same with 8 experts of 32 features, 2 used.
FakeModel FakeQwen3Moe();

}  // namespace kvist::model
