#pragma once

/// @file
/// What both algorithms share: the vocabulary, what each token reads as, whole entries in text, BOS and EOS. An
/// algorithm fills in how plain text between whole entries is encoded. Internal to the tokenizers.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_specials.h"
#include "modelfile/vocabulary.h"

namespace kvist {

class TokenizerBase : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const final;
  std::string TokenBytes(TokenId id, bool render_control) const final;
  std::string Decode(std::span<const TokenId> ids, bool render_control) const final;

  uint32_t vocab_size() const final { return vocabulary_.size(); }
  std::optional<TokenId> bos() const final { return AsId(vocabulary_.bos()); }
  std::optional<TokenId> eos() const final { return AsId(vocabulary_.eos()); }
  std::optional<TokenId> unknown() const final { return AsId(vocabulary_.unknown()); }
  bool adds_bos() const final { return adds_bos_; }
  bool adds_eos() const final { return adds_eos_; }
  bool adds_space_prefix() const final { return adds_space_prefix_; }
  bool IsControl(TokenId id) const final;
  bool IsBreak(TokenId id) const final;
  bool IsEndOfGeneration(TokenId id) const final;
  std::optional<TokenId> Find(std::string_view piece) const final;
  std::string_view Piece(TokenId id) const final;

 protected:
  /// A stretch of the text: plain, or a whole entry.
  struct Part {
    uint32_t begin, bytes;
    uint32_t special = kNoToken;  ///< The entry; kNoToken = plain.
    bool at_break = true;         ///< Plain text at the start or after a whole entry.
  };

  /// `adds_bos`: when the file does not say.
  TokenizerBase(Vocabulary vocabulary, bool adds_bos);

  /// Must be called once by the algorithm's constructor, before anything else. `reads_as(piece, type)` is the text of a
  /// normal, unused or user-defined entry; it is also what is looked for in texts when the entry is user-defined.
  template <class ReadsAs>
  void SetBytes(const ReadsAs& reads_as) {
    for (uint32_t id = 0; id < vocabulary_.size(); ++id) {
      bytes_begin_.push_back(static_cast<uint32_t>(bytes_.size()));
      AppendBytes(id, reads_as(vocabulary_.Piece(id), vocabulary_.Type(id)));
    }
    bytes_begin_.push_back(static_cast<uint32_t>(bytes_.size()));
    BuildMatchers();
  }

  /// Appends the ids of all parts, in order.
  virtual void EncodeParts(std::string_view text, std::span<const Part> parts, std::vector<TokenId>& out) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Text of an entry that plain text may become (and of user-defined, control and byte tokens).
  std::string_view Bytes(uint32_t id) const {
    return std::string_view(bytes_.data() + bytes_begin_[id], bytes_begin_[id + 1] - bytes_begin_[id]);
  }

 private:
  static std::optional<TokenId> AsId(std::optional<uint32_t> id) {
    return id ? std::optional<TokenId>(TokenId{*id}) : std::nullopt;
  }
  void AppendBytes(uint32_t id, std::string_view text);
  void BuildMatchers();
  std::vector<Part> SplitParts(std::string_view text, bool parse_special) const;
  /// Empty for control and unknown tokens unless `render_control`.
  std::string_view Shown(uint32_t id, bool render_control) const;

  Vocabulary vocabulary_;
  bool adds_bos_, adds_eos_, adds_space_prefix_;
  std::vector<char> bytes_;            ///< What every entry reads as, one after another.
  std::vector<uint32_t> bytes_begin_;  ///< vocab_size() + 1 offsets into bytes_.
  SpecialMatcher user_defined_;        ///< Matched in every text.
  SpecialMatcher all_specials_;        ///< Those, control and unknown tokens.
};

}  // namespace kvist
