#include "exec/cpu/weights.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/status.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

/// A program that has answered waits so long for its cache: 1 GB is written in less.
constexpr std::chrono::seconds kWritePatience(5);
/// The first prompt of a program that has just one goes before moving weights into huge pages.
constexpr std::chrono::milliseconds kSettleDelay(400), kPause(10);

PackedCache::Model CacheModel(std::shared_ptr<const model::Model> model, const PackingPlan& plan) {
  const std::string path = model->file->label();
  return {.path = path,
          .stamps = [held = std::move(model)]() -> absl::StatusOr<std::vector<FileStamp>> {
            std::vector<FileStamp> stamps;
            for (const MappedFile& file : held->file->files()) {
              KVIST_ASSIGN_OR_RETURN(stamps.emplace_back(), file.Stamp());
            }
            return stamps;
          },
          .layout = plan.layout,
          .data_bytes = plan.bytes};
}

}  // namespace

absl::StatusOr<Weights> Weights::Load(std::shared_ptr<const model::Model> model, ThreadPool& pool,
                                      const LoadOptions& options) {
  Weights weights;
  weights.model_ = std::move(model);
  KVIST_ASSIGN_OR_RETURN(weights.plan_, PlanPacking(*weights.model_));
  KVIST_RETURN_IF_ERROR(weights.ReadVectors());
  const uint64_t bytes = weights.plan_.bytes;
  const bool fits = bytes <= options.memory_bytes_max;
  std::unique_ptr<PackedCache> cache;
  if (!options.cache.folder.empty() && !weights.model_->file->files().empty() && bytes > 0 &&
      (bytes >= options.cache_bytes_min || !fits)) {
    KVIST_ASSIGN_OR_RETURN(PackedCache found,
                           PackedCache::For(options.cache, CacheModel(weights.model_, weights.plan_)));
    cache = std::make_unique<PackedCache>(std::move(found));
    weights.report_.cache_path = cache->path();
  }
  if (cache != nullptr) {
    const absl::Status status = weights.LoadFromCache(pool, options, *cache, fits);
    if (status.ok()) return weights;
    weights.report_.cache_miss = absl::IsNotFound(status) ? "there is none yet" : std::string(status.message());
  }
  KVIST_RETURN_IF_ERROR(fits ? weights.PackIntoMemory(pool, options, cache.get())
                             : weights.PackIntoCache(pool, options, cache.get()));
  return weights;
}

absl::Status Weights::ReadVectors() {
  const std::vector<model::Weight>& table = model_->graph.weights;
  entries_.resize(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const GgufTensor& tensor = *table[i].tensor;
    if (table[i].role != model::WeightRole::kVector) continue;
    if (InfoOf(tensor.dtype).block_elements != 1) {
      return absl::UnimplementedError(
          Cat("tensor ", tensor.name, ": norms and biases of type ", InfoOf(tensor.dtype).name));
    }
    entries_[i].vector.resize(table[i].rows);
    DequantizeRow(tensor.dtype, table[i].data(), entries_[i].vector.size(), entries_[i].vector.data());
  }
  return absl::OkStatus();
}

PackedCache::ContentHash Weights::ContentOf(ThreadPool& pool) const {
  return [this, &pool]() -> absl::StatusOr<Hash128> {
    KVIST_ASSIGN_OR_RETURN(const PackingPass pass,
                           ReadMatrices(*model_, plan_, pool, nullptr, /*keep_cached=*/false, {}));
    return pass.content;
  };
}

absl::Status Weights::LoadFromCache(ThreadPool& pool, const LoadOptions& options, const PackedCache& cache, bool fits) {
  KVIST_ASSIGN_OR_RETURN(MappedWeights mapped, cache.Map(pool, ContentOf(pool), options.progress, report_.cold));
  UseMapped(std::move(mapped));
  report_.source = fits ? WeightSource::kCache : WeightSource::kMapped;
  if (fits) {
    background_ = std::make_unique<BackgroundTask>(
        std::chrono::milliseconds(0), [weights = mapped_.get()](const std::function<bool()>& go_on) {
          for (auto waited = kPause; waited < kSettleDelay && go_on(); waited += kPause)
            std::this_thread::sleep_for(kPause);
          return Settle(*weights, go_on);
        });
  }
  return absl::OkStatus();
}

absl::Status Weights::PackIntoMemory(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache) {
  KVIST_ASSIGN_OR_RETURN(memory_, AnonymousMemory::Map(plan_.bytes));
  KVIST_ASSIGN_OR_RETURN(const PackingPass pass, ReadMatrices(*model_, plan_, pool, memory_.data(),
                                                              /*keep_cached=*/cache == nullptr, options.progress));
  PointAt(memory_.data());
  report_.source = WeightSource::kModel;
  report_.cold = pass.cold;
  if (cache == nullptr) return absl::OkStatus();
  background_ = std::make_unique<BackgroundTask>(
      kWritePatience, [cache = *cache, data = std::span<const std::byte>(memory_.data(), plan_.bytes),
                       content = pass.content, notice = options.notice](const std::function<bool()>& go_on) {
        LowerPriority();
        const absl::Status status = cache.Write(data, content, go_on);
        if (notice) notice(cache.path(), status);
        return status;
      });
  return absl::OkStatus();
}

absl::Status Weights::PackIntoCache(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache) {
  const std::string need = Cat("the weights take ", FormatByteSize(plan_.bytes), " and only ",
                               FormatByteSize(options.memory_bytes_max), " of memory are free for them");
  if (cache == nullptr) {
    return absl::ResourceExhaustedError(Cat(need,
                                            "; with a folder for packed weights (--packed-cache) the model runs "
                                            "from a file there"));
  }
  absl::StatusOr<MappedWeights> built = cache->Build(pool, [&](std::byte* packed) -> absl::StatusOr<Hash128> {
    KVIST_ASSIGN_OR_RETURN(const PackingPass pass, ReadMatrices(*model_, plan_, pool, packed,
                                                                /*keep_cached=*/false, options.progress));
    report_.cold = pass.cold;
    return pass.content;
  });
  if (options.notice) options.notice(cache->path(), built.status());
  if (!built.ok()) return Annotate(built.status(), Cat(need, ", and no file could be made instead"));
  report_.source = WeightSource::kMapped;
  UseMapped(*std::move(built));
  return absl::OkStatus();
}

void Weights::UseMapped(MappedWeights weights) {
  mapped_ = std::make_unique<MappedWeights>(std::move(weights));
  PointAt(mapped_->map.data());
}

void Weights::PointAt(const std::byte* packed) {
  const std::vector<model::Weight>& table = model_->graph.weights;
  for (size_t i = 0; i < table.size(); ++i) {
    if (plan_.places[i].matrix_bytes == 0) continue;
    entries_[i].matrix = {table[i].tensor->dtype, table[i].rows, table[i].cols(), packed + plan_.places[i].offset};
  }
}

void Weights::EmbeddingRow(model::WeightId id, TokenId token, float* out) const {
  const GgufTensor& tensor = *model_->graph.weights[id.value].tensor;
  KVIST_CHECK(token.value < tensor.dims[1]);
  const size_t width = tensor.dims[0];
  DequantizeRow(tensor.dtype, tensor.bytes.data() + token.value * RowBytes(tensor.dtype, width), width, out);
}

}  // namespace kvist::exec
