#pragma once

/// @file
/// Runs a grammar: a pushdown automaton made deterministic as far as it is used. A state stands for all places where
/// the text so far may be in the grammar; each place is a state of a rule's network and the calls that are still open.
/// States and the steps between them are remembered, so that reading a byte is usually one look-up. Threads: one.
/// Non-goals: tokens (constraint.h). Sources: lazy determinisation as in RE2; sets of stacks as in Willard and Louf,
/// "Efficient Guided Generation for Large Language Models" (2023).

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grammar/grammar.h"

namespace kvist::grammar {

struct AutomatonLimits {
  uint32_t states_max = 16384;  ///< Remembered; then full() asks for a new automaton.
  uint32_t places_max = 512;    ///< Of one state. More are left out: what they would have allowed is not accepted.
  uint32_t depth_max = 512;     ///< Open calls; deeper places are left out too.
};

class Automaton {
 public:
  using StateId = uint32_t;
  static constexpr StateId kDead = 0;   ///< No text goes on from here.
  static constexpr StateId kStart = 1;  ///< Before the first byte.

  /// A state that means the same to every automaton of the grammar.
  struct Portable {
    struct Place {
      Grammar::StateId state = 0;
      std::vector<Grammar::StateId> open;  ///< Where the open calls go on, the last one last.
    };
    std::vector<Place> places;
    bool complete = false;
  };

  /// `grammar` must outlive this.
  explicit Automaton(const Grammar& grammar, const AutomatonLimits& limits = {});

  /// The state after one more byte; kDead when the grammar does not go on so.
  StateId Next(StateId state, uint8_t byte) {
    const uint32_t known = next_[size_t{state} * classes_ + grammar_.ClassOf(byte)];
    return known != kUnknown ? known : Find(state, byte);
  }
  /// The text so far matches the whole grammar.
  bool IsComplete(StateId state) const { return states_[state].complete; }
  /// Nothing may follow.
  bool IsLast(StateId state) const { return states_[state].places.empty(); }
  /// The only byte that may follow; -1 when there are several, none, or the text may end.
  int ForcedByte(StateId state) const;

  /// It is time for a new one: Export from here, Import there.
  bool full() const { return states_.size() >= limits_.states_max; }
  Portable Export(StateId state) const;
  StateId Import(const Portable& portable);

  uint32_t states_count() const { return static_cast<uint32_t>(states_.size()); }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr uint32_t kNoCalls = 0;

  /// A state of kind kBytes, and the stack of open calls.
  struct Place {
    Grammar::StateId state;
    uint32_t stack;
    friend bool operator==(const Place&, const Place&) = default;
    friend auto operator<=>(const Place&, const Place&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Place& p) {
      return H::combine(std::move(h), p.state, p.stack);
    }
  };
  struct State {
    std::vector<Place> places;  ///< Increasing.
    bool complete = false;
  };
  struct Call {
    Grammar::StateId next = 0;
    uint32_t below = kNoCalls;
    uint32_t depth = 0;
  };

  StateId Find(StateId state, uint8_t byte);
  uint32_t Push(uint32_t stack, Grammar::StateId next);
  void Close(Place place);
  StateId Keep();

  const Grammar& grammar_;
  const AutomatonLimits limits_;
  const uint32_t classes_;
  std::vector<State> states_;
  std::vector<uint32_t> next_;  ///< [state][class], kUnknown = not looked at yet.
  std::vector<Call> calls_;     ///< Stacks by their top; 0 = none.
  absl::flat_hash_map<Place, uint32_t> call_ids_;
  absl::flat_hash_map<std::pair<std::vector<Place>, bool>, StateId> state_ids_;
  // Of the state that is being made.
  std::vector<Place> open_, found_;
  absl::flat_hash_map<Place, bool> seen_;
  bool complete_ = false;
};

}  // namespace kvist::grammar
