#include "exec/cpu/packing.h"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "kernels/packed.h"
#include "platform/file_reader.h"

namespace kvist::exec {
namespace {

/// Source bytes that a worker reads and packs at once: a part of its second-level cache, and a good size for a disk.
constexpr uint64_t kTaskBytes = uint64_t{1} << 20;

bool IsPacked(const model::Weight& weight) {
  return weight.role == model::WeightRole::kMatrix || weight.role == model::WeightRole::kExperts;
}

uint64_t ExpertBytes(const model::Weight& weight) {
  return weight.rows * weight.row_bytes();
}

void AddTasks(const model::Weight& weight, uint32_t id, std::vector<PackTask>& tasks) {
  const uint64_t group_bytes = kernels::kRowGroup * weight.row_bytes();
  const uint32_t step = static_cast<uint32_t>(std::max<uint64_t>(1, kTaskBytes / group_bytes));
  const uint32_t groups = kernels::RowGroups(weight.rows);
  for (uint32_t expert = 0; expert < weight.experts; ++expert) {
    for (uint32_t begin = 0; begin < groups; begin += step) {
      tasks.push_back({id, expert, begin, std::min(groups, begin + step)});
    }
  }
}

/// Bytes of the model file that a task packs.
std::span<const std::byte> SourceOf(const model::Weight& weight, const PackTask& task) {
  const uint64_t row_bytes = weight.row_bytes();
  const uint64_t begin = uint64_t{task.group_begin} * kernels::kRowGroup;
  const uint64_t end = std::min<uint64_t>(weight.rows, uint64_t{task.group_end} * kernels::kRowGroup);
  return {weight.data() + task.expert * ExpertBytes(weight) + begin * row_bytes, (end - begin) * row_bytes};
}

template <class T>
void Append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Gives the bytes of a model's file by reading them, not through its map: no page faults, errors instead of signals,
/// and past the page cache where that is better. A model that was parsed from memory is taken as it is.
class Source {
 public:
  static absl::StatusOr<Source> Open(const GgufFile& file, bool keep_cached) {
    Source source;
    double cached = 0, bytes = 0;
    for (const MappedFile& map : file.files()) {
      const double size = static_cast<double>(map.bytes().size());
      bytes += size;
      cached += size * map.CachedShare();
    }
    source.cold_ = cached < kWarmShare * bytes;
    const auto mode = source.cold_ && !keep_cached ? FileReader::Mode::kDirect : FileReader::Mode::kBuffered;
    for (const MappedFile& map : file.files()) {
      const std::string part = file.parts_count() == 1 ? "" : Cat(", part ", source.parts_.size() + 1);
      KVIST_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(map, file.label() + part, mode));
      source.parts_.push_back({map.bytes(), std::move(reader)});
    }
    return source;
  }

  bool cold() const { return cold_; }

  absl::StatusOr<std::span<const std::byte>> Read(std::span<const std::byte> mapped, ReadBuffer& buffer) const {
    for (const Part& part : parts_) {
      if (mapped.data() < part.bytes.data() || mapped.data() >= part.bytes.data() + part.bytes.size()) continue;
      return part.reader.Read(static_cast<uint64_t>(mapped.data() - part.bytes.data()), mapped.size(), buffer);
    }
    return mapped;
  }

 private:
  struct Part {
    std::span<const std::byte> bytes;
    FileReader reader;
  };
  std::vector<Part> parts_;
  bool cold_ = false;
};

}  // namespace

absl::StatusOr<PackingPlan> PlanPacking(const model::Model& model) {
  PackingPlan plan;
  const std::vector<model::Weight>& weights = model.graph.weights;
  plan.places.resize(weights.size());
  std::string layout;
  Append(layout, kernels::kPackedVersion);
  Append(layout, kTaskBytes);  // The hash of a model's content goes task by task.
  for (uint32_t i = 0; i < weights.size(); ++i) {
    const model::Weight& weight = weights[i];
    if (!IsPacked(weight)) continue;
    const GgufTensor& tensor = *weight.tensor;
    const uint32_t rows = weight.rows, cols = weight.cols();
    KVIST_RETURN_IF_ERROR(Annotate(kernels::CheckPackable(tensor.dtype, rows, cols), Cat("tensor ", tensor.name)));
    plan.places[i] = {plan.bytes, kernels::PackedBytes(tensor.dtype, rows, cols)};
    const uint64_t bytes = weight.experts * plan.places[i].matrix_bytes;
    plan.bytes += bytes;
    if (weight.role == model::WeightRole::kExperts) plan.expert_bytes += bytes;
    AddTasks(weight, i, plan.tasks);
    layout += tensor.name;
    for (const uint32_t number :
         {uint32_t{0}, static_cast<uint32_t>(tensor.dtype), weight.first_row, rows, cols, weight.experts}) {
      Append(layout, number);
    }
  }
  plan.layout = HashOf(std::as_bytes(std::span(layout)));
  std::ranges::stable_sort(plan.tasks, {},
                           [&](const PackTask& task) { return SourceOf(weights[task.weight], task).data(); });
  return plan;
}

absl::StatusOr<PackingPass> ReadMatrices(const model::Model& model, const PackingPlan& plan, ThreadPool& pool,
                                         std::byte* packed, bool keep_cached, const LoadProgress& progress) {
  KVIST_ASSIGN_OR_RETURN(const Source source, Source::Open(*model.file, keep_cached));
  std::optional<ThreadPool> readers;
  if (source.cold()) readers.emplace(std::max(kColdReaders, pool.threads()));
  ThreadPool& team = readers ? *readers : pool;
  std::vector<ReadBuffer> buffers(team.threads());
  std::vector<uint64_t> hashes(plan.tasks.size());
  std::atomic<uint64_t> done{0};
  const uint64_t total = model.file->file_bytes();
  const auto run = [&](uint32_t index, uint32_t worker) -> absl::Status {
    const PackTask& task = plan.tasks[index];
    const model::Weight& weight = model.graph.weights[task.weight];
    KVIST_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                           source.Read(SourceOf(weight, task), buffers[worker]));
    hashes[index] = XXH3_64bits(bytes.data(), bytes.size());
    if (packed != nullptr) {
      const PackingPlan::Place& place = plan.places[task.weight];
      // Row groups are independent of each other, so some of them are a matrix by themselves.
      const DType dtype = weight.tensor->dtype;
      std::byte* const matrix = packed + place.offset + task.expert * place.matrix_bytes;
      kernels::PackRowGroups(dtype, bytes.data(), static_cast<uint32_t>(bytes.size() / weight.row_bytes()),
                             weight.cols(), 0, task.group_end - task.group_begin,
                             matrix + task.group_begin * kernels::GroupBytes(dtype, weight.cols()));
    }
    const uint64_t so_far = done.fetch_add(bytes.size()) + bytes.size();
    if (worker == 0 && progress) progress(std::min(so_far, total), total);
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(ForEachUntilError(team, static_cast<uint32_t>(plan.tasks.size()), run));
  if (progress) progress(total, total);
  return PackingPass{.content = HashOf(std::as_bytes(std::span(hashes))), .cold = source.cold()};
}

}  // namespace kvist::exec
