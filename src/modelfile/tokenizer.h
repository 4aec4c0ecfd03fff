#pragma once

/// @file
/// Text to token ids and back, from the vocabulary in a model file. Two algorithms: SentencePiece-style BPE by score
/// with byte fallback (`tokenizer.ggml.model = llama`) and byte-level BPE by merge rank (`gpt2`) after a pre-tokeniser.
/// Non-goals: chat templates, stop strings, Unicode normalisation (text is encoded as it stands).

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "modelfile/gguf.h"

namespace kvist {

struct EncodeOptions {
  bool add_special = true;     ///< Add BOS / EOS as the vocabulary's rules say.
  bool parse_special = false;  ///< Recognise control tokens such as "<|im_start|>" in the text. Never for user text.
  bool continues = false;      ///< The text goes on where other text ends: no space is put before it.
};

/// A vocabulary with its algorithm. Immutable. Threads: any.
class Tokenizer {
 public:
  /// Copies what it needs: `file` may be closed afterwards.
  /// Errors: InvalidArgument (malformed vocabulary, with the key and index), Unimplemented (unknown model or
  /// pre-tokeniser).
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromGguf(const GgufFile& file);
  virtual ~Tokenizer() = default;

  /// Any bytes encode; invalid UTF-8 goes through byte tokens. Linear in the text's length.
  /// Plain text never yields a control token, other than unknown(), unless `parse_special`. Decode(Encode(text)) is
  /// `text`, with two exceptions that the vocabulary forces: the `llama` algorithm reads U+2581 as a space, and what a
  /// vocabulary has no token for becomes its unknown token (`llama`) or U+FFFD (`gpt2`). REQUIRES: text.size() < 1 GiB.
  virtual std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// Raw bytes that a token stands for. Control and unknown tokens give their text when `render_control`, else nothing.
  /// May be part of a UTF-8 character. REQUIRES: id < vocab_size().
  virtual std::string TokenBytes(TokenId id, bool render_control = false) const = 0;

  /// Text of a whole sequence (bytes, unchanged). `render_control` as above. Drops the space that the `llama`
  /// algorithm adds before the first word of the text and before the first word after a control or user-defined token.
  /// REQUIRES: every id < vocab_size().
  virtual std::string Decode(std::span<const TokenId> ids, bool render_control = false) const = 0;

  virtual uint32_t vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  /// What text becomes that the vocabulary cannot spell.
  virtual std::optional<TokenId> unknown() const { return std::nullopt; }
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  /// Encode puts a space before the first word of the text and of what follows a token for which IsBreak.
  virtual bool adds_space_prefix() const = 0;
  /// Control (special) tokens are not shown to users.
  virtual bool IsControl(TokenId id) const = 0;
  /// Control and user-defined tokens: matched as a whole, text starts anew after them.
  virtual bool IsBreak(TokenId id) const = 0;
  /// Ends a generation: EOS, end of turn, end of message.
  virtual bool IsEndOfGeneration(TokenId id) const = 0;
  /// Exact vocabulary entry; of several equal ones the last.
  virtual std::optional<TokenId> Find(std::string_view piece) const = 0;
  /// The stored spelling of an entry (not decoded).
  virtual std::string_view Piece(TokenId id) const = 0;
};

/// Turns a stream of tokens into text that never ends inside a character. One per sequence. Threads: one.
class Detokenizer {
 public:
  /// `tokenizer` must outlive this. `strip_leading_space`: drop the one space the `llama` algorithm adds at the very
  /// start of text (after a control or user-defined token inside the stream it is dropped always, as in Decode).
  explicit Detokenizer(const Tokenizer& tokenizer, bool render_control = false, bool strip_leading_space = false);

  /// Bytes that are complete after `id`; may be empty. Bytes that can never become a character are replaced by U+FFFD.
  /// REQUIRES: id < vocab_size().
  std::string Push(TokenId id) { return Push(id, render_control_); }
  /// The same; for this token `render_control` counts in place of the constructor's.
  std::string Push(TokenId id, bool render_control);

  /// What is left at the end, incomplete characters as U+FFFD. Afterwards it is as new, but strips no more.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool render_control_;
  bool strip_;           ///< The next text token loses one leading space.
  std::string pending_;  ///< Start of a character, at most 3 bytes between calls.
};

}  // namespace kvist
