#pragma once

/// @file
/// A model's weights as the CPU kernels read them: matrices packed once at load, vectors as f32, embedding rows read
/// from the mapped file. Rows of a tensor that holds several matrices, and each expert, are a packed matrix of their
/// own, which begins with a row group of its own. Immutable after Pack. Threads: any.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/packed.h"
#include "model/model.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"

namespace kvist::exec {

/// Called now and then from the loading thread.
using LoadProgress = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

class Weights {
 public:
  /// Errors: Unimplemented or InvalidArgument naming a tensor whose shape or type no kernel takes; ResourceExhausted.
  static absl::StatusOr<Weights> Pack(std::shared_ptr<const model::Model> model, ThreadPool& pool,
                                      const LoadProgress& progress);

  /// REQUIRES: the weight's role fits. Of experts, the first one.
  const kernels::PackedMatrix& Matrix(model::WeightId id) const { return entries_[id.value].matrix; }
  /// Bytes of one packed matrix: expert e lies e times so many behind the first.
  size_t MatrixBytes(model::WeightId id) const { return entries_[id.value].matrix_bytes; }
  const float* Vector(model::WeightId id) const { return entries_[id.value].vector.data(); }
  /// Dequantises one row of an embedding table. @param out [width]
  void EmbeddingRow(model::WeightId id, TokenId token, float* out) const;

  uint64_t packed_bytes() const { return memory_.size(); }
  uint64_t expert_bytes() const { return expert_bytes_; }  ///< Of these, what belongs to experts.

 private:
  struct Entry {
    kernels::PackedMatrix matrix{};
    size_t matrix_bytes = 0;
    std::vector<float> vector;
  };
  std::shared_ptr<const model::Model> model_;
  std::vector<Entry> entries_;
  AnonymousMemory memory_;
  uint64_t expert_bytes_ = 0;
};

}  // namespace kvist::exec
