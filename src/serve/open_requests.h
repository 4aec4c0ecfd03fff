#pragma once

/// @file
/// Requests that the engine works on, by the name that clients know. Threads: any.

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "base/units.h"

namespace kvist::serve {

class OpenRequests {
 public:
  void Add(const std::string& name, RequestId id) {
    std::lock_guard lock(mutex_);
    ids_[name] = id;
  }
  void Remove(const std::string& name) {
    std::lock_guard lock(mutex_);
    ids_.erase(name);
  }
  std::optional<RequestId> Find(std::string_view name) const {
    std::lock_guard lock(mutex_);
    const auto it = ids_.find(ToAbsl(name));
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, RequestId> ids_;
};

}  // namespace kvist::serve
