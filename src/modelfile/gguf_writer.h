#pragma once

/// @file
/// Writes GGUF model files (version 3, or 2), whole or split into parts. Tensors are streamed: their bytes come from a
/// callback while the file is being written, so a model of any size needs little memory. Non-goals: quantising,
/// checking that the metadata describe a model. Threads: one.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist {

struct GgufWriterOptions {
  uint32_t version = 3;     ///< 2 or 3; the layouts are the same.
  uint64_t alignment = 32;  ///< Power of two, 8 to 2^31. Written as `general.alignment` unless 32.
  uint64_t part_bytes_max =
      0;  ///< Tensor bytes of one part, padding included; 0 = one file. A larger tensor gets a part of its own.
};

/// Takes the next bytes of a tensor. An error means that the output failed: pass it on.
using GgufSink = std::function<absl::Status(std::span<const std::byte>)>;

/// Gives the bytes of one tensor, in order, in calls of any size: exactly as many as its dimensions imply.
using GgufTensorSource = std::function<absl::Status(const GgufSink&)>;

/// Collects metadata and tensors, then writes them. Wrong use (duplicate names, dimensions that do not fit the type) is
/// remembered and returned by the Write call, so that callers need one check.
class GgufWriter {
 public:
  explicit GgufWriter(const GgufWriterOptions& options = {});

  void SetBool(std::string_view key, bool value);
  void SetU32(std::string_view key, uint32_t value);
  void SetI32(std::string_view key, int32_t value);
  void SetU64(std::string_view key, uint64_t value);
  void SetF32(std::string_view key, float value);
  void SetString(std::string_view key, std::string_view value);
  void SetStrings(std::string_view key, std::span<const std::string> values);
  void SetF32s(std::string_view key, std::span<const float> values);
  void SetI32s(std::string_view key, std::span<const int32_t> values);
  void SetU32s(std::string_view key, std::span<const uint32_t> values);
  /// Any value in its stored type, e.g. copied from an open file; f64 arrays are written from f32. `general.alignment`
  /// and `split.*` are passed over: they follow from the options.
  void SetValue(std::string_view key, const GgufValue& value);

  /// @param dims  1..4 entries, dims[0] is the contiguous row.
  void AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims, GgufTensorSource source);
  /// `bytes` must live until the Write call.
  void AddTensor(std::string_view name, DType dtype, std::span<const uint64_t> dims, std::span<const std::byte> bytes);

  /// Writes `path`, or, when the model takes more than one part, `path` less its ".gguf" plus `-00001-of-0000N.gguf`
  /// and so on. Files appear under their names only when all are complete; until then they end in ".part".
  /// @return the paths written, in part order.
  absl::StatusOr<std::vector<std::string>> WriteFiles(const std::string& path) const;

  /// The images of all parts, in memory.
  absl::StatusOr<std::vector<std::vector<std::byte>>> WriteImages() const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> dims;
    uint64_t bytes;
    GgufTensorSource source;
  };
  /// Tensors [begin, end) that lie in one part.
  struct Part {
    size_t begin, end;
  };

  uint64_t Padded(uint64_t bytes) const;
  absl::StatusOr<std::vector<Part>> PlanParts() const;
  absl::Status WritePart(std::span<const Part> parts, size_t index, const GgufSink& sink) const;
  void Fail(absl::Status status);

  GgufWriterOptions options_;
  absl::Status status_;   ///< First misuse.
  std::string metadata_;  ///< Encoded entries.
  uint64_t metadata_count_ = 0;
  std::vector<Tensor> tensors_;
  absl::flat_hash_set<std::string> keys_, names_;
};

}  // namespace kvist
