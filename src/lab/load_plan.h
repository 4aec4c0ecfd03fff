#pragma once

/// @file
/// What a load test sends and when: arrivals from a rate or a trace, texts from a data set, a trace or words drawn at
/// random. Equal options give equal plans. One thread. Non-goals: sending (load_run.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/prng.h"
#include "workload/trace.h"

namespace kvist::lab {

struct PlannedTurn {
  std::string text;             ///< What the user says.
  std::vector<TokenId> tokens;  ///< Instead of it, for completions.
  uint32_t max_tokens = 0;
};

/// Requests that follow one another: each goes on with the answer to the one before.
struct PlannedConversation {
  uint32_t index = 0;
  std::optional<double> at_s;  ///< Since the run's start; nullopt = as soon as there is room (closed loop).
  uint32_t tenant = 0;
  std::string system;  ///< "" = none.
  std::vector<PlannedTurn> turns;
};

/// One conversation of a data set: what its user says, and how long the answers were.
struct SampleConversation {
  std::vector<PlannedTurn> turns;
};

/// Reads a JSON array of {"input": TEXT, "output_length": TOKENS} or of ShareGPT's
/// {"conversations": [{"from": "human"|"gpt", "value": TEXT}, ...]}, where the length of an answer is guessed as a
/// token for each 4 bytes. Errors: InvalidArgument naming the entry.
absl::StatusOr<std::vector<SampleConversation>> ParseDataset(std::string_view json_text);

struct LoadTenant {
  std::string name, api_key;
  double rate = 0;  ///< Conversations per second; 0 = a share of LoadPlanOptions::rate.
};

/// From a time on, so many conversations per second.
struct RateStep {
  double at_s = 0, rate = 0;
  friend bool operator==(const RateStep&, const RateStep&) = default;
};

/// Reads lines of "seconds,rate", times increasing; what follows '#' is left out. Errors: InvalidArgument naming the
/// line.
absl::StatusOr<std::vector<RateStep>> ParseRates(std::string_view text);

struct LoadPlanOptions {
  double rate = 0;              ///< Conversations per second of those tenants that do not say; 0 = closed loop.
  std::vector<RateStep> rates;  ///< In place of `rate`: one that changes; the last one holds to the end, 0 ends it.
  double burstiness = 1;  ///< Shape of the gamma-distributed gaps: 1 = Poisson, below it bursts, above it regular.
  std::vector<LoadTenant> tenants{{}};  ///< At least one.
  workload::Trace
      trace;         ///< With requests: their times, and their lengths and shared beginnings where `dataset` is empty.
  double speed = 1;  ///< Of the trace's clock.
  double length_scale = 1;  ///< Of the trace's prompts and answers.
  std::vector<SampleConversation> dataset;
  uint32_t input_tokens = 512, output_tokens = 128;  ///< Without trace and data set.
  uint32_t max_tokens = 0;                           ///< Of every answer; 0 = what the source says.
  /// Of a conversation of words or of a data set. A data set's longer ones are cut; those of one turn go on with the
  /// last lines of others, those of several end where they end.
  uint32_t turns = 1;
  uint32_t shared_prefix_tokens = 0;  ///< A system prompt that all conversations begin with.
  uint32_t token_vocab = 0;           ///< > 0: prompts are ids below this instead of words.
  uint64_t conversations = 100;       ///< At most.
  double seconds = 0;                 ///< Arrivals end then; 0 = never.
  uint64_t seed = 1;
};

class LoadPlan {
 public:
  /// Errors: InvalidArgument for what does not fit together.
  static absl::StatusOr<LoadPlan> Make(LoadPlanOptions options);

  /// In order of time; nullopt when all have been given out.
  std::optional<PlannedConversation> Next();

  const std::vector<LoadTenant>& tenants() const { return options_.tenants; }
  bool open_loop() const { return open_loop_; }

 private:
  explicit LoadPlan(LoadPlanOptions options);
  PlannedConversation Texts(uint32_t index);
  PlannedTurn Words(uint32_t count, uint64_t salt) const;
  double TimeOf(double place) const;

  LoadPlanOptions options_;
  bool open_loop_ = false;
  std::string system_;
  uint32_t given_ = 0;
  struct Arrivals {
    Prng prng;
    double rate;  ///< With `rates`, a share of them,
    double next;  ///< and this the conversations of all that come before it (TimeOf); else seconds.
  };
  std::vector<Arrivals> arrivals_;  ///< Of each tenant with a rate of its own, or one of all.
};

/// Gap to the next arrival, seconds. @param shape  of the gamma distribution, its mean is 1 / rate
double DrawGap(Prng& prng, double rate, double shape);

/// `count` short words, about a token each.
std::string WordText(uint32_t count, uint64_t seed);

}  // namespace kvist::lab
