#pragma once

/// @file
/// A grammar over the tokens of a vocabulary: which tokens may come next, and which text must. A Constraint is shared
/// by all requests with the same grammar, and so are the masks that it has made; each request has a Matcher. Threads:
/// any may hold and drop them, and make a Constraint; matchers of one constraint work on one thread. Non-goals:
/// sampling, where the mask is applied.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/token_table.h"

namespace kvist::grammar {

class Constraint {
 public:
  Constraint(Grammar grammar, std::shared_ptr<const TokenTable> table)
      : grammar_(std::move(grammar)), table_(std::move(table)) {}

  const Grammar& grammar() const { return grammar_; }
  const TokenTable& table() const { return *table_; }

 private:
  friend class Matcher;

  /// What is known about the grammar's states; thrown away when there is too much of it.
  struct Memory {
    explicit Memory(const Grammar& grammar) : automaton(grammar) {}
    Automaton automaton;
    absl::flat_hash_map<uint64_t, TokenBits> masks;  ///< By state, and whether a leading space is stripped.
  };

  const Grammar grammar_;
  const std::shared_ptr<const TokenTable> table_;
  mutable std::shared_ptr<Memory> memory_;  ///< Of new matchers; matchers' thread only.
};

/// Where one text is in its grammar. Copies are independent.
class Matcher {
 public:
  /// @param strip_space  the text's first space is not shown (only where the vocabulary adds one)
  explicit Matcher(std::shared_ptr<const Constraint> constraint, bool strip_space = false);

  /// Goes on by one token. @return false when the grammar does not allow it here: nothing has changed then. A token
  /// that ends a generation is allowed where the text is complete, and changes nothing.
  bool Accept(TokenId token);

  /// The tokens that may come next: [table().words()], good until the next call of any matcher of this constraint.
  std::span<const uint32_t> Mask();

  /// The text matches the whole grammar.
  bool IsComplete() const { return memory_->automaton.IsComplete(state_); }
  /// It is complete, and nothing may follow.
  bool IsDone() const { return IsComplete() && memory_->automaton.IsLast(state_); }

  /// The bytes that must follow, up to where there is a choice or the text may end; at most `max`.
  std::string ForcedBytes(size_t max) const;
  /// Bytes, each of which may follow `ahead`; at most `max` of them, in order. REQUIRES: `ahead` may follow.
  std::string BytesAfter(std::string_view ahead, size_t max) const;

  /// The next token's leading space would not be part of the text.
  bool strips_space() const { return strip_; }
  const TokenTable& table() const { return constraint_->table(); }

 private:
  void MakeRoom();
  Automaton::StateId Read(Automaton::StateId state, std::string_view bytes) const;
  std::string_view Shown(TokenId token) const;
  void Walk(std::span<const TokenTable::TreeNode> tree, TokenBits& bits) const;
  std::optional<size_t> PlainRun() const;
  TokenBits MakeMask() const;

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<Constraint::Memory> memory_;
  Automaton::StateId state_ = Automaton::kStart;
  bool strip_ = false;
};

}  // namespace kvist::grammar
