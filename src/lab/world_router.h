#pragma once

/// @file
/// A small router for simulated worlds: it sends a request to a worker that has read its beginning before, learns that
/// from answers, asks again under the same number when it hears nothing, and goes to another worker when one stays
/// silent. Its client gets one answer, whatever the network does. Threads: one. Non-goals: the product's router.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lab/world_defect.h"
#include "lab/world_log.h"
#include "lab/world_network.h"
#include "lab/world_worker.h"

namespace kvist::lab {

class SimRouter {
 public:
  using Deliver = std::function<void(const SimAnswer&)>;
  /// How messages reach a worker.
  struct Wire {
    std::function<void(uint32_t worker, const SimRequest&)> request;
    std::function<void(uint32_t worker, uint64_t id)> cancel;
  };

  SimRouter(WorldLog& log, const SimScenario& scenario, DefectDice& dice, Wire wire);

  /// `deliver` is called once.
  void Submit(const SimRequest& request, Deliver deliver);
  void Cancel(uint64_t id);
  /// From a worker.
  void Take(const SimAnswer& answer);

  /// Of the client's request that a worker's answer is about.
  static uint64_t ClientId(const SimAnswer& answer) { return answer.id >> kMoveBits; }
  uint64_t open_count() const { return open_; }

 private:
  struct Entry {
    SimRequest request;
    Deliver deliver;
    uint64_t prefix = 0;
    uint32_t worker = 0;
    uint32_t silent = 0;  ///< Times asked without a sign of life.
    uint32_t moves = 0, failures = 0;
    bool cancelled = false, ended = false;
  };
  /// Each worker that is tried knows the request by another number.
  static constexpr uint32_t kMoveBits = 8;
  static uint64_t WireId(const Entry& entry) { return entry.request.id << kMoveBits | entry.moves; }
  uint32_t Choose(const Entry& entry);
  void Ask(Entry& entry);
  void Remind(uint64_t id);
  void Move(Entry& entry);
  void EndWith(Entry& entry, const SimAnswer& answer);

  WorldLog& log_;
  const SimScenario& scenario_;
  DefectDice& dice_;
  const Wire wire_;
  Prng prng_;
  std::map<uint64_t, Entry> entries_;
  std::map<uint64_t, uint32_t> routes_;  ///< [prefix] Worker that has read it last.
  std::vector<TimeNs> suspected_until_;
  std::vector<uint32_t> load_;
  uint64_t open_ = 0;
};

}  // namespace kvist::lab
