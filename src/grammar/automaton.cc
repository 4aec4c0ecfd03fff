#include "grammar/automaton.h"

#include <algorithm>
#include <utility>

namespace kvist::grammar {

Automaton::Automaton(const Grammar& grammar, const AutomatonLimits& limits)
    : grammar_(grammar), limits_(limits), classes_(grammar.classes_count()) {
  calls_.push_back({});
  Keep();  // kDead: nothing found.
  Close({grammar.start(), kNoCalls});
  Keep();
}

uint32_t Automaton::Push(uint32_t stack, Grammar::StateId next) {
  const auto [it, inserted] = call_ids_.try_emplace(Place{next, stack}, static_cast<uint32_t>(calls_.size()));
  if (inserted) calls_.push_back({.next = next, .below = stack, .depth = calls_[stack].depth + 1});
  return it->second;
}

/// Adds all places that `place` leads to without reading.
void Automaton::Close(Place place) {
  open_.push_back(place);
  while (!open_.empty()) {
    const Place at = open_.back();
    open_.pop_back();
    const Grammar::State& state = grammar_.state(at.state);
    if (!state.can_end || found_.size() >= limits_.places_max) continue;
    if (!seen_.try_emplace(at, true).second) continue;
    switch (state.kind) {
      case Grammar::State::Kind::kBytes:
        found_.push_back(at);
        break;
      case Grammar::State::Kind::kSplit:
        for (uint32_t i = state.begin; i < state.end; ++i) open_.push_back({grammar_.targets()[i], at.stack});
        break;
      case Grammar::State::Kind::kCall:
        // A call at a rule's end need not be returned to: lists that are written by recursion stay flat.
        if (state.next == Grammar::kReturn) {
          open_.push_back({state.entry, at.stack});
        } else if (calls_[at.stack].depth < limits_.depth_max) {
          open_.push_back({state.entry, Push(at.stack, state.next)});
        }
        break;
      case Grammar::State::Kind::kReturn:
        if (at.stack == kNoCalls) {
          complete_ = true;
        } else {
          open_.push_back({calls_[at.stack].next, calls_[at.stack].below});
        }
        break;
    }
  }
}

/// The state of what was found, known or new.
Automaton::StateId Automaton::Keep() {
  std::ranges::sort(found_);
  std::pair<std::vector<Place>, bool> key(std::exchange(found_, {}), std::exchange(complete_, false));
  seen_.clear();
  const auto [it, inserted] = state_ids_.try_emplace(key, static_cast<StateId>(states_.size()));
  if (inserted) {
    states_.push_back({.places = std::move(key.first), .complete = key.second});
    next_.resize(next_.size() + classes_, kUnknown);
  }
  return it->second;
}

Automaton::StateId Automaton::Find(StateId state, uint8_t byte) {
  for (const Place& place : states_[state].places) {
    const Grammar::State& from = grammar_.state(place.state);
    for (uint32_t i = from.begin; i < from.end; ++i) {
      const Grammar::Edge& edge = grammar_.edges()[i];
      if (edge.first <= byte && byte <= edge.last) Close({edge.target, place.stack});
    }
  }
  const StateId found = Keep();
  next_[size_t{state} * classes_ + grammar_.ClassOf(byte)] = found;
  return found;
}

int Automaton::ForcedByte(StateId state) const {
  if (states_[state].complete) return -1;
  int forced = -1;
  for (const Place& place : states_[state].places) {
    const Grammar::State& from = grammar_.state(place.state);
    for (uint32_t i = from.begin; i < from.end; ++i) {
      const Grammar::Edge& edge = grammar_.edges()[i];
      if (!grammar_.state(edge.target).can_end) continue;
      if (edge.first != edge.last || (forced >= 0 && forced != edge.first)) return -1;
      forced = edge.first;
    }
  }
  return forced;
}

Automaton::Portable Automaton::Export(StateId state) const {
  Portable portable{.places = {}, .complete = states_[state].complete};
  for (const Place& place : states_[state].places) {
    Portable::Place out{.state = place.state, .open = {}};
    for (uint32_t at = place.stack; at != kNoCalls; at = calls_[at].below) out.open.push_back(calls_[at].next);
    std::ranges::reverse(out.open);
    portable.places.push_back(std::move(out));
  }
  return portable;
}

Automaton::StateId Automaton::Import(const Portable& portable) {
  for (const Portable::Place& place : portable.places) {
    uint32_t stack = kNoCalls;
    for (const Grammar::StateId next : place.open) stack = Push(stack, next);
    found_.push_back({place.state, stack});
  }
  complete_ = portable.complete;
  return Keep();
}

}  // namespace kvist::grammar
