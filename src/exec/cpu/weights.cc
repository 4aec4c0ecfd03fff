#include "exec/cpu/weights.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

/// Groups that one worker packs between two looks at the counter.
constexpr uint32_t kGroupsPerTask = 64;

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
    if (table[i].role == model::WeightRole::kVector) {
      size_t elements = tensor.Elements();
      weights.entries_[i].vector.resize(elements);
      if (InfoOf(tensor.dtype).block_elements != 1) {
        return absl::UnimplementedError(
            Cat("tensor ", tensor.name, ": norms and biases of type ", InfoOf(tensor.dtype).name));
      }
      DequantizeRow(tensor.dtype, tensor.bytes.data(), elements, weights.entries_[i].vector.data());
    } else if (table[i].role == model::WeightRole::kMatrix) {
      uint32_t cols = static_cast<uint32_t>(tensor.dims[0]), rows = static_cast<uint32_t>(tensor.dims[1]);
      KVIST_RETURN_IF_ERROR(Annotate(kernels::CheckPackable(tensor.dtype, rows, cols), Cat("tensor ", tensor.name)));
      weights.entries_[i].matrix = {tensor.dtype, rows, cols, nullptr};
      offsets[i] = total;
      total += kernels::PackedBytes(tensor.dtype, rows, cols);
    }
  }
  KVIST_ASSIGN_OR_RETURN(weights.memory_, AnonymousMemory::Map(total));
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].role != model::WeightRole::kMatrix) continue;
    kernels::PackedMatrix& matrix = weights.entries_[i].matrix;
    std::byte* packed = weights.memory_.data() + offsets[i];
    matrix.data = packed;
    const uint32_t groups = kernels::RowGroups(matrix.rows);
    pool.ForEach((groups + kGroupsPerTask - 1) / kGroupsPerTask, [&](uint32_t task) {
      uint32_t begin = task * kGroupsPerTask, end = std::min(groups, begin + kGroupsPerTask);
      kernels::PackRowGroups(matrix.dtype, table[i].tensor->bytes.data(), matrix.rows, matrix.cols, begin, end, packed);
    });
    if (progress) progress(offsets[i] + kernels::PackedBytes(matrix.dtype, matrix.rows, matrix.cols), total);
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
