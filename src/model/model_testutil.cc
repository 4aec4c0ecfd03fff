#include "model/model_testutil.h"

#include <span>

#include "base/status.h"

namespace kvist::model {
namespace {

constexpr uint32_t kLayers = 2;
constexpr uint64_t kWidth = 64, kVocab = 40, kHeadWidth = 16, kQWidth = 64, kKvWidth = 32;

FakeModel Common(std::string architecture) {
  FakeModel model;
  model.architecture = std::move(architecture);
  model.numbers = {{"block_count", kLayers},     {"embedding_length", kWidth},        {"feed_forward_length", 96},
                   {"attention.head_count", 4},  {"attention.head_count_kv", 2},      {"context_length", 1024},
                   {"rope.dimension_count", 16}, {"attention.key_length", kHeadWidth}};
  model.tensors = {{"token_embd.weight", {kWidth, kVocab}}, {"output_norm.weight", {kWidth}}};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    model.tensors[Cat("blk.", layer, ".attn_norm.weight")] = {kWidth};
    model.tensors[Cat("blk.", layer, ".ffn_norm.weight")] = {kWidth};
    model.tensors[Cat("blk.", layer, ".attn_output.weight")] = {kQWidth, kWidth};
  }
  return model;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> FakeModel::Build() {
  GgufWriter writer;
  writer.SetString("general.architecture", architecture);
  for (const auto& [key, number] : numbers) writer.SetU32(Cat(architecture, ".", key), number);
  for (const auto& [key, number] : fractions) writer.SetF32(Cat(architecture, ".", key), number);
  for (const auto& [key, on] : switches) writer.SetBool(Cat(architecture, ".", key), on);
  std::vector<std::vector<float>> bytes;
  bytes.reserve(tensors.size());
  for (const auto& [name, dims] : tensors) {
    uint64_t elements = 1;
    for (uint64_t dim : dims) elements *= dim;
    bytes.push_back(values.contains(name) ? values.at(name) : std::vector<float>(elements));
    writer.AddTensor(name, DType::kF32, dims, std::as_bytes(std::span(bytes.back())));
  }
  KVIST_ASSIGN_OR_RETURN(images_, writer.WriteImages());
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<const GgufFile> file, GgufFile::Parse(images_.front(), "fake.gguf"));
  return BuildModel(std::move(file));
}

FakeModel FakePhi3() {
  FakeModel model = Common("phi3");
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    model.tensors[Cat("blk.", layer, ".attn_qkv.weight")] = {kWidth, kQWidth + 2 * kKvWidth};
    model.tensors[Cat("blk.", layer, ".ffn_up.weight")] = {kWidth, 2 * 96};
    model.tensors[Cat("blk.", layer, ".ffn_down.weight")] = {96, kWidth};
  }
  return model;
}

FakeModel FakeQwen3Moe() {
  FakeModel model = Common("qwen3moe");
  constexpr uint64_t kExperts = 8, kExpertWidth = 32;
  model.numbers["expert_count"] = kExperts;
  model.numbers["expert_used_count"] = 2;
  model.numbers["expert_feed_forward_length"] = kExpertWidth;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const auto name = [&](const char* part) { return Cat("blk.", layer, ".", part, ".weight"); };
    model.tensors[name("attn_q")] = {kWidth, kQWidth};
    model.tensors[name("attn_k")] = {kWidth, kKvWidth};
    model.tensors[name("attn_v")] = {kWidth, kKvWidth};
    model.tensors[name("attn_q_norm")] = {kHeadWidth};
    model.tensors[name("attn_k_norm")] = {kHeadWidth};
    model.tensors[name("ffn_gate_inp")] = {kWidth, kExperts};
    model.tensors[name("ffn_gate_exps")] = {kWidth, kExpertWidth, kExperts};
    model.tensors[name("ffn_up_exps")] = {kWidth, kExpertWidth, kExperts};
    model.tensors[name("ffn_down_exps")] = {kExpertWidth, kWidth, kExperts};
  }
  return model;
}

}  // namespace kvist::model
