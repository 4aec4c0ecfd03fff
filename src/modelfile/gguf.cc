#include "modelfile/gguf.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/status.h"
#include "modelfile/gguf_parse.h"

namespace kvist {
namespace {

/// `-00002-of-00003.gguf` at the end of a path.
struct SplitName {
  std::string prefix;
  uint32_t part;  ///< From 1.
  uint32_t parts_count;
};

std::optional<SplitName> ParseSplitName(std::string_view path) {
  constexpr std::string_view kShape = "-00000-of-00000.gguf";  // 0 stands for any digit.
  if (path.size() <= kShape.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kShape.size());
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kShape[i] == '0' ? !digit : tail[i] != kShape[i]) return std::nullopt;
  }
  SplitName name{std::string(path.substr(0, path.size() - kShape.size())), 0, 0};
  if (!absl::SimpleAtoi(ToAbsl(tail.substr(1, 5)), &name.part) ||
      !absl::SimpleAtoi(ToAbsl(tail.substr(10, 5)), &name.parts_count)) {
    return std::nullopt;
  }
  return name;
}

std::string SplitPath(const std::string& prefix, uint32_t part, uint32_t parts_count) {
  std::array<char, 32> tail;
  std::snprintf(tail.data(), tail.size(), "-%05u-of-%05u.gguf", part, parts_count);
  return prefix + tail.data();
}

/// A count or index under `split.`; 0 is also "absent".
absl::StatusOr<uint64_t> SplitKey(const GgufPart& part, std::string_view key) {
  const GgufValue* value = part.Find(key);
  if (value == nullptr) return uint64_t{0};
  if (const auto* number = std::get_if<uint64_t>(&value->value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value->value); number != nullptr && *number >= 0) {
    return static_cast<uint64_t>(*number);
  }
  return absl::InvalidArgumentError(Cat("key \"", key, "\": is not a non-negative integer"));
}

absl::Status WrongType(const std::string& label, std::string_view key, const GgufValue& value,
                       std::string_view wanted) {
  return absl::InvalidArgumentError(Cat(label, ": key \"", key, "\": is ", value.IsArray() ? "an array of " : "",
                                        GgufTypeName(value.type), ", not ", wanted));
}

absl::Status Absent(const std::string& label, std::string_view key) {
  return absl::NotFoundError(Cat(label, ": key \"", key, "\" is missing"));
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<size_t>(type);
  KVIST_CHECK(index < kNames.size());
  return kNames[index];
}

uint64_t GgufTensor::Elements() const {
  uint64_t elements = 1;
  for (uint64_t dim : dims) elements *= dim;
  return elements;
}

absl::Status GgufFile::AddPart(std::span<const std::byte> image, uint32_t index) {
  KVIST_ASSIGN_OR_RETURN(GgufPart part, ParseGgufPart(image));
  KVIST_ASSIGN_OR_RETURN(uint64_t split_no, SplitKey(part, "split.no"));
  KVIST_ASSIGN_OR_RETURN(uint64_t split_count, SplitKey(part, "split.count"));
  if (split_count == 0) split_count = 1;
  if (split_count != parts_count_) {
    std::string hint = parts_count_ == 1 ? "; parts are named NAME-00001-of-0000N.gguf" : "";
    return absl::InvalidArgumentError(
        Cat("key \"split.count\": says ", split_count, " parts, but the model was opened as ", parts_count_, hint));
  }
  if (split_no != index) {
    return absl::InvalidArgumentError(
        Cat("key \"split.no\": is ", split_no, ", but this is part ", index, " counted from 0"));
  }
  file_bytes_ += image.size();
  for (GgufTensor& tensor : part.tensors) tensors_.push_back(std::move(tensor));
  if (index > 0) return absl::OkStatus();
  version_ = part.version;
  alignment_ = part.alignment;
  metadata_ = std::move(part.metadata);
  metadata_index_.reserve(metadata_.size());
  for (size_t i = 0; i < metadata_.size(); ++i) metadata_index_.emplace(metadata_[i].first, i);
  return absl::OkStatus();
}

