#include "exec/cpu/weights.h"

#include <utility>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/status.h"
#include "platform/file_reader.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

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
  KVIST_RETURN_IF_ERROR(fits ? weights.LoadIntoMemory(pool, options, cache.get())
                             : weights.MapFromCache(pool, options, cache.get()));
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

absl::Status Weights::LoadIntoMemory(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache) {
  const uint64_t room = (plan_.bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  KVIST_ASSIGN_OR_RETURN(memory_, AnonymousMemory::Map(room));
  PointAt(memory_.data());
  if (cache != nullptr) {
    const absl::Status status = cache->Read(pool, memory_.data(), ContentOf(pool), options.progress, report_.cold);
    report_.source = WeightSource::kCache;
    if (status.ok()) return status;
    report_.cache_miss = absl::IsNotFound(status) ? "there is none yet" : std::string(status.message());
  }
  report_.source = WeightSource::kModel;
  KVIST_ASSIGN_OR_RETURN(const PackingPass pass, ReadMatrices(*model_, plan_, pool, memory_.data(),
                                                              /*keep_cached=*/cache == nullptr, options.progress));
  report_.cold = pass.cold;
  if (cache != nullptr) {
    writer_ = std::make_unique<PackedWriter>(*cache, std::span<const std::byte>(memory_.data(), plan_.bytes),
                                             pass.content, options.notice);
  }
  return absl::OkStatus();
}

absl::Status Weights::MapFromCache(ThreadPool& pool, const LoadOptions& options, const PackedCache* cache) {
  const std::string need = Cat("the weights take ", FormatByteSize(plan_.bytes), " and only ",
                               FormatByteSize(options.memory_bytes_max), " of memory are free for them");
  if (cache == nullptr) {
    return absl::ResourceExhaustedError(Cat(need,
                                            "; with a folder for packed weights (--packed-cache) the model runs "
                                            "from a file there"));
  }
  report_.source = WeightSource::kMapped;
  absl::StatusOr<MappedWeights> mapped = cache->Map(pool, ContentOf(pool), options.progress, report_.cold);
  if (!mapped.ok()) {
    report_.cache_miss =
        absl::IsNotFound(mapped.status()) ? "there is none yet" : std::string(mapped.status().message());
    mapped = cache->Build(pool, [&](std::byte* packed) -> absl::StatusOr<Hash128> {
      KVIST_ASSIGN_OR_RETURN(const PackingPass pass, ReadMatrices(*model_, plan_, pool, packed,
                                                                  /*keep_cached=*/false, options.progress));
      report_.cold = pass.cold;
      return pass.content;
    });
    if (options.notice) options.notice(cache->path(), mapped.status());
  }
  if (!mapped.ok()) return Annotate(mapped.status(), Cat(need, ", and no file could be made instead"));
  mapped_ = *std::move(mapped);
  PointAt(mapped_.data.data());
  return absl::OkStatus();
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
