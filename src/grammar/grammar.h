#pragma once

/// @file
/// A compiled grammar: a pushdown automaton over bytes. Each rule is a network of states; a state reads one byte, goes
/// on in one of several others, or calls a rule and returns. Immutable. Threads: any. Non-goals: running it
/// (automaton.h).

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"

namespace kvist::grammar {

struct GrammarLimits {
  uint32_t states_max = 1u << 18;  ///< Of the whole grammar; repetitions are written out.
  uint32_t depth_max = 256;        ///< Nesting of expressions.
};

class Grammar {
 public:
  using StateId = uint32_t;
  static constexpr StateId kReturn = 0;  ///< The end of every rule.

  /// Bytes first..last lead to `target`.
  struct Edge {
    uint8_t first = 0, last = 0;
    StateId target = kReturn;
  };

  struct State {
    enum class Kind : uint8_t { kReturn, kBytes, kSplit, kCall };
    Kind kind = Kind::kReturn;
    bool can_end = false;         ///< Some text leads from here to the rule's end.
    uint32_t begin = 0, end = 0;  ///< kBytes: into edges(). kSplit: into targets().
    StateId entry = kReturn;      ///< kCall: where the rule that is called begins,
    StateId next = kReturn;       ///< and where to go on after it.
  };

  /// Errors: InvalidArgument for a rule that is not defined, that calls itself before it reads anything (its name is
  /// told), a root that no text matches, or a grammar that is too large.
  static absl::StatusOr<Grammar> Compile(const RuleSet& rules, RuleId root, const GrammarLimits& limits = {});

  StateId start() const { return start_; }
  const State& state(StateId id) const { return states_[id]; }
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<StateId>& targets() const { return targets_; }

  /// Bytes that no state tells apart are of one class.
  uint8_t ClassOf(uint8_t byte) const { return classes_[byte]; }
  uint32_t classes_count() const { return classes_count_; }

 private:
  class Builder;

  void FindClasses();

  StateId start_ = kReturn;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<StateId> targets_;
  std::array<uint8_t, 256> classes_{};
  uint32_t classes_count_ = 0;
};

}  // namespace kvist::grammar
