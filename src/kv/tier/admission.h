#pragma once

/// @file
/// Which blocks that leave memory are worth a write to the drive. A drive wears out with every byte, and most blocks
/// are never read again: so a block is judged by how often it was used while it was in memory, how long ago that was,
/// and whether its next use will come too late for memory but not too late altogether. Source: A5 (SARIA),
/// "Persistence-Aware Selective Admission". Policies see facts and answer; they move nothing. Threads: engine thread
/// only.

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"

namespace kvist::kv {

/// A block that is about to leave memory.
struct DemotionFacts {
  uint32_t accesses = 1;   ///< Since it was first seen, those of earlier stays in memory included.
  TimeNs first_access{0};  ///< Of all of these.
  TimeNs last_access{0};
  TimeNs resident_since{0};  ///< It came into memory.
  TimeNs now{0};
  uint64_t bytes = 0;

  /// Mean time between accesses; 0 with a single one.
  int64_t mean_interval_ns() const { return accesses < 2 ? 0 : (last_access - first_access) / (accesses - 1); }
};

class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  virtual std::string_view name() const = 0;
  /// @return whether the block is to be written. Asked once each time that a block leaves memory.
  virtual bool Admit(const DemotionFacts& facts) = 0;
  /// The same of a block that is lost otherwise, as the process ends.
  virtual bool AdmitAtStop(const DemotionFacts&) { return true; }
  /// Blocks are written when they are computed, not when they leave memory; then Admit is asked at that time.
  virtual bool at_once() const { return false; }
};

/// Everything that leaves memory is written.
class AdmitAll : public AdmissionPolicy {
 public:
  std::string_view name() const override { return "all"; }
  bool Admit(const DemotionFacts&) override { return true; }
};

/// Everything is written when it is computed: nothing is lost when the process is killed.
class WriteThrough final : public AdmitAll {
 public:
  std::string_view name() const override { return "through"; }
  bool at_once() const override { return true; }
};

/// Keeps what is written near a rate over days: a threshold for scores that rises with what was written too much, and
/// falls with what was written too little. The excess is the integral of the error, so that a steady demand ends at the
/// rate itself; scores are compared by their logarithms, as they span many powers of ten.
class WriteBudget {
 public:
  /// @param bytes_per_day  0 = no limit.
  /// @param burst_s  so many seconds' worth written too much make the threshold rise by a few powers of e.
  /// @param saved_s  so many seconds' worth may be saved up while little is worth writing.
  explicit WriteBudget(uint64_t bytes_per_day, double burst_s = 60, double saved_s = 6 * 3600);

  /// Whether a block of this score is written now; counts it if so. Scores of 0 never are.
  bool Take(double score, uint64_t bytes, TimeNs now);

  double bytes_per_s() const { return bytes_per_s_; }
  /// Scores from here on are written; 0 = all above 0.
  double threshold() const { return threshold_; }

 private:
  const double bytes_per_s_, burst_bytes_, saved_bytes_;
  double excess_bytes_;  ///< Written too much (or too little: negative) by now; begins with a burst saved up.
  double mean_log_ = 0;  ///< Of scores, recent ones more.
  uint64_t scores_ = 0;
  double threshold_ = 0;
  TimeNs last_{0};
};

struct ReuseAdmissionOptions {
  double decay_s = 600;  ///< A5's T_decay / lambda.
  /// A block is only written when its uses lie at least so many lives of a block in memory apart: with shorter
  /// intervals it would have been used again before it had to leave. (A5 writes the test as "> life"; blocks that
  /// memory drops in order of use have been idle for one life already, so their intervals are shorter than that while
  /// they live.)
  double reuse_test = 0.25;
  uint64_t bytes_per_day = 0;  ///< 0 = no limit.
};

/// A5: reuses per second in memory, aged by the time since the last one, if the predicted reuse comes after memory's
/// own life; from a threshold on that keeps the daily budget. A block that was never used again is not written.
class ReuseAdmission final : public AdmissionPolicy {
 public:
  explicit ReuseAdmission(const ReuseAdmissionOptions& options = {});
  std::string_view name() const override { return "a5"; }
  bool Admit(const DemotionFacts& facts) override;
  /// All blocks, as far as budget was saved up.
  bool AdmitAtStop(const DemotionFacts& facts) override;

  /// 0 = not worth it.
  double Score(const DemotionFacts& facts) const;
  /// How long blocks that are not used stay in memory: mean of recent ones.
  double memory_life_s() const { return life_s_; }
  double threshold() const { return budget_.threshold(); }

 private:
  const ReuseAdmissionOptions options_;
  WriteBudget budget_;
  double life_s_ = 0;
  bool life_known_ = false;
};

/// Whether a block that was read from the drive is worth a place in cold memory: its next use is expected before cold
/// memory would drop it. A block whose second use is the read itself has shown one interval, which is the best guess.
/// @param cold_life_s  how long unused blocks stay there.
bool ShouldPromote(const DemotionFacts& facts, double cold_life_s);

inline constexpr std::string_view kDefaultAdmission = "a5";
/// "all", "through", "a5"; null for another name.
std::unique_ptr<AdmissionPolicy> MakeAdmissionPolicy(std::string_view name, const ReuseAdmissionOptions& options);

}  // namespace kvist::kv
