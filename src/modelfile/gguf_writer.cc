#include "modelfile/gguf_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/gguf_parse.h"

namespace kvist {
namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
void PutNumber(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void PutString(std::string& out, std::string_view text) {
  PutNumber<uint64_t>(out, text.size());
  out.append(text);
}

void PutType(std::string& out, GgufType type) {
  PutNumber(out, static_cast<uint32_t>(type));
}

/// Narrows a number to its stored width. Values come from SetX of that width or from a file that held them so.
template <class Kept>
void PutAs(std::string& out, GgufType type, Kept value) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return PutNumber(out, static_cast<uint8_t>(value));
    case GgufType::kU16:
    case GgufType::kI16:
      return PutNumber(out, static_cast<uint16_t>(value));
    case GgufType::kU32:
    case GgufType::kI32:
      return PutNumber(out, static_cast<uint32_t>(value));
    case GgufType::kU64:
    case GgufType::kI64:
      return PutNumber(out, static_cast<uint64_t>(value));
    case GgufType::kF32:
      return PutNumber(out, static_cast<float>(value));
    case GgufType::kF64:
      return PutNumber(out, static_cast<double>(value));
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  KVIST_CHECK(false && "a number with a number's type");
}

void PutPayload(std::string& out, const GgufValue& value) {
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_same_v<T, std::string_view>) {
          PutString(out, held);
        } else if constexpr (std::is_same_v<T, GgufValue::Strings>) {
          PutNumber<uint64_t>(out, held.size());
          for (std::string_view text : held) PutString(out, text);
        } else if constexpr (std::is_arithmetic_v<T>) {
          PutAs(out, value.type, held);
        } else {
          PutNumber<uint64_t>(out, held.size());
          for (auto element : held) PutAs(out, value.type, element);
        }
      },
      value.value);
}

bool HoldsStrings(const GgufValue& value) {
  return std::holds_alternative<std::string_view>(value.value) ||
         std::holds_alternative<GgufValue::Strings>(value.value);
}

void PutEntry(std::string& out, std::string_view key, const GgufValue& value) {
  PutString(out, key);
  if (value.IsArray()) PutType(out, GgufType::kArray);
  PutType(out, value.type);
  PutPayload(out, value);
}

/// A file that gets its name when Commit is called and vanishes otherwise.
class PendingFile {
 public:
  explicit PendingFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".part") {}
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (created_) std::remove(temporary_.c_str());
  }

  absl::Status Create() {
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (file_ == nullptr) return absl::ErrnoToStatus(errno, temporary_);
    created_ = true;
    return absl::OkStatus();
  }

  absl::Status Append(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
      return absl::ErrnoToStatus(errno, temporary_);
    return absl::OkStatus();
  }

  absl::Status Close() {
    if (std::fclose(std::exchange(file_, nullptr)) != 0) return absl::ErrnoToStatus(errno, temporary_);
    return absl::OkStatus();
  }

  absl::Status Commit() {
    std::error_code error;
    std::filesystem::rename(temporary_, path_, error);
    if (error) return absl::ErrnoToStatus(error.value(), path_);
    created_ = false;
    return absl::OkStatus();
  }

 private:
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  bool created_ = false;
};

std::vector<std::string> PartPaths(const std::string& path, size_t parts_count) {
  if (parts_count == 1) return {path};
  std::string stem = path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
  std::vector<std::string> paths;
  for (size_t i = 1; i <= parts_count; ++i) {
    std::array<char, 32> tail;
    std::snprintf(tail.data(), tail.size(), "-%05zu-of-%05zu.gguf", i, parts_count);
    paths.push_back(stem + tail.data());
  }
  return paths;
}

absl::Status PutBytes(const GgufSink& sink, std::string_view text) {
  return sink(std::as_bytes(std::span(text.data(), text.size())));
}

absl::Status PutZeros(const GgufSink& sink, uint64_t count) {
  constexpr std::array<std::byte, 4096> kZeros{};
  while (count > 0) {
    const uint64_t now = std::min<uint64_t>(count, kZeros.size());
    KVIST_RETURN_IF_ERROR(sink(std::span(kZeros).first(now)));
    count -= now;
  }
  return absl::OkStatus();
}

}  // namespace

