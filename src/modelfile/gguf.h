#pragma once

/// @file
/// Reads GGUF model files (versions 2 and 3, little endian, single or split): typed metadata and tensors whose
/// bytes stay in the memory map. Trusts nothing: every count, length, offset and alignment is checked against the
/// file before it is used, and an error names the file and the byte offset or key. Non-goals: what the metadata
/// mean (model/, tokenizer), running anything.
/// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "platform/mapped_file.h"
#include "tensor/dtype.h"

namespace kvist {

/// One metadata value. Integers of every width are widened to int64/uint64, floats to double; arrays are
/// homogeneous and never nest. Strings view the map and need not be valid UTF-8.
struct GgufValue {
  using Strings = std::vector<std::string_view>;
  using Ints = std::vector<int64_t>;
  using Floats = std::vector<float>;
  using Bools = std::vector<bool>;
  std::variant<bool, int64_t, uint64_t, double, std::string_view, Bools, Ints, Floats, Strings> value;
};

/// A stored tensor. Dimensions are GGUF's order: dims[0] is the contiguous row length.
struct GgufTensor {
  std::string_view name;
  DType dtype;
  std::vector<uint64_t> dims;       ///< 1..4 entries, each > 0.
  std::span<const std::byte> bytes;  ///< In the map; exactly the size that dtype and dims imply.

  uint64_t Elements() const;
};

/// An open model. Immutable after Open. Threads: any. Views stay valid while the GgufFile lives.
class GgufFile {
 public:
  /// Opens `path`; for a split file (`*-00001-of-0000N.gguf`) opens every part beside it.
  /// Errors: NotFound, InvalidArgument (malformed, with place), Unimplemented (tensor type not supported).
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  /// Parses one in-memory image, for tests and fuzzing. `image` must outlive the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::span<const std::byte> image, std::string_view label);

  /// Absent key: NotFound. Other type or out of range: InvalidArgument. The message names the key.
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<uint32_t> GetU32(std::string_view key) const;
  absl::StatusOr<float> GetF32(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  /// Integer or boolean arrays as int64; InvalidArgument for others.
  absl::StatusOr<std::span<const int64_t>> GetInts(std::string_view key) const;
  absl::StatusOr<std::span<const float>> GetFloats(std::string_view key) const;
  absl::StatusOr<std::span<const std::string_view>> GetStrings(std::string_view key) const;
  bool Has(std::string_view key) const;

  /// nullptr when absent.
  const GgufTensor* FindTensor(std::string_view name) const;

  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }  ///< File order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }                                ///< File order.
  uint32_t version() const { return version_; }
  const std::string& label() const { return label_; }  ///< Path or the label given to Parse.
  uint64_t file_bytes() const { return file_bytes_; }  ///< All parts.

 private:
  GgufFile() = default;

  std::string label_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> maps_;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> metadata_index_, tensor_index_;
};

}  // namespace kvist
