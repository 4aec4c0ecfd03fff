#pragma once

/// @file
/// The `gpt2` algorithm: byte-level BPE. Every byte is spelled by one printable character, a pre-tokeniser splits the
/// text into words, and the symbols of a word merge in the order of the merge list. Sources: Radford et al., "Language
/// Models are Unsupervised Multitask Learners", 2019 (byte alphabet); Sennrich et al., ACL 2016 (merges). Internal to
/// the tokenizers.

#include <array>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "modelfile/bpe_merge.h"
#include "modelfile/pretokenizer.h"
#include "modelfile/tokenizer_base.h"

namespace kvist {

class BpeTokenizer final : public TokenizerBase {
 public:
  /// Reads `tokenizer.ggml.merges` from `file`. Errors: InvalidArgument with key and index, Unimplemented
  /// (pre-tokeniser).
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(Vocabulary vocabulary, const GgufFile& file);

 private:
  class Run;

  BpeTokenizer(Vocabulary vocabulary, Pretokenizer pretokenizer);
  void EncodeParts(std::string_view text, std::span<const Part> parts, std::vector<TokenId>& out) const override;
  absl::Status LoadMerges(const GgufFile& file);
  void BuildAlphabet();
  /// Symbol of a piece, making one when the vocabulary has none.
  uint32_t Intern(std::string_view piece, absl::flat_hash_map<std::string, uint32_t>& made);

  Pretokenizer pretokenizer_;
  /// Symbols are token ids, then those that merges name but the vocabulary lacks.
  std::array<uint32_t, 256> byte_symbol_{};  ///< kNoToken: the vocabulary cannot spell this byte.
  BpeMergeTable merges_;
  std::vector<uint32_t> merged_;                           ///< What the merge of a rank makes.
  std::vector<std::string> made_bytes_;                    ///< Text of symbol vocab_size() + i.
  absl::flat_hash_map<std::string_view, uint32_t> words_;  ///< Text to token, only when whole words come first.
  std::vector<uint32_t> replacement_;  ///< Symbols of U+FFFD: what a byte without a symbol becomes; may be empty.
};

}  // namespace kvist