GgufWriter::GgufWriter(const GgufWriterOptions& options) : options_(options) {
  KVIST_CHECK(options.version == 2 || options.version == 3);
  KVIST_CHECK(options.alignment >= 8 && options.alignment <= (uint64_t{1} << 31) &&
              std::has_single_bit(options.alignment));
  if (options.alignment != kGgufAlignment) {
    PutEntry(metadata_, kAlignmentKey, {GgufType::kU32, options.alignment});
    metadata_count_ = 1;
  }
}

void GgufWriter::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void GgufWriter::SetBool(std::string_view key, bool value) {
  SetValue(key, {GgufType::kBool, value});
}
void GgufWriter::SetU32(std::string_view key, uint32_t value) {
  SetValue(key, {GgufType::kU32, uint64_t{value}});
}
void GgufWriter::SetI32(std::string_view key, int32_t value) {
  SetValue(key, {GgufType::kI32, int64_t{value}});
}
void GgufWriter::SetU64(std::string_view key, uint64_t value) {
  SetValue(key, {GgufType::kU64, value});
}
void GgufWriter::SetF32(std::string_view key, float value) {
  SetValue(key, {GgufType::kF32, double{value}});
}
void GgufWriter::SetString(std::string_view key, std::string_view value) {
  SetValue(key, {GgufType::kString, value});
}

void GgufWriter::SetStrings(std::string_view key, std::span<const std::string> values) {
  SetValue(key, {GgufType::kString, GgufValue::Strings(values.begin(), values.end())});
}
void GgufWriter::SetF32s(std::string_view key, std::span<const float> values) {
  SetValue(key, {GgufType::kF32, GgufValue::Floats(values.begin(), values.end())});
}
void GgufWriter::SetI32s(std::string_view key, std::span<const int32_t> values) {
  SetValue(key, {GgufType::kI32, GgufValue::Ints(values.begin(), values.end())});
}
void GgufWriter::SetU32s(std::string_view key, std::span<const uint32_t> values) {
  SetValue(key, {GgufType::kU32, GgufValue::Ints(values.begin(), values.end())});
}

void GgufWriter::SetValue(std::string_view key, const GgufValue& value) {
  KVIST_CHECK(value.type != GgufType::kArray);
  KVIST_CHECK((value.type == GgufType::kString) == HoldsStrings(value));
  // The writer sets these itself, from its options; a copy of a file's metadata brings the old ones along.
  if (key == kAlignmentKey || key.starts_with("split.")) return;
  if (!keys_.insert(std::string(key)).second) {
    return Fail(absl::InvalidArgumentError(Cat("key ", QuoteForMessage(key), " was set twice")));
  }
  PutEntry(metadata_, key, value);
  ++metadata_count_;
}

void GgufWriter::AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims,
                           GgufTensorSource source) {
  const std::string place = Cat("tensor ", QuoteForMessage(name));
  if (!names_.insert(std::string(name)).second) {
    return Fail(absl::InvalidArgumentError(Cat(place, " was added twice")));
  }
  absl::StatusOr<uint64_t> bytes = GgufTensorBytes(dtype, dims);
  if (!bytes.ok()) return Fail(Annotate(bytes.status(), place));
  tensors_.push_back({std::string(name), dtype, {dims.begin(), dims.end()}, *bytes, std::move(source)});
}

void GgufWriter::AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims,
                           std::span<const std::byte> bytes) {
  AddTensor(name, dtype, dims, [bytes](const GgufSink& sink) { return sink(bytes); });
}

uint64_t GgufWriter::Padded(uint64_t bytes) const {
  return (bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
}

absl::StatusOr<std::vector<GgufWriter::Part>> GgufWriter::PlanParts() const {
  KVIST_RETURN_IF_ERROR(status_);
  std::vector<Part> parts{{0, 0}};
  uint64_t part_bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t bytes = Padded(tensors_[i].bytes);
    const bool full = options_.part_bytes_max > 0 && part_bytes + bytes > options_.part_bytes_max;
    if (full && parts.back().end > parts.back().begin) {
      parts.push_back({i, i});
      part_bytes = 0;
    }
    parts.back().end = i + 1;
    part_bytes += bytes;
  }
  constexpr size_t kPartsMax = 65535;  // `split.count` is 16 bits wide.
  if (parts.size() > kPartsMax) {
    return absl::InvalidArgumentError(
        Cat("the model takes ", parts.size(), " parts; at most ", kPartsMax, " are possible"));
  }
  return parts;
}

