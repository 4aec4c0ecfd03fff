#pragma once

/// @file
/// Reads GGUF model files (versions 2 and 3, little endian, single or split): typed metadata and tensors whose
/// bytes stay in the memory map. Trusts nothing: every count, length, offset and alignment is checked against the
/// file before it is used, and an error names the file and the byte offset, key or tensor. Memory taken is at most a
/// small multiple of the header's bytes. Non-goals: what the metadata mean (model/, tokenizer), running anything.
/// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "platform/mapped_file.h"
#include "tensor/dtype.h"

namespace kvist {

/// How a metadata value is stored. Numbers are the file format's.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// Lower case name: "u8", "string", "array". REQUIRES: an enumerator.
std::string_view GgufTypeName(GgufType type);

/// One metadata value. Integers of every width are widened to int64/uint64, floats to double; arrays are
/// homogeneous and never nest. Strings view the map and need not be valid UTF-8.
struct GgufValue {
  using Strings = std::vector<std::string_view>;
  using Ints = std::vector<int64_t>;    ///< Every integer width; booleans as 0 and 1.
  using Uints = std::vector<uint64_t>;  ///< Only a u64 array with an element beyond int64.
  using Floats = std::vector<float>;    ///< f32, or f64 rounded.

  GgufType type = GgufType::kBool;  ///< As stored; of an array, the type of its elements.
  std::variant<bool, int64_t, uint64_t, double, std::string_view, Ints, Uints, Floats, Strings> value;

  bool IsArray() const { return value.index() >= 5; }
};

/// A stored tensor. Dimensions are GGUF's order: dims[0] is the contiguous row length.
struct GgufTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> dims;        ///< 1..4 entries, each > 0; dims[0] is a multiple of the type's block.
  std::span<const std::byte> bytes;  ///< In the map; exactly the size that dtype and dims imply.

  uint64_t Elements() const;
};

/// One part of a model as bytes, and the name that errors call it by.
struct GgufImage {
  std::span<const std::byte> bytes;
  std::string label;
};

/// An open model. Immutable after Open. Threads: any. Views stay valid while the GgufFile lives.
class GgufFile {
 public:
  using Metadata = std::vector<std::pair<std::string_view, GgufValue>>;

  /// Opens `path`; when it is any part of a split model (`*-0000I-of-0000N.gguf`), opens every part beside it.
  /// Errors: NotFound (also a missing part), InvalidArgument (malformed, with place), Unimplemented (big endian,
  /// version 1 or above 3, tensor type not supported, arrays of arrays).
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  /// Parses one in-memory image, for tests and fuzzing. `image` must outlive the result. A part of a split model is an
  /// InvalidArgument.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::span<const std::byte> image, std::string_view label);

  /// Parses the parts of a split model, in order. REQUIRES: at least one. The bytes must outlive the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> ParseParts(std::span<const GgufImage> parts);

  /// Absent key: NotFound. Other type or out of range: InvalidArgument. The message names file and key.
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<uint32_t> GetU32(std::string_view key) const;  ///< From any integer width.
  absl::StatusOr<float> GetF32(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  /// Integer or boolean arrays as int64; InvalidArgument for others and for elements beyond int64.
  absl::StatusOr<std::span<const int64_t>> GetInts(std::string_view key) const;
  absl::StatusOr<std::span<const float>> GetFloats(std::string_view key) const;
  absl::StatusOr<std::span<const std::string_view>> GetStrings(std::string_view key) const;

  /// As above, but `fallback` when the key is absent. A present key of another type stays an error.
  absl::StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;
  absl::StatusOr<uint32_t> GetU32Or(std::string_view key, uint32_t fallback) const;
  absl::StatusOr<float> GetF32Or(std::string_view key, float fallback) const;
  absl::StatusOr<bool> GetBoolOr(std::string_view key, bool fallback) const;

  bool Has(std::string_view key) const { return FindValue(key) != nullptr; }

  /// nullptr when absent.
  const GgufValue* FindValue(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;

  /// File order. Of a split model: the first part's; other parts carry nothing but their `split.*` keys.
  const Metadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  ///< File order, part after part.
  uint32_t version() const { return version_; }                        ///< Of the first part.
  uint64_t alignment() const { return alignment_; }      ///< Of the first part: `general.alignment`, power of two.
  uint32_t parts_count() const { return parts_count_; }  ///< 1 = not split.
  const std::string& label() const { return label_; }    ///< Path of the first part, or the label given to Parse.
  uint64_t file_bytes() const { return file_bytes_; }    ///< All parts.
  /// One for each part, in order; none of a file that was parsed from memory.
  const std::vector<MappedFile>& files() const { return maps_; }

 private:
  GgufFile() = default;

  absl::Status AddPart(std::span<const std::byte> image, uint32_t part);
  absl::Status IndexTensors();

  std::string label_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  uint32_t parts_count_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> maps_;
  Metadata metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> metadata_index_, tensor_index_;
};

}  // namespace kvist
