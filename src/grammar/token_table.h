#pragma once

/// @file
/// A vocabulary as a grammar sees it: which bytes each token adds to the text, as a tree of bytes that is walked once
/// for a whole mask. Immutable. Threads: any. Non-goals: what is allowed where (constraint.h).

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "modelfile/tokenizer.h"

namespace kvist::grammar {

/// Of tokens, one bit each; the words of a mask cover the whole vocabulary.
using TokenBits = std::vector<uint32_t>;
inline bool HasToken(std::span<const uint32_t> bits, TokenId token) {
  return (bits[token.value / 32] >> (token.value % 32) & 1) != 0;
}
inline void AddToken(TokenBits& bits, TokenId token) {
  bits[token.value / 32] |= 1u << (token.value % 32);
}

class TokenTable {
 public:
  /// Copies what it needs. Text tokens stand for their bytes; control tokens for ControlBytes, so that only a grammar
  /// that names one allows it; tokens that end a generation, unknown ones and empty ones for nothing.
  explicit TokenTable(const Tokenizer& tokenizer);

  /// One byte of one or more tokens, in depth-first order.
  struct TreeNode {
    uint8_t byte = 0;
    uint16_t depth = 0;                         ///< 0 = first byte.
    uint32_t tokens_begin = 0, tokens_end = 0;  ///< Into tokens(): those that end with this byte.
    uint32_t subtree_end = 0;                   ///< Index of the first node that is not below this one.
  };

  uint32_t vocab_size() const { return static_cast<uint32_t>(begin_.size() - 1); }
  uint32_t words() const { return (vocab_size() + 31) / 32; }
  /// What a token adds to the text; empty = it never may. REQUIRES: token < vocab_size().
  std::string_view Bytes(TokenId token) const {
    return std::string_view(bytes_).substr(begin_[token.value], begin_[token.value + 1] - begin_[token.value]);
  }
  size_t longest() const { return longest_; }  ///< Bytes of the longest token.
  bool EndsGeneration(TokenId token) const { return HasToken(ends_, token); }
  bool IsBreak(TokenId token) const { return HasToken(breaks_, token); }
  const TokenBits& ends() const { return ends_; }
  /// After a break, and at the start where the request says so, a leading space is not part of the text.
  bool strips_space() const { return strips_space_; }

  /// Plain tokens, of printable ASCII but the quotation mark and the backslash, with at most so many bytes. Inside a
  /// string of JSON they all are allowed, as long as they fit, and need no walk.
  const TokenBits& PlainUpTo(size_t bytes) const { return plain_up_to_[std::min(bytes, longest_plain())]; }
  size_t longest_plain() const { return plain_up_to_.size() - 1; }
  static bool IsPlain(uint8_t byte) { return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\'; }
  /// Trees of the plain tokens, and of the others.
  std::span<const TreeNode> plain_tree() const { return plain_tree_; }
  std::span<const TreeNode> other_tree() const { return other_tree_; }
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  std::vector<TreeNode> BuildTree(std::vector<TokenId> ids);

  std::string bytes_;
  std::vector<uint32_t> begin_;  ///< [vocab_size + 1] into bytes_.
  TokenBits ends_, breaks_;
  std::vector<TokenBits> plain_up_to_;  ///< By bytes.
  bool strips_space_ = false;
  size_t longest_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<TreeNode> plain_tree_, other_tree_;
};

}  // namespace kvist::grammar
