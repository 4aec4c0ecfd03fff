#pragma once

/// @file
/// Clients of a simulated world: conversations of several turns on shared system prompts, in tenants that share
/// nothing, with cancels, priorities, operations on the cache, forks and prompts that fit nowhere; and the judge of
/// what they get: each request ends once, with the answer of the oracle, with a refusal that the oracle knows, or with
/// a fault that was there. Threads: one.

#include <map>
#include <memory>
#include <vector>

#include "lab/world_router.h"

namespace kvist::lab {

/// When what was wrong, for who judges failures.
class Weather {
 public:
  explicit Weather(const WorldLog& log) : log_(log) {}
  void Begin(SimFault::Kind kind) { ++kinds_[kind].active; }
  void End(SimFault::Kind kind) {
    --kinds_[kind].active;
    kinds_[kind].last = log_.now();
  }
  bool Since(SimFault::Kind kind, TimeNs since) const {
    const auto it = kinds_.find(kind);
    return it != kinds_.end() && (it->second.active > 0 || it->second.last >= since);
  }

 private:
  struct Entry {
    int active = 0;
    TimeNs last{-1};
  };
  const WorldLog& log_;
  std::map<SimFault::Kind, Entry> kinds_;
};

struct ClientTotals {
  uint64_t requests = 0, answered = 0, cancelled = 0, refused = 0, failed = 0, tokens = 0;
};

class SimClients {
 public:
  SimClients(WorldLog& log, const SimScenario& scenario, SimRouter& router, const Weather& weather);

  /// They ask until `end`, then finish what they have begun.
  void Start(TimeNs end);
  bool done() const { return open_ == 0; }
  /// A worker has said something about a request.
  void Heard(uint64_t id);
  /// @param reachable_since  some worker has been up and reachable since then
  void CheckProgress(TimeNs reachable_since);
  /// Every request must have ended.
  void CheckEnd();
  const ClientTotals& totals() const { return totals_; }

 private:
  struct Talk {
    uint32_t tenant = 0, turns = 0;
    std::vector<TokenId> tokens;
    std::vector<kv::CacheOp> ops;
  };
  struct Client {
    Prng prng{0};
    Talk talk;
    uint32_t open = 0;                        ///< Answers that it waits for.
    std::vector<std::vector<TokenId>> heard;  ///< Texts that it may go on from.
  };
  struct Asked {
    std::shared_ptr<const engine::GenerationRequest> generation;
    uint32_t client = 0;
    TimeNs since{0}, heard{0};
    bool cancelled = false;
    int ends = 0;
  };
  void Think(uint32_t client);
  void BeginTalk(Client& client);
  void Turn(uint32_t client);
  void AddOps(Client& client);
  void Retain(Client& client, engine::GenerationRequest& request);
  void Ask(uint32_t client, engine::GenerationRequest request);
  void Take(const SimAnswer& answer);
  void Judge(const Asked& asked, const SimAnswer& answer);
  bool MayFail(const Asked& asked, const absl::Status& status) const;

  WorldLog& log_;
  const SimScenario& scenario_;
  SimRouter& router_;
  const Weather& weather_;
  const ContentLimits limits_;
  std::vector<Client> clients_;
  std::map<uint64_t, Asked> asked_;
  TimeNs end_{0};
  uint64_t next_id_ = 1, open_ = 0;
  ClientTotals totals_;
};

}  // namespace kvist::lab
