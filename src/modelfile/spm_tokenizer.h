#pragma once

/// @file
/// The `llama` algorithm: SentencePiece's BPE. Spaces are spelled U+2581, one is put before the text, characters merge
/// by the scores of the entries they form, and a character that is no entry becomes byte tokens. Source: Kudo,
/// Richardson, "SentencePiece", EMNLP 2018. Internal to the tokenizers.

#include <memory>

#include "absl/status/statusor.h"
#include "modelfile/tokenizer_base.h"

namespace kvist {

class SpmTokenizer final : public TokenizerBase {
 public:
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(Vocabulary vocabulary);

 private:
  class Run;

  explicit SpmTokenizer(Vocabulary vocabulary);
  void EncodeParts(std::string_view text, std::span<const Part> parts, std::vector<TokenId>& out) const override;
  void BuildPriorities();
  void BuildBridges();
  /// Whether some entry may hold the two characters side by side (false answers are exact). Where none does, no merge
  /// ever crosses, so the text can be cut there and its parts encoded one by one.
  bool MayBridge(uint32_t left_code, uint32_t right_code) const;

  std::vector<uint32_t> priority_;  ///< By id: place of its score among all scores, best first, equal ones alike.
  std::vector<uint64_t> bridges_;   ///< Bit set of hashed character pairs; a power of two of words.
  size_t piece_bytes_max_ = 0;      ///< Of entries that text may become.
};

}  // namespace kvist
