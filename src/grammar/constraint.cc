#include "grammar/constraint.h"

#include <utility>

#include "base/check.h"

namespace kvist::grammar {
namespace {

constexpr size_t kMasksMax = 256;

}  // namespace

Matcher::Matcher(std::shared_ptr<const Constraint> constraint, bool strip_space)
    : constraint_(std::move(constraint)), strip_(strip_space && constraint_->table().strips_space()) {
  if (constraint_->memory_ == nullptr)
    constraint_->memory_ = std::make_shared<Constraint::Memory>(constraint_->grammar());
  memory_ = constraint_->memory_;
  MakeRoom();
}

/// Moves to a new automaton when this one remembers too much; others follow when they next go on.
void Matcher::MakeRoom() {
  if (!memory_->automaton.full()) return;
  if (constraint_->memory_ == memory_)
    constraint_->memory_ = std::make_shared<Constraint::Memory>(constraint_->grammar());
  const Automaton::Portable portable = memory_->automaton.Export(state_);
  memory_ = constraint_->memory_;
  state_ = memory_->automaton.Import(portable);
}

Automaton::StateId Matcher::Read(Automaton::StateId state, std::string_view bytes) const {
  for (const char byte : bytes) {
    state = memory_->automaton.Next(state, static_cast<uint8_t>(byte));
    if (state == Automaton::kDead) break;
  }
  return state;
}

/// What the token adds here.
std::string_view Matcher::Shown(TokenId token) const {
  std::string_view bytes = table().Bytes(token);
  if (strip_ && !table().IsBreak(token) && bytes.starts_with(' ')) bytes.remove_prefix(1);
  return bytes;
}

bool Matcher::Accept(TokenId token) {
  if (token.value >= table().vocab_size()) return false;
  if (table().EndsGeneration(token)) return IsComplete();
  const std::string_view bytes = Shown(token);
  if (bytes.empty()) return false;
  const Automaton::StateId next = Read(state_, bytes);
  if (next == Automaton::kDead) return false;
  state_ = next;
  strip_ = table().strips_space() && table().IsBreak(token);
  MakeRoom();
  return true;
}

std::span<const uint32_t> Matcher::Mask() {
  MakeRoom();
  const uint64_t key = uint64_t{state_} << 1 | (strip_ ? 1 : 0);
  if (const auto it = memory_->masks.find(key); it != memory_->masks.end()) return it->second;
  if (memory_->masks.size() >= kMasksMax) memory_->masks.clear();
  return memory_->masks.insert_or_assign(key, MakeMask()).first->second;
}

/// How many plain characters may come, where it does not matter which: at most the length of the longest plain token.
/// nullopt = it does matter.
std::optional<size_t> Matcher::PlainRun() const {
  Automaton::StateId state = state_;
  for (size_t run = 0; run < table().longest_plain(); ++run) {
    const Automaton::StateId next = memory_->automaton.Next(state, ' ');
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const auto plain = static_cast<uint8_t>(byte);
      if (TokenTable::IsPlain(plain) && memory_->automaton.Next(state, plain) != next) return std::nullopt;
    }
    if (next == state) break;
    if (next == Automaton::kDead) return run;
    state = next;
  }
  return table().longest_plain();
}

TokenBits Matcher::MakeMask() const {
  TokenBits bits(table().words(), 0);
  if (IsComplete()) bits = table().ends();
  if (const std::optional<size_t> run = strip_ ? std::nullopt : PlainRun()) {
    const TokenBits& plain = table().PlainUpTo(*run);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= plain[i];
  } else {
    Walk(table().plain_tree(), bits);
  }
  Walk(table().other_tree(), bits);
  return bits;
}

void Matcher::Walk(std::span<const TokenTable::TreeNode> tree, TokenBits& bits) const {
  std::vector<Automaton::StateId> path(table().longest() + 1);  // path[d] = state before the byte at depth d.
  path[0] = state_;
  for (uint32_t at = 0; at < tree.size();) {
    const TokenTable::TreeNode& node = tree[at];
    const Automaton::StateId before = path[node.depth];
    // A stripped space adds nothing, so that a token that is nothing else is none.
    const bool stripped = strip_ && node.depth == 0 && node.byte == ' ';
    const Automaton::StateId next = stripped ? before : memory_->automaton.Next(before, node.byte);
    if (next == Automaton::kDead) {
      at = node.subtree_end;
      continue;
    }
    for (uint32_t i = node.tokens_begin; !stripped && i < node.tokens_end; ++i) AddToken(bits, table().tokens()[i]);
    path[size_t{node.depth} + 1] = next;
    ++at;
  }
}

std::string Matcher::ForcedBytes(size_t max) const {
  std::string forced;
  for (Automaton::StateId state = state_; forced.size() < max;) {
    const int byte = memory_->automaton.ForcedByte(state);
    if (byte < 0) break;
    state = memory_->automaton.Next(state, static_cast<uint8_t>(byte));
    if (state == Automaton::kDead) break;  // Beyond the automaton's limits.
    forced += static_cast<char>(byte);
  }
  return forced;
}

std::string Matcher::BytesAfter(std::string_view ahead, size_t max) const {
  const Automaton::StateId state = Read(state_, ahead);
  KVIST_CHECK(state != Automaton::kDead);
  std::string bytes;
  for (uint32_t byte = 0; byte < 256 && bytes.size() < max; ++byte) {
    if (memory_->automaton.Next(state, static_cast<uint8_t>(byte)) != Automaton::kDead) {
      bytes += static_cast<char>(byte);
    }
  }
  return bytes;
}

}  // namespace kvist::grammar
