#include "model/graph.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_join.h"
#include "base/status.h"

namespace kvist::model {
namespace {

/// Writers leave out last dimensions of 1.
bool SameShape(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  const auto strip = [](std::span<const uint64_t> dims) {
    while (dims.size() > 1 && dims.back() == 1) dims = dims.first(dims.size() - 1);
    return dims;
  };
  return std::ranges::equal(strip(a), strip(b));
}

}  // namespace

uint32_t Weight::cols() const {
  return role == WeightRole::kVector ? 1 : static_cast<uint32_t>(tensor->dims[0]);
}

uint64_t Weight::row_bytes() const {
  return RowBytes(tensor->dtype, cols());
}

void GraphBuilder::BeginLayer(uint32_t layer) {
  layer_ = layer;
  scratch_used_ = 0;
}

uint16_t GraphBuilder::AddRope(RopeSpec rope) {
  graph_.ropes.push_back(std::move(rope));
  return static_cast<uint16_t>(graph_.ropes.size() - 1);
}

std::string GraphBuilder::FullName(std::string_view name) const {
  return name.starts_with('.') ? Cat("blk.", layer_, name) : std::string(name);
}

bool GraphBuilder::Has(std::string_view weight) const {
  return file_.FindTensor(FullName(weight)) != nullptr;
}

WeightId GraphBuilder::AddWeight(std::string_view name, WeightRole role, const std::vector<uint64_t>& dims,
                                 uint32_t first_row, uint32_t rows) {
  std::string full = FullName(name);
  const GgufTensor* tensor = file_.FindTensor(full);
  if (tensor == nullptr) {
    status_.Update(absl::InvalidArgumentError(Cat(file_.label(), ": tensor ", full, " is missing")));
  } else if (!SameShape(tensor->dims, dims)) {
    status_.Update(absl::InvalidArgumentError(Cat(file_.label(), ": tensor ", full, " has shape [",
                                                  absl::StrJoin(tensor->dims, ", "), "], expected [",
                                                  absl::StrJoin(dims, ", "), "]")));
  }
  const uint64_t all_rows = role == WeightRole::kVector ? dims[0] : dims[1];
  graph_.weights.push_back({.tensor = tensor,
                            .role = role,
                            .first_row = first_row,
                            .rows = rows == 0 ? static_cast<uint32_t>(all_rows) : rows,
                            .experts = role == WeightRole::kExperts ? static_cast<uint32_t>(dims[2]) : 1});
  return WeightId{static_cast<uint32_t>(graph_.weights.size() - 1)};
}

BufferId GraphBuilder::NewBuffer(uint32_t width, bool output_rows) {
  graph_.buffers.push_back({width, output_rows});
  widths_.push_back(width);
  return BufferId{static_cast<uint16_t>(graph_.buffers.size() - 1)};
}

BufferId GraphBuilder::Scratch(uint32_t width, bool output_rows) {
  if (!output_rows && scratch_used_ < scratch_.size()) {
    BufferId reused = scratch_[scratch_used_++];
    uint32_t& stride = graph_.buffers[reused.value].stride;
    stride = std::max(stride, width);
    widths_[reused.value] = width;
    return reused;
  }
  BufferId id = NewBuffer(width, output_rows);
  if (!output_rows) {
    scratch_.push_back(id);
    ++scratch_used_;
  }
  return id;
}

BufferId GraphBuilder::Embed(std::string_view weight, float scale) {
  BufferId out = NewBuffer(spec_.width, false);  // Lives through all layers, so it is no scratch buffer.
  WeightId id = AddWeight(weight, WeightRole::kEmbedding, {spec_.width, spec_.vocab_size});
  graph_.ops.push_back(model::Embed{id, out, spec_.width, scale});
  return out;
}

BufferId GraphBuilder::Norm(BufferId x, std::string_view weight) {
  WeightId id = AddWeight(weight, WeightRole::kVector, {spec_.width});
  BufferId out = Scratch(spec_.width, graph_.buffers[x.value].output_rows);
  graph_.ops.push_back(RmsNorm{x, out, id, 1, spec_.width});
  return out;
}

void GraphBuilder::HeadNorm(BufferId x, std::string_view weight, uint32_t heads) {
  WeightId id = AddWeight(weight, WeightRole::kVector, {spec_.key_width});
  graph_.ops.push_back(RmsNorm{x, x, id, heads, spec_.key_width});
}

BufferId GraphBuilder::LinearRows(BufferId x, std::string_view name, uint32_t first_row, uint32_t out_width,
                                  uint32_t tensor_rows) {
  std::string weight = Cat(name, ".weight"), bias = Cat(name, ".bias");
  model::Linear op{.x = x, .out = {}, .weight = {}, .bias = {}};
  op.weight = AddWeight(weight, WeightRole::kMatrix, {widths_[x.value], tensor_rows}, first_row, out_width);
  if (Has(bias)) op.bias.push_back(AddWeight(bias, WeightRole::kVector, {tensor_rows}, first_row, out_width));
  op.out = Scratch(out_width, graph_.buffers[x.value].output_rows);
  graph_.ops.push_back(op);
  return op.out;
}

void GraphBuilder::Rope(BufferId x, uint32_t heads, uint16_t rope) {
  graph_.ops.push_back(model::Rope{x, heads, rope});
}

BufferId GraphBuilder::Attention(BufferId q, BufferId k, BufferId v, float scale, uint32_t window) {
  BufferId out = Scratch(spec_.heads * spec_.value_width);
  graph_.ops.push_back(model::Attention{q, k, v, out, layer_, window, scale});
  return out;
}

BufferId GraphBuilder::Gated(BufferId gate, BufferId up, Activation activation) {
  const uint32_t width = widths_[gate.value];
  BufferId out = Scratch(width);
  graph_.ops.push_back(model::Gated{gate, up, out, width, activation});
  return out;
}

BufferId GraphBuilder::Experts(BufferId x, const ExpertSpec& experts, Activation activation) {
  // What would change the result and is not computed.
  for (const char* more : {".ffn_gate_shexp.weight", ".ffn_up_shexp.weight", ".ffn_down_shexp.weight",
                           ".exp_probs_b.bias", ".ffn_gate_exps.bias", ".ffn_up_exps.bias", ".ffn_down_exps.bias"}) {
    if (Has(more)) {
      status_.Update(absl::UnimplementedError(Cat(file_.label(), ": tensor ", FullName(more), " is not supported")));
    }
  }
  ExpertMlp op{
      .x = x, .scores = {}, .out = {}, .gate = {}, .up = {}, .down = {}, .experts = experts, .activation = activation};
  const uint64_t width = widths_[x.value];
  op.scores = Linear(x, ".ffn_gate_inp", experts.count);
  op.gate = AddWeight(".ffn_gate_exps.weight", WeightRole::kExperts, {width, experts.width, experts.count});
  op.up = AddWeight(".ffn_up_exps.weight", WeightRole::kExperts, {width, experts.width, experts.count});
  op.down = AddWeight(".ffn_down_exps.weight", WeightRole::kExperts, {experts.width, width, experts.count});
  op.out = Scratch(static_cast<uint32_t>(width));
  graph_.ops.push_back(op);
  return op.out;
}

void GraphBuilder::AddTo(BufferId x, BufferId y) {
  graph_.ops.push_back(Add{x, y, x, spec_.width});
}

void GraphBuilder::Output(BufferId x, std::string_view norm_weight, float softcap) {
  BufferId rows = Scratch(spec_.width, /*output_rows=*/true);
  graph_.ops.push_back(Gather{x, rows, spec_.width});
  BufferId normed = Norm(rows, norm_weight);
  std::string_view head = Has("output.weight") ? "output" : "token_embd";
  graph_.hidden = normed;
  graph_.logits = Linear(normed, head, spec_.vocab_size);
  if (softcap > 0) graph_.ops.push_back(Softcap{graph_.logits, spec_.vocab_size, softcap});
}

absl::StatusOr<Graph> GraphBuilder::Finish() && {
  if (!status_.ok()) return status_;
  return std::move(graph_);
}

}  // namespace kvist::model