absl::Status GgufWriter::WritePart(std::span<const Part> parts, size_t index, const GgufSink& sink) const {
  const Part& part = parts[index];
  std::string entries;
  uint64_t entries_count = 0;
  if (index == 0) {
    entries = metadata_;
    entries_count = metadata_count_;
  } else if (options_.alignment != kGgufAlignment) {
    PutEntry(entries, kAlignmentKey, {GgufType::kU32, options_.alignment});
    entries_count = 1;
  }
  if (parts.size() > 1) {
    PutEntry(entries, "split.no", {GgufType::kU16, uint64_t{index}});
    PutEntry(entries, "split.count", {GgufType::kU16, uint64_t{parts.size()}});
    PutEntry(entries, "split.tensors.count", {GgufType::kI32, static_cast<int64_t>(tensors_.size())});
    entries_count += 3;
  }
  std::string header = "GGUF";
  PutNumber<uint32_t>(header, options_.version);
  PutNumber<uint64_t>(header, part.end - part.begin);
  PutNumber<uint64_t>(header, entries_count);
  header += entries;
  uint64_t offset = 0;
  for (size_t i = part.begin; i < part.end; ++i) {
    PutString(header, tensors_[i].name);
    PutNumber<uint32_t>(header, static_cast<uint32_t>(tensors_[i].dims.size()));
    for (uint64_t dim : tensors_[i].dims) PutNumber(header, dim);
    PutNumber(header, static_cast<uint32_t>(tensors_[i].dtype));
    PutNumber(header, offset);
    offset += Padded(tensors_[i].bytes);
  }
  header.resize(Padded(header.size()), '\0');
  KVIST_RETURN_IF_ERROR(PutBytes(sink, header));
  for (size_t i = part.begin; i < part.end; ++i) {
    const Tensor& tensor = tensors_[i];
    const std::string place = Cat("tensor ", QuoteForMessage(tensor.name));
    uint64_t written = 0;
    absl::Status status = tensor.source([&](std::span<const std::byte> bytes) -> absl::Status {
      if (bytes.size() > tensor.bytes - written) {
        return absl::InvalidArgumentError(Cat("its source gives more than ", tensor.bytes, " bytes"));
      }
      written += bytes.size();
      return sink(bytes);
    });
    KVIST_RETURN_IF_ERROR(Annotate(status, place));
    if (written != tensor.bytes) {
      return absl::InvalidArgumentError(Cat(place, ": its source gave ", written, " of ", tensor.bytes, " bytes"));
    }
    KVIST_RETURN_IF_ERROR(PutZeros(sink, Padded(tensor.bytes) - tensor.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> GgufWriter::WriteFiles(const std::string& path) const {
  KVIST_ASSIGN_OR_RETURN(const std::vector<Part> parts, PlanParts());
  std::vector<std::string> paths = PartPaths(path, parts.size());
  std::vector<std::unique_ptr<PendingFile>> files;
  for (size_t i = 0; i < parts.size(); ++i) {
    PendingFile& file = *files.emplace_back(std::make_unique<PendingFile>(paths[i]));
    KVIST_RETURN_IF_ERROR(file.Create());
    absl::Status status = WritePart(parts, i, [&](std::span<const std::byte> bytes) { return file.Append(bytes); });
    KVIST_RETURN_IF_ERROR(Annotate(status, paths[i]));
    KVIST_RETURN_IF_ERROR(file.Close());
  }
  for (auto& file : files) KVIST_RETURN_IF_ERROR(file->Commit());
  return paths;
}

absl::StatusOr<std::vector<std::vector<std::byte>>> GgufWriter::WriteImages() const {
  KVIST_ASSIGN_OR_RETURN(const std::vector<Part> parts, PlanParts());
  std::vector<std::vector<std::byte>> images(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::byte>& image = images[i];
    KVIST_RETURN_IF_ERROR(WritePart(parts, i, [&](std::span<const std::byte> bytes) {
      image.insert(image.end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    }));
  }
  return images;
}

}  // namespace kvist
