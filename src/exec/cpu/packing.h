#pragma once

/// @file
/// Packs a model's matrices: which of them lie where in packed memory, and reading, hashing and packing them in the
/// order of the file, by parts, on all threads. Non-goals: where packed memory comes from (weights.h).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/cpu/loading.h"
#include "exec/cpu/packed_cache_format.h"
#include "model/model.h"

namespace kvist::exec {

/// Some row groups of one matrix.
struct PackTask {
  uint32_t weight, expert;
  uint32_t group_begin, group_end;
};

/// Depends on nothing but the model's graph, so that packed memory can be found again. Plain data.
struct PackingPlan {
  struct Place {
    uint64_t offset = 0;        ///< Of the first expert, in packed memory.
    uint64_t matrix_bytes = 0;  ///< Of each expert; 0 = this weight is not packed.
  };
  std::vector<Place> places;    ///< [weights of the graph]
  std::vector<PackTask> tasks;  ///< Every row group once, as they lie in the file.
  uint64_t bytes = 0;           ///< Of packed memory.
  uint64_t expert_bytes = 0;    ///< Of these, what belongs to experts.
  Hash128 layout;               ///< Of all that decides what packed memory looks like, the values of weights apart.
};

/// Errors: InvalidArgument naming a tensor whose shape no kernel takes.
absl::StatusOr<PackingPlan> PlanPacking(const model::Model& model);

/// What one pass over the model's matrices gives.
struct PackingPass {
  Hash128 content;    ///< Of all matrices as the file has them.
  bool cold = false;  ///< The file was not in the page cache.
};

/// Reads all matrices and packs them. A file that is not in the page cache is read by more threads than `pool` has.
/// @param packed  [plan.bytes], or null to read and hash only.
/// @param keep_cached  whether a cold file should be in the page cache afterwards.
/// Errors: those of reading.
absl::StatusOr<PackingPass> ReadMatrices(const model::Model& model, const PackingPlan& plan, ThreadPool& pool,
                                         std::byte* packed, bool keep_cached, const LoadProgress& progress);

}  // namespace kvist::exec
