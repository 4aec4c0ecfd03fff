#include "grammar/token_table.h"

#include <algorithm>
#include <utility>

#include "grammar/expression.h"

namespace kvist::grammar {

TokenTable::TokenTable(const Tokenizer& tokenizer) : strips_space_(tokenizer.adds_space_prefix()) {
  const uint32_t size = tokenizer.vocab_size();
  const size_t words = (size_t{size} + 31) / 32;
  ends_.assign(words, 0);
  breaks_.assign(words, 0);
  begin_.push_back(0);
  std::vector<TokenId> plain_ids, other_ids;
  for (uint32_t id = 0; id < size; ++id) {
    const TokenId token{id};
    if (tokenizer.IsBreak(token)) AddToken(breaks_, token);
    if (tokenizer.IsEndOfGeneration(token)) {
      AddToken(ends_, token);
    } else if (tokenizer.IsControl(token)) {
      if (tokenizer.unknown() != token) bytes_ += ControlBytes(token);
    } else if (tokenizer.unknown() != token) {
      // The byte that marks control tokens is in no text, but vocabularies have a token for it.
      const std::string bytes = tokenizer.TokenBytes(token);
      if (bytes.find(static_cast<char>(kControlMark)) == std::string::npos) bytes_ += bytes;
    }
    begin_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  for (uint32_t id = 0; id < size; ++id) {
    const std::string_view bytes = Bytes(TokenId{id});
    if (bytes.empty()) continue;
    longest_ = std::max(longest_, bytes.size());
    const bool plain = std::ranges::all_of(bytes, [](char c) { return IsPlain(static_cast<uint8_t>(c)); });
    (plain ? plain_ids : other_ids).push_back(TokenId{id});
  }
  std::ranges::sort(plain_ids, {}, [this](TokenId id) { return Bytes(id).size(); });
  plain_up_to_.emplace_back(words, 0);
  for (const TokenId id : plain_ids) {
    while (longest_plain() < Bytes(id).size()) plain_up_to_.push_back(plain_up_to_.back());
    AddToken(plain_up_to_.back(), id);
  }
  plain_tree_ = BuildTree(std::move(plain_ids));
  other_tree_ = BuildTree(std::move(other_ids));
}

std::vector<TokenTable::TreeNode> TokenTable::BuildTree(std::vector<TokenId> ids) {
  // In order of bytes, a token's node follows those of its beginning.
  std::ranges::sort(ids, [this](TokenId a, TokenId b) {
    const int order = Bytes(a).compare(Bytes(b));
    return order != 0 ? order < 0 : a.value < b.value;
  });
  std::vector<TreeNode> tree;
  std::vector<uint32_t> path;  // Nodes from the root to the last token.
  std::string_view last;
  for (const TokenId id : ids) {
    const std::string_view bytes = Bytes(id);
    const auto same = static_cast<size_t>(std::ranges::mismatch(last, bytes).in1 - last.begin());
    for (; path.size() > same; path.pop_back()) tree[path.back()].subtree_end = static_cast<uint32_t>(tree.size());
    const auto at = static_cast<uint32_t>(tokens_.size());
    for (size_t depth = same; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(tree.size()));
      tree.push_back({.byte = static_cast<uint8_t>(bytes[depth]),
                      .depth = static_cast<uint16_t>(depth),
                      .tokens_begin = at,
                      .tokens_end = at});
    }
    tokens_.push_back(id);
    tree[path.back()].tokens_end = at + 1;
    last = bytes;
  }
  for (; !path.empty(); path.pop_back()) tree[path.back()].subtree_end = static_cast<uint32_t>(tree.size());
  return tree;
}

}  // namespace kvist::grammar
