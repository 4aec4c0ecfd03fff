#pragma once

/// @file
/// A model's weights as the CPU kernels read them: matrices packed, vectors as f32, embedding rows read from the mapped
/// file. Rows of a tensor that holds several matrices, and each expert, are a packed matrix of their own, which begins
/// with a row group of its own. Packed matrices come from the model file or from a cache of packed weights, into huge
/// pages; when they are larger than memory they stay in the cache's file and are mapped (decision 0012). Immutable
/// after Load. Threads: any.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/cpu/background_task.h"
#include "exec/cpu/loading.h"
#include "exec/cpu/packed_cache.h"
#include "exec/cpu/packing.h"
#include "kernels/packed.h"
#include "model/model.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"

namespace kvist::exec {

struct LoadOptions {
  PackedCache::Options cache;              ///< No folder = no cache.
  uint64_t cache_bytes_min = 64ull << 20;  ///< Packed weights of less are not kept: packing them takes no time.
  uint64_t memory_bytes_max = UINT64_MAX;  ///< Packed weights of more are mapped from the cache.
  LoadProgress progress;
  CacheNotice notice;
};

class Weights {
 public:
  /// Errors: Unimplemented or InvalidArgument naming a tensor whose shape or type no kernel takes; those of reading;
  /// ResourceExhausted, also for weights larger than memory without a cache.
  static absl::StatusOr<Weights> Load(std::shared_ptr<const model::Model> model, ThreadPool& pool,
                                      const LoadOptions& options);

  /// REQUIRES: the weight's role fits. Of experts, the first one.
  const kernels::PackedMatrix& Matrix(model::WeightId id) const { return entries_[id.value].matrix; }
  /// Bytes of one packed matrix: expert e lies e times so many behind the first.
  size_t MatrixBytes(model::WeightId id) const { return plan_.places[id.value].matrix_bytes; }
  const float* Vector(model::WeightId id) const { return entries_[id.value].vector.data(); }
  /// Dequantises one row of an embedding table. @param out [width]
  void EmbeddingRow(model::WeightId id, TokenId token, float* out) const;

  uint64_t packed_bytes() const { return plan_.bytes; }
  uint64_t expert_bytes() const { return plan_.expert_bytes; }  ///< Of these, what belongs to experts.
  const LoadReport& report() const { return report_; }

  /// Until nothing goes on beside steps any more: a cache is written, weights have moved into huge pages.
  /// @return  how that ended.
  absl::Status WaitForBackground() const { return background_ == nullptr ? absl::OkStatus() : background_->Wait(); }

 private:
  struct Entry {
    kernels::PackedMatrix matrix{};
    std::vector<float> vector;
  };

  absl::Status ReadVectors();
  absl::Status LoadFromCache(ThreadPool& pool, const LoadOptions& options, const PackedCache& cache, bool fits);
  absl::Status PackIntoMemory(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache);
  absl::Status PackIntoCache(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache);
  void UseMapped(MappedWeights weights);
  PackedCache::ContentHash ContentOf(ThreadPool& pool) const;
  void PointAt(const std::byte* packed);

  std::shared_ptr<const model::Model> model_;
  PackingPlan plan_;
  std::vector<Entry> entries_;  ///< [weights of the graph]
  AnonymousMemory memory_;
  std::unique_ptr<MappedWeights> mapped_;
  LoadReport report_;
  std::unique_ptr<BackgroundTask> background_;  ///< Reads memory_ or changes mapped_.
};

}  // namespace kvist::exec
