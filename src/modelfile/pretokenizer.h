#pragma once

/// @file
/// Splits text into words before byte-level BPE: one or several regular expressions, each applied to the pieces that
/// the one before left (matches and the gaps between them alike, each piece on its own). The expressions are published
/// with the models, in their tokenizer.json. What is a letter or a digit is PCRE2's Unicode (14 in Debian 12): around
/// characters that later versions added, words may begin elsewhere than in the original. Bytes that are not UTF-8 form
/// pieces of their own. Linear in the text's length.

#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace kvist {

/// Immutable. Threads: any.
class Pretokenizer {
 public:
  /// `name` as in `tokenizer.ggml.pre`. Errors: Unimplemented for an unknown name.
  static absl::StatusOr<Pretokenizer> ForName(std::string_view name);

  /// A word that is an entry as a whole is that entry, whatever the merges say.
  bool whole_words_first() const { return whole_words_first_; }
  /// Whether BOS is added when the file does not say.
  bool adds_bos() const { return adds_bos_; }

 private:
  friend class PretokenizerRun;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Stage {
    std::unique_ptr<pcre2_real_code_8, FreeCode> code;
    bool jit;
  };

  std::vector<Stage> stages_;
  bool whole_words_first_ = false;
  bool adds_bos_ = false;
};

/// The buffers of one call. Threads: one.
class PretokenizerRun {
 public:
  explicit PretokenizerRun(const Pretokenizer& pretokenizer);

  using Emit = absl::FunctionRef<void(std::string_view word)>;
  /// Calls `emit` with every piece of `text`, in order; together they are `text`.
  void Split(std::string_view text, Emit emit);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };
  void SplitStage(size_t stage, std::string_view text, Emit emit);

  const Pretokenizer& pretokenizer_;
  std::unique_ptr<pcre2_real_match_data_8, Free> match_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
};

}  // namespace kvist
