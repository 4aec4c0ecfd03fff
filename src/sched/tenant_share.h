#pragma once

/// @file
/// What each tenant has received, as virtual counters: the tenant with the least goes first, and who was away starts
/// level with those who are here, so that idling earns nothing. Threads: one. Non-goals: limits and prices.
/// Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"

namespace kvist::sched {

class TenantShare {
 public:
  /// A request of the tenant has come. The first one lifts its counter to the least of those who have requests, or,
  /// when nobody has, to that of whoever left last.
  void Enter(TenantId tenant);
  /// It has ended. REQUIRES: an Enter for each.
  void Leave(TenantId tenant);
  /// The tenant received so many tokens: those computed for it, and those sampled.
  void Charge(TenantId tenant, uint64_t tokens) { accounts_[tenant].received += tokens; }

  uint64_t Received(TenantId tenant) const {
    const auto it = accounts_.find(tenant);
    return it == accounts_.end() ? 0 : it->second.received;
  }

 private:
  struct Account {
    uint64_t received = 0;
    uint64_t requests = 0;  ///< Under way.
  };

  absl::flat_hash_map<TenantId, Account> accounts_;
  uint64_t left_at_ = 0;  ///< Counter of the tenant that left last.
};

}  // namespace kvist::sched
