#include "grammar/grammar.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "grammar/utf8_ranges.h"

namespace kvist::grammar {

/// Builds the networks from their ends to their beginnings, so that every state knows where it leads.
class Grammar::Builder {
 public:
  Builder(Grammar& grammar, const RuleSet& rules, const GrammarLimits& limits)
      : grammar_(grammar), rules_(rules), limits_(limits) {
    grammar_.states_.push_back({.kind = State::Kind::kReturn, .can_end = true});
  }

  absl::Status Build(RuleId root) {
    const std::vector<Node>& bodies = rules_.bodies();
    for (RuleId rule = 0; rule < bodies.size(); ++rule) {
      if (bodies[rule] == nullptr)
        return absl::InvalidArgumentError(Cat("rule '", rules_.name(rule), "' is not defined"));
      // The rule's entry is known before its body is, so that bodies can call it.
      entries_.push_back(AddState({.kind = State::Kind::kSplit}));
    }
    for (RuleId rule = 0; rule < bodies.size(); ++rule) {
      KVIST_ASSIGN_OR_RETURN(const StateId body, Add(*bodies[rule], kReturn, 0));
      SetSplit(entries_[rule], {body});
    }
    FindWhatCanEnd();
    grammar_.start_ = entries_.at(root);
    KVIST_RETURN_IF_ERROR(CheckLeftRecursion());
    if (grammar_.states_[grammar_.start_].can_end) return absl::OkStatus();
    return absl::InvalidArgumentError("no text matches the grammar: it has no end that can be reached");
  }

 private:
  StateId AddState(State state) {
    grammar_.states_.push_back(state);
    return static_cast<StateId>(grammar_.states_.size() - 1);
  }

  void SetSplit(StateId split, const std::vector<StateId>& targets) {
    State& state = grammar_.states_[split];
    state.begin = static_cast<uint32_t>(grammar_.targets_.size());
    grammar_.targets_.insert(grammar_.targets_.end(), targets.begin(), targets.end());
    state.end = static_cast<uint32_t>(grammar_.targets_.size());
  }

  StateId AddSplit(const std::vector<StateId>& targets) {
    const StateId split = AddState({.kind = State::Kind::kSplit});
    SetSplit(split, targets);
    return split;
  }

  StateId AddBytes(const std::vector<Edge>& edges) {
    State state{.kind = State::Kind::kBytes, .begin = static_cast<uint32_t>(grammar_.edges_.size())};
    grammar_.edges_.insert(grammar_.edges_.end(), edges.begin(), edges.end());
    state.end = static_cast<uint32_t>(grammar_.edges_.size());
    return AddState(state);
  }

  absl::Status CheckSize() {
    ++expressions_;  // Repetitions of nothing add no states.
    if (grammar_.states_.size() + grammar_.edges_.size() + expressions_ / 4 <= limits_.states_max)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        Cat("the grammar is too large: more than ", limits_.states_max, " states (repetitions count in full)"));
  }

  /// @return the state from which `e` and then `next` are read.
  absl::StatusOr<StateId> Add(const Expression& e, StateId next, uint32_t depth) {
    if (depth > limits_.depth_max) {
      return absl::InvalidArgumentError(Cat("the grammar is nested more than ", limits_.depth_max, " deep"));
    }
    KVIST_RETURN_IF_ERROR(CheckSize());
    switch (e.kind) {
      case Expression::Kind::kLiteral:
        for (size_t i = e.literal.size(); i-- > 0;) {
          const auto byte = static_cast<uint8_t>(e.literal[i]);
          next = AddBytes({{byte, byte, next}});
        }
        return next;
      case Expression::Kind::kChars:
        return AddChars(e.ranges, next);
      case Expression::Kind::kSequence:
        for (size_t i = e.parts.size(); i-- > 0;) {
          KVIST_ASSIGN_OR_RETURN(next, Add(*e.parts[i], next, depth + 1));
        }
        return next;
      case Expression::Kind::kChoice: {
        std::vector<StateId> targets;
        for (const Node& part : e.parts) {
          KVIST_ASSIGN_OR_RETURN(const StateId target, Add(*part, next, depth + 1));
          targets.push_back(target);
        }
        return AddSplit(targets);
      }
      case Expression::Kind::kRepeat:
        return AddRepeat(e, next, depth);
      case Expression::Kind::kRule:
        KVIST_CHECK(e.rule < entries_.size());
        return AddState({.kind = State::Kind::kCall, .entry = entries_[e.rule], .next = next});
    }
    return next;
  }

  absl::StatusOr<StateId> AddRepeat(const Expression& e, StateId next, uint32_t depth) {
    KVIST_CHECK(e.min <= e.max);
    const Expression& what = *e.parts[0];
    StateId at = next;
    uint32_t once = e.min;  // Copies that are not optional.
    if (e.max == kUnbounded) {
      at = AddState({.kind = State::Kind::kSplit});
      KVIST_ASSIGN_OR_RETURN(const StateId body, Add(what, at, depth + 1));
      SetSplit(at, {body, next});
      if (once > 0) {
        at = body;
        --once;
      }
    } else {
      for (uint32_t i = e.min; i < e.max; ++i) {
        KVIST_ASSIGN_OR_RETURN(const StateId body, Add(what, at, depth + 1));
        at = AddSplit({body, next});
      }
    }
    for (; once > 0; --once) {
      KVIST_ASSIGN_OR_RETURN(at, Add(what, at, depth + 1));
    }
    return at;
  }

