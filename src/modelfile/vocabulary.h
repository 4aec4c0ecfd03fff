#pragma once

/// @file
/// The entries of a model file's vocabulary (`tokenizer.ggml.*`), checked: sizes agree, ids are in range, types are
/// known, byte tokens are bytes, scores are numbers. Says nothing about how text is split: that is the tokenizers'
/// part. Immutable once loaded. Threads: any. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist {

inline constexpr uint32_t kNoToken = UINT32_MAX;
inline constexpr size_t kPieceBytesMax = 64 << 10;  ///< The longest known entry of a public vocabulary has under 1,100.

/// Values of `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

class Vocabulary {
 public:
  /// Copies out of `file`. Errors: InvalidArgument with key and index; Unimplemented for a model other than llama and
  /// gpt2.
  static absl::StatusOr<Vocabulary> FromGguf(const GgufFile& file);

  uint32_t size() const { return static_cast<uint32_t>(types_.size()); }
  bool is_gpt2() const { return is_gpt2_; }
  const std::string& pre() const { return pre_; }  ///< Name of the pre-tokeniser; "default" when the file has none.

  /// REQUIRES: id < size(), here and below.
  std::string_view Piece(uint32_t id) const {
    return std::string_view(arena_.data() + begin_[id], begin_[id + 1] - begin_[id]);
  }
  TokenType Type(uint32_t id) const { return types_[id]; }
  float Score(uint32_t id) const { return scores_.empty() ? 0.0f : scores_[id]; }
  bool IsEndOfGeneration(uint32_t id) const { return end_of_generation_[id]; }
  /// Phi-3's markers swallow the white space after them when they are parsed out of a text.
  bool StripsRight(uint32_t id) const { return !strips_right_.empty() && strips_right_[id]; }

  /// Entry that plain text may become (normal or unused); kNoToken when there is none. The last of equal ones.
  uint32_t FindText(std::string_view piece) const;
  /// Any entry. The last of equal ones.
  uint32_t FindAny(std::string_view piece) const;
  /// Token of type byte; kNoToken when there is none.
  uint32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

  std::optional<uint32_t> bos() const { return bos_; }
  std::optional<uint32_t> eos() const { return eos_; }
  std::optional<uint32_t> unknown() const { return unknown_; }
  /// What the file says; absent = the algorithm's default.
  std::optional<bool> add_bos() const { return add_bos_; }
  std::optional<bool> add_eos() const { return add_eos_; }
  std::optional<bool> add_space_prefix() const { return add_space_prefix_; }

 private:
  absl::Status LoadPieces(const GgufFile& file);
  absl::Status LoadTypes(const GgufFile& file);
  absl::Status LoadScores(const GgufFile& file);
  absl::Status LoadBytes();
  absl::Status LoadSpecialIds(const GgufFile& file);
  void BuildIndex();

  bool is_gpt2_ = false;
  std::string pre_;
  std::vector<char> arena_;       ///< All pieces, one after another.
  std::vector<uint32_t> begin_;   ///< size() + 1 offsets into arena_.
  std::vector<TokenType> types_;  ///< By id, like the next three.
  std::vector<float> scores_;     ///< Empty for gpt2.
  std::vector<bool> end_of_generation_;
  std::vector<bool> strips_right_;  ///< Empty when none does.
  std::array<uint32_t, 256> byte_tokens_{};
  absl::flat_hash_map<std::string_view, uint32_t> text_index_, other_index_;  ///< Keys view arena_.
  std::optional<uint32_t> bos_, eos_, unknown_;
  std::optional<bool> add_bos_, add_eos_, add_space_prefix_;
};

}  // namespace kvist
