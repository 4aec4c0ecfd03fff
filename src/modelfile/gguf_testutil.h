#pragma once

/// @file
/// Hand-made GGUF images for tests and fuzz seeds: a builder that checks nothing, the list of well-formed and hostile
/// cases that tests/fuzz/gguf/ holds as files, and a walk over everything a reader gives out.

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist {

/// Appends raw fields. Says whatever it is told to: lies are the purpose.
class RawGguf {
 public:
  RawGguf& Header(uint32_t version, uint64_t tensors_count, uint64_t metadata_count);
  template <class T>
  RawGguf& Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  RawGguf& Bytes(std::string_view bytes);
  RawGguf& String(std::string_view text);                               ///< Length and bytes.
  RawGguf& Key(std::string_view key, GgufType type);                    ///< The value must follow.
  RawGguf& Array(std::string_view key, GgufType type, uint64_t count);  ///< The elements must follow.
  RawGguf& U32(std::string_view key, uint32_t value);
  RawGguf& Text(std::string_view key, std::string_view value);
  RawGguf& Tensor(std::string_view name, std::span<const uint64_t> dims, uint32_t ggml_type, uint64_t offset);
  RawGguf& PadTo(size_t alignment);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// One image and what must come of it.
struct GgufCase {
  std::string name;  ///< "ok_..." or "bad_...", also the file's name in the corpus, less ".gguf".
  std::string bytes;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message{};  ///< Part of the error.
};

/// Every class of well-formed and hostile file, each below 4 KB.
std::vector<GgufCase> GgufCases();

/// Opens an image the way cases and fuzz inputs are written: the parts of a split model follow one another, each
/// starting at a multiple of 32 with the magic and a version. `bytes` must outlive the result.
absl::StatusOr<std::unique_ptr<GgufFile>> ParseCase(std::string_view bytes, std::string_view label);

/// Reads every value and tensor byte of `file`, tries every accessor on every key, inspects it, and aborts if a promise
/// of gguf.h does not hold.
void TouchEverything(const GgufFile& file);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace kvist