absl::Status GgufFile::IndexTensors() {
  tensor_index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      return absl::InvalidArgumentError(
          Cat(label_, ": tensor ", QuoteForMessage(tensors_[i].name), " is in more than one part"));
    }
  }
  if (parts_count_ > 1 && Has("split.tensors.count")) {
    KVIST_ASSIGN_OR_RETURN(uint32_t expected, GetU32("split.tensors.count"));
    if (expected != tensors_.size()) {
      return absl::InvalidArgumentError(Cat(label_, ": key \"split.tensors.count\": says ", expected,
                                            " tensors, but the parts hold ", tensors_.size()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::ParseParts(std::span<const GgufImage> parts) {
  KVIST_CHECK(!parts.empty());
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->label_ = parts[0].label;
  file->parts_count_ = static_cast<uint32_t>(parts.size());
  for (uint32_t i = 0; i < parts.size(); ++i) {
    KVIST_RETURN_IF_ERROR(Annotate(file->AddPart(parts[i].bytes, i), parts[i].label));
  }
  KVIST_RETURN_IF_ERROR(file->IndexTensors());
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const std::byte> image, std::string_view label) {
  const GgufImage part{image, std::string(label)};
  return ParseParts({&part, 1});
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  const std::optional<SplitName> name = ParseSplitName(path);
  const uint32_t parts_count = name.has_value() ? name->parts_count : 1;
  if (name.has_value() && (name->part == 0 || name->part > parts_count)) {
    return absl::InvalidArgumentError(Cat(path, ": the name says part ", name->part, " of ", parts_count));
  }
  std::vector<MappedFile> maps;
  std::vector<GgufImage> parts;
  for (uint32_t i = 1; i <= parts_count; ++i) {
    std::string part_path = name.has_value() ? SplitPath(name->prefix, i, parts_count) : path;
    absl::StatusOr<MappedFile> map = MappedFile::Open(part_path);
    if (!map.ok()) {
      return parts_count == 1 ? map.status()
                              : Annotate(map.status(), Cat("part ", i, " of ", parts_count, " of a split model"));
    }
    parts.push_back({map->bytes(), std::move(part_path)});
    maps.push_back(*std::move(map));
  }
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, ParseParts(parts));
  file->maps_ = std::move(maps);
  return file;
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second].second;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  if (const auto* text = std::get_if<std::string_view>(&value->value)) return *text;
  return WrongType(label_, key, *value, "a string");
}

absl::StatusOr<uint32_t> GgufFile::GetU32(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  if (const auto* number = std::get_if<uint64_t>(&value->value)) {
    if (*number <= kMax) return static_cast<uint32_t>(*number);
    return absl::InvalidArgumentError(Cat(label_, ": key \"", key, "\": ", *number, " is out of range"));
  }
  if (const auto* number = std::get_if<int64_t>(&value->value)) {
    if (*number >= 0 && static_cast<uint64_t>(*number) <= kMax) return static_cast<uint32_t>(*number);
    return absl::InvalidArgumentError(Cat(label_, ": key \"", key, "\": ", *number, " is out of range"));
  }
  return WrongType(label_, key, *value, "an integer");
}

absl::StatusOr<float> GgufFile::GetF32(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  const auto* number = std::get_if<double>(&value->value);
  if (number == nullptr) return WrongType(label_, key, *value, "a float");
  if (std::isfinite(*number) && std::abs(*number) > std::numeric_limits<float>::max()) {
    return absl::InvalidArgumentError(Cat(label_, ": key \"", key, "\": ", *number, " is out of range"));
  }
  return static_cast<float>(*number);
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
  return WrongType(label_, key, *value, "a boolean");
}

absl::StatusOr<std::span<const int64_t>> GgufFile::GetInts(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  if (const auto* ints = std::get_if<GgufValue::Ints>(&value->value)) return std::span<const int64_t>(*ints);
  if (std::holds_alternative<GgufValue::Uints>(value->value)) {
    return absl::InvalidArgumentError(Cat(label_, ": key \"", key, "\": an element is beyond 64 signed bits"));
  }
  return WrongType(label_, key, *value, "an array of integers");
}

absl::StatusOr<std::span<const float>> GgufFile::GetFloats(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  if (const auto* floats = std::get_if<GgufValue::Floats>(&value->value)) return std::span<const float>(*floats);
  return WrongType(label_, key, *value, "an array of floats");
}

absl::StatusOr<std::span<const std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return Absent(label_, key);
  if (const auto* strings = std::get_if<GgufValue::Strings>(&value->value)) {
    return std::span<const std::string_view>(*strings);
  }
  return WrongType(label_, key, *value, "an array of strings");
}

absl::StatusOr<std::string_view> GgufFile::GetStringOr(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return fallback;
  return GetString(key);
}

absl::StatusOr<uint32_t> GgufFile::GetU32Or(std::string_view key, uint32_t fallback) const {
  if (!Has(key)) return fallback;
  return GetU32(key);
}

absl::StatusOr<float> GgufFile::GetF32Or(std::string_view key, float fallback) const {
  if (!Has(key)) return fallback;
  return GetF32(key);
}

absl::StatusOr<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return GetBool(key);
}

}  // namespace kvist
