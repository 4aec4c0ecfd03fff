#pragma once

/// @file
/// States of generations that clients keep to go on from: by a name that cannot be guessed, inside their namespace.
/// They are data (tokens, sampler, operations), not memory: keys and values stay cached as those of every other text,
/// or are computed again. Bounded; the one unused for longest goes first. API: docs/serving.md, "Capsules". Threads:
/// any.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "serve/bounded_store.h"
#include "serve/viewer.h"

namespace kvist::serve {

/// What is shown of a capsule.
struct CapsuleInfo {
  std::string id;
  uint32_t tokens = 0;         ///< Prompt and output.
  uint32_t output_tokens = 0;  ///< The last ones: a run can go on from before any of them.
  int64_t created_unix_s = 0;
};

class Capsules {
 public:
  explicit Capsules(size_t capsules_max = 4096, size_t tokens_max = size_t{64} << 20)
      : store_(capsules_max, tokens_max) {}

  /// Returns its new name, "cap-" and 32 random hexadecimal digits.
  std::string Store(std::shared_ptr<const engine::Capsule> state, int64_t now_unix_s);

  /// nullptr when the tenant has none of this name in the namespace.
  std::shared_ptr<const engine::Capsule> Find(TenantId tenant, uint64_t cache_namespace, std::string_view id);
  /// Of what the viewer sees.
  std::optional<CapsuleInfo> Show(std::string_view id, Viewer viewer);
  bool Erase(std::string_view id) { return store_.Erase(id); }
  /// The one used last first.
  std::vector<CapsuleInfo> List(Viewer viewer) const;

 private:
  struct Kept {
    std::shared_ptr<const engine::Capsule> state;
    int64_t created_unix_s = 0;
  };
  static CapsuleInfo InfoOf(std::string_view id, const Kept& kept);

  BoundedStore<Kept> store_;
};

/// Body of POST /kvist/capsules: the id of the running request whose state is wanted. Errors: InvalidArgument.
absl::StatusOr<std::string> ParseCapsuleRequest(std::string_view body);

std::string CapsuleBody(const CapsuleInfo& info);
std::string CapsuleListBody(const std::vector<CapsuleInfo>& list);

/// The state of a running request. Errors: NotFound when it has ended; Unavailable when the engine does not answer.
absl::StatusOr<engine::Capsule> AskForCapsule(engine::Engine& engine, RequestId id);

}  // namespace kvist::serve
