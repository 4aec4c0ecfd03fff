#pragma once

/// @file
/// Small vocabularies of our own for tests and fuzzing, one for each algorithm, a builder for others (also broken
/// ones), an independent slow encoder to compare with, and the body of the fuzzer. Not part of the product.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "modelfile/tokenizer.h"

namespace kvist {

/// What goes into `tokenizer.ggml.*`. Says whatever it is told to. Absent = the key is left out.
struct VocabularySpec {
  std::optional<std::string> model, pre, name;
  std::optional<std::vector<std::string>> tokens;
  std::optional<std::vector<int32_t>> types;
  std::optional<std::vector<float>> scores;
  std::optional<std::vector<std::string>> merges;
  std::optional<uint32_t> bos, eos, eot, eom, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;

  /// Adds an entry to tokens, types and scores (those that are present).
  void Add(std::string token, int32_t type = 1, float score = 0);
  std::string Image() const;  ///< A GGUF file.
  absl::StatusOr<std::unique_ptr<const Tokenizer>> Load() const;
};

/// `llama`: <unk> <s> </s> <|user|> <|end|> (control), all bytes, the printable ASCII letters and a few more as single
/// pieces, and words whose merges have hand-given order; "<tool>" and runs of newlines are user-defined.
VocabularySpec SmallSpm();

/// `gpt2`: the 256 letters, some merges, "<|endoftext|>" and "<|im_end|>" (control) and "<tool>" (user-defined).
VocabularySpec SmallGpt2(std::string pre = "gpt-2");

/// Ids as their pieces, for readable expectations.
std::vector<std::string> Pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids);

/// The merge rule as the papers state it, word by word and without any cleverness: replace the leftmost best pair until
/// none is left. `spec` must be well-formed; text must be one word (gpt2: given in the byte alphabet). Cubic: short
/// texts only.
/// @return pieces; a character that is no piece stays as itself.
std::vector<std::string> SlowMerge(const VocabularySpec& spec, const std::string& word);

/// One run of the fuzzer: `data` chooses between a hostile image, a made-up vocabulary and a small one with any text.
/// Aborts when a promise of tokenizer.h does not hold.
void FuzzTokenizer(std::string_view data);

}  // namespace kvist
