#pragma once

/// @file
/// Which of some keys was used longest ago, exactly. Threads: none shared.

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/container/flat_hash_map.h"

namespace kvist::lab {

/// Blocks in order of use.
class Lru {
 public:
  bool contains(uint64_t id) const { return places_.contains(id); }
  size_t size() const { return places_.size(); }
  void Use(uint64_t id) {
    const auto [it, inserted] = places_.try_emplace(id, order_.end());
    if (inserted) {
      it->second = order_.insert(order_.end(), id);
    } else {
      order_.splice(order_.end(), order_, it->second);
    }
  }
  /// @return  whether it was there
  bool Remove(uint64_t id) {
    const auto it = places_.find(id);
    if (it == places_.end()) return false;
    order_.erase(it->second);
    places_.erase(it);
    return true;
  }
  uint64_t TakeOldest() {
    const uint64_t id = order_.front();
    order_.pop_front();
    places_.erase(id);
    return id;
  }

 private:
  std::list<uint64_t> order_;
  absl::flat_hash_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace kvist::lab
