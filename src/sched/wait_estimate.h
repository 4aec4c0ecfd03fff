#pragma once

/// @file
/// How long a request that came now would wait for its first token, from what is queued and from the pace of late. An
/// estimate for refusing early: as if nobody was overtaken. Pure. Threads: any.

#include <algorithm>
#include <cstdint>

namespace kvist::sched {

struct QueueFacts {
  uint64_t prompt_tokens = 0;  ///< Still to be computed, of running and waiting requests.
  double prompt_token_ns = 0;  ///< Each takes, at the pace of late.
  uint32_t running = 0;        ///< Requests.
  uint32_t waiting = 0;
  uint32_t running_max = 0;        ///< At once.
  double running_tokens_left = 0;  ///< Output tokens that a running request will still give, mean.
  double token_ns = 0;             ///< Time between two of them.
};

/// In nanoseconds. Tokens before it are read first; when all places are taken, so many requests must end before as
/// there are before it, and they end evenly spread.
inline double PredictedWaitNs(const QueueFacts& facts, uint64_t prompt_tokens) {
  const double reading = static_cast<double>(facts.prompt_tokens) * facts.prompt_token_ns;
  double place = 0;
  if (facts.running_max > 0 && facts.running + facts.waiting >= facts.running_max) {
    const double ends = facts.running + facts.waiting + 1 - facts.running_max;
    place = ends * facts.running_tokens_left * facts.token_ns / std::max(facts.running, 1u);
  }
  return std::max(reading, place) + static_cast<double>(prompt_tokens) * facts.prompt_token_ns;
}

}  // namespace kvist::sched
