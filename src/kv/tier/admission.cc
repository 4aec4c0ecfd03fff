#include "kv/tier/admission.h"

#include <algorithm>
#include <cmath>

namespace kvist::kv {
namespace {

/// Powers of e by which the threshold moves when a burst's worth was written too much.
constexpr double kGain = 4;
/// Weight of one more observation in running means.
constexpr double kRecent = 0.001;
/// Of what is written only when nothing keeps from it.
constexpr double kLeastScore = 1e-30;

double Running(double mean, double value, uint64_t seen) {
  // The first ones count alike, so that the mean is not that of nothing.
  return mean + (value - mean) * std::max(kRecent, 1 / static_cast<double>(seen + 1));
}

}  // namespace

WriteBudget::WriteBudget(uint64_t bytes_per_day, double burst_s, double saved_s)
    : bytes_per_s_(static_cast<double>(bytes_per_day) / 86400),
      burst_bytes_(bytes_per_s_ * burst_s),
      saved_bytes_(bytes_per_s_ * saved_s),
      excess_bytes_(-burst_bytes_) {}

bool WriteBudget::Take(double score, uint64_t bytes, TimeNs now) {
  if (score <= 0) return false;
  if (bytes_per_s_ <= 0) return true;
  if (scores_ > 0) {
    excess_bytes_ = std::max(excess_bytes_ - bytes_per_s_ * Seconds(now - last_), -saved_bytes_);
  }
  last_ = now;
  const double log_score = std::log(score);
  mean_log_ = Running(mean_log_, log_score, scores_);
  ++scores_;
  const double limit = mean_log_ + kGain * excess_bytes_ / burst_bytes_;
  threshold_ = excess_bytes_ <= -burst_bytes_ ? 0 : std::exp(limit);
  if (score < threshold_) return false;
  excess_bytes_ += static_cast<double>(bytes);
  return true;
}

ReuseAdmission::ReuseAdmission(const ReuseAdmissionOptions& options)
    : options_(options), budget_(options.bytes_per_day) {}

double ReuseAdmission::Score(const DemotionFacts& facts) const {
  if (facts.accesses < 2) return 0;
  if (Seconds(facts.mean_interval_ns()) <= options_.reuse_test * life_s_) return 0;
  const double residency_s = std::max(Seconds(facts.now - facts.resident_since), 1e-3);
  const double idle_s = Seconds(facts.now - facts.last_access);
  return (facts.accesses - 1) / residency_s * std::exp(-idle_s / options_.decay_s);
}

bool ReuseAdmission::Admit(const DemotionFacts& facts) {
  const double idle_s = Seconds(facts.now - facts.last_access);
  life_s_ = life_known_ ? life_s_ + (idle_s - life_s_) * kRecent : idle_s;
  life_known_ = true;
  return budget_.Take(Score(facts), facts.bytes, facts.now);
}

bool ReuseAdmission::AdmitAtStop(const DemotionFacts& facts) {
  return budget_.Take(kLeastScore, facts.bytes, facts.now);
}

bool ShouldPromote(const DemotionFacts& facts, double cold_life_s) {
  return facts.accesses < 2 || Seconds(facts.mean_interval_ns()) < cold_life_s;
}

std::unique_ptr<AdmissionPolicy> MakeAdmissionPolicy(std::string_view name, const ReuseAdmissionOptions& options) {
  if (name == "all") return std::make_unique<AdmitAll>();
  if (name == "through") return std::make_unique<WriteThrough>();
  if (name == "a5") return std::make_unique<ReuseAdmission>(options);
  return nullptr;
}

}  // namespace kvist::kv
