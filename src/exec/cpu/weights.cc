#include "exec/cpu/weights.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

/// Groups that one worker packs between two looks at the counter.
constexpr uint32_t kGroupsPerTask = 64;

bool IsPacked(model::WeightRole role) {
  return role == model::WeightRole::kMatrix || role == model::WeightRole::kExperts;
}

/// All experts of a weight, or its one matrix.
void PackMatrices(const model::Weight& weight, ThreadPool& pool, std::byte* packed) {
  const DType dtype = weight.tensor->dtype;
  const uint32_t rows = weight.rows, cols = weight.cols(), groups = kernels::RowGroups(rows);
  const size_t source_bytes = rows * weight.row_bytes(), packed_bytes = kernels::PackedBytes(dtype, rows, cols);
  const uint32_t tasks = (groups + kGroupsPerTask - 1) / kGroupsPerTask;  // Of one expert.
  pool.ForEach(weight.experts * tasks, [&](uint32_t task) {
    const uint32_t expert = task / tasks, begin = task % tasks * kGroupsPerTask;
    kernels::PackRowGroups(dtype, weight.data() + expert * source_bytes, rows, cols, begin,
                           std::min(groups, begin + kGroupsPerTask), packed + expert * packed_bytes);
  });
}

}  // namespace

absl::StatusOr<Weights> Weights::Pack(std::shared_ptr<const model::Model> model, ThreadPool& pool,
                                      const LoadProgress& progress) {
  Weights weights;
  weights.model_ = std::move(model);
  const std::vector<model::Weight>& table = weights.model_->graph.weights;
  weights.entries_.resize(table.size());
  std::vector<size_t> offsets(table.size());
  size_t total = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const GgufTensor& tensor = *table[i].tensor;
    Entry& entry = weights.entries_[i];
    if (table[i].role == model::WeightRole::kVector) {
      entry.vector.resize(table[i].rows);
      if (InfoOf(tensor.dtype).block_elements != 1) {
        return absl::UnimplementedError(
            Cat("tensor ", tensor.name, ": norms and biases of type ", InfoOf(tensor.dtype).name));
      }
      DequantizeRow(tensor.dtype, table[i].data(), entry.vector.size(), entry.vector.data());
    } else if (IsPacked(table[i].role)) {
      const uint32_t rows = table[i].rows, cols = table[i].cols();
      KVIST_RETURN_IF_ERROR(Annotate(kernels::CheckPackable(tensor.dtype, rows, cols), Cat("tensor ", tensor.name)));
      entry.matrix = {tensor.dtype, rows, cols, nullptr};
      entry.matrix_bytes = kernels::PackedBytes(tensor.dtype, rows, cols);
      offsets[i] = total;
      total += table[i].experts * entry.matrix_bytes;
      if (table[i].role == model::WeightRole::kExperts) weights.expert_bytes_ += table[i].experts * entry.matrix_bytes;
    }
  }
  KVIST_ASSIGN_OR_RETURN(weights.memory_, AnonymousMemory::Map(total));
  for (size_t i = 0; i < table.size(); ++i) {
    if (!IsPacked(table[i].role)) continue;
    std::byte* packed = weights.memory_.data() + offsets[i];
    weights.entries_[i].matrix.data = packed;
    PackMatrices(table[i], pool, packed);
    if (progress) progress(offsets[i] + table[i].experts * weights.entries_[i].matrix_bytes, total);
  }
  return weights;
}

void Weights::EmbeddingRow(model::WeightId id, TokenId token, float* out) const {
  const GgufTensor& tensor = *model_->graph.weights[id.value].tensor;
  KVIST_CHECK(token.value < tensor.dims[1]);
  const size_t width = tensor.dims[0];
  DequantizeRow(tensor.dtype, tensor.bytes.data() + token.value * RowBytes(tensor.dtype, width), width, out);
}

}  // namespace kvist::exec