  /// Characters as their bytes: the last bytes first, and equal tails once.
  StateId AddChars(const std::vector<CharRange>& ranges, StateId next) {
    std::map<std::vector<ByteRange>, StateId> tails;  // By the bytes that are still to be read.
    std::vector<Edge> first;
    for (const CharRange& range : ranges) {
      for (const std::vector<ByteRange>& bytes : Utf8Ranges(range)) {
        StateId at = next;
        for (size_t i = bytes.size(); i-- > 1;) {
          const std::vector<ByteRange> tail(bytes.begin() + static_cast<ptrdiff_t>(i), bytes.end());
          const auto [it, inserted] = tails.try_emplace(tail, 0);
          if (inserted) it->second = AddBytes({{bytes[i].first, bytes[i].last, at}});
          at = it->second;
        }
        first.push_back({bytes[0].first, bytes[0].last, at});
      }
    }
    return AddBytes(first);
  }

  /// A rule can end when its entry can; all states at once, until nothing changes, along edges turned round.
  void FindWhatCanEnd() {
    std::vector<State>& states = grammar_.states_;
    std::vector<std::vector<StateId>> before(states.size());
    for (StateId id = 0; id < states.size(); ++id) {
      const State& s = states[id];
      if (s.kind == State::Kind::kBytes) {
        for (uint32_t i = s.begin; i < s.end; ++i) before[grammar_.edges_[i].target].push_back(id);
      } else if (s.kind == State::Kind::kSplit) {
        for (uint32_t i = s.begin; i < s.end; ++i) before[grammar_.targets_[i]].push_back(id);
      } else if (s.kind == State::Kind::kCall) {
        before[s.entry].push_back(id);
        before[s.next].push_back(id);
      }
    }
    std::vector<StateId> found = {kReturn};
    while (!found.empty()) {
      const StateId at = found.back();
      found.pop_back();
      for (const StateId id : before[at]) {
        State& s = states[id];
        if (s.can_end) continue;
        if (s.kind == State::Kind::kCall && !(states[s.entry].can_end && states[s.next].can_end)) continue;
        s.can_end = true;
        found.push_back(id);
      }
    }
  }

  /// Rules that match the empty text, by their entries.
  std::vector<bool> FindEmptyRules() const {
    std::vector<bool> empty(entries_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (RuleId rule = 0; rule < entries_.size(); ++rule) {
        if (empty[rule] || !Reach(rule, empty, nullptr)) continue;
        empty[rule] = changed = true;
      }
    }
    return empty;
  }

  /// Follows a rule as far as it goes without reading. @param called  gets the rules that are called there.
  /// @return whether its end is reached
  bool Reach(RuleId rule, const std::vector<bool>& empty, std::vector<RuleId>* called) const {
    std::map<StateId, bool> seen;
    std::vector<StateId> stack = {entries_[rule]};
    bool ends = false;
    while (!stack.empty()) {
      const StateId at = stack.back();
      stack.pop_back();
      if (!seen.try_emplace(at, true).second) continue;
      const State& s = grammar_.states_[at];
      if (s.kind == State::Kind::kReturn) ends = true;
      if (s.kind == State::Kind::kSplit) {
        for (uint32_t i = s.begin; i < s.end; ++i) stack.push_back(grammar_.targets_[i]);
      }
      if (s.kind != State::Kind::kCall) continue;
      const auto target = static_cast<RuleId>(s.entry - entries_[0]);  // Entries were added one after another.
      if (called != nullptr) called->push_back(target);
      if (empty[target]) stack.push_back(s.next);
    }
    return ends;
  }

  absl::Status CheckLeftRecursion() const {
    const std::vector<bool> empty = FindEmptyRules();
    std::vector<std::vector<RuleId>> calls(entries_.size());
    for (RuleId rule = 0; rule < entries_.size(); ++rule) Reach(rule, empty, &calls[rule]);
    // Depth-first; a call of a rule that is still open closes a circle.
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> mark(entries_.size(), kNew);
    for (RuleId root = 0; root < entries_.size(); ++root) {
      if (mark[root] != kNew) continue;
      std::vector<std::pair<RuleId, size_t>> stack = {{root, 0}};
      mark[root] = kOpen;
      while (!stack.empty()) {
        auto& [rule, next] = stack.back();
        if (next == calls[rule].size()) {
          mark[rule] = kDone;
          stack.pop_back();
          continue;
        }
        const RuleId called = calls[rule][next++];
        if (mark[called] == kOpen) {
          return absl::InvalidArgumentError(
              Cat("rule '", rules_.name(called), "' calls itself before it reads anything (left recursion)"));
        }
        if (mark[called] != kNew) continue;
        mark[called] = kOpen;
        stack.emplace_back(called, 0);
      }
    }
    return absl::OkStatus();
  }

  Grammar& grammar_;
  const RuleSet& rules_;
  const GrammarLimits limits_;
  std::vector<StateId> entries_;  ///< By rule.
  size_t expressions_ = 0;        ///< Added so far, repetitions counted.
};

absl::StatusOr<Grammar> Grammar::Compile(const RuleSet& rules, RuleId root, const GrammarLimits& limits) {
  Grammar grammar;
  KVIST_RETURN_IF_ERROR(Builder(grammar, rules, limits).Build(root));
  grammar.FindClasses();
  return grammar;
}

void Grammar::FindClasses() {
  std::bitset<257> begins;  // Where a class may begin.
  begins.set(0);
  for (const Edge& edge : edges_) {
    begins.set(edge.first);
    begins.set(size_t{edge.last} + 1);
  }
  uint32_t at = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++at;
    classes_[byte] = static_cast<uint8_t>(at);
  }
  classes_count_ = at + 1;
}

}  // namespace kvist::grammar
