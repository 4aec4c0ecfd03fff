#pragma once

/// @file
/// Values by name, bounded in number and in tokens; the one unused for longest goes first. Threads: any.

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"

namespace kvist::serve {

template <class Value>
class BoundedStore {
 public:
  /// @param tokens_max  of all values together; one value alone may have more.
  BoundedStore(size_t values_max, size_t tokens_max) : values_max_(values_max), tokens_max_(tokens_max) {}

  /// A copy; it counts as used now.
  std::optional<Value> Find(std::string_view key) {
    std::lock_guard lock(mutex_);
    const auto it = by_key_.find(ToAbsl(key));
    if (it == by_key_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->value;
  }

  /// In place of what is there under this key.
  void Store(std::string key, Value value, size_t tokens) {
    std::lock_guard lock(mutex_);
    EraseLocked(key);
    tokens_ += tokens;
    entries_.push_front({key, std::move(value), tokens});
    by_key_[std::move(key)] = entries_.begin();
    while (entries_.size() > 1 && (entries_.size() > values_max_ || tokens_ > tokens_max_)) {
      EraseLocked(std::string(entries_.back().key));
    }
  }

  bool Erase(std::string_view key) {
    std::lock_guard lock(mutex_);
    return EraseLocked(key);
  }

  /// Calls with each key and value, the one used last first.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) visit(entry.key, entry.value);
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    std::string key;
    Value value;
    size_t tokens;
  };

  bool EraseLocked(std::string_view key) {
    const auto it = by_key_.find(ToAbsl(key));
    if (it == by_key_.end()) return false;
    tokens_ -= it->second->tokens;
    entries_.erase(it->second);
    by_key_.erase(it);
    return true;
  }

  const size_t values_max_, tokens_max_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< Used last first.
  absl::flat_hash_map<std::string, typename std::list<Entry>::iterator> by_key_;
  size_t tokens_ = 0;
};

}  // namespace kvist::serve
