#pragma once

/// @file
/// Asks the engine's thread something and waits. Threads: any but the engine's and the network's.

#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include "absl/status/statusor.h"

namespace kvist::serve {

/// The engine answers between two steps' bookkeeping, in microseconds.
inline constexpr std::chrono::seconds kEnginePatience{2};

/// @param ask  posts the question; its argument takes the answer, on the engine thread.
/// Errors: Unavailable when no answer comes in time.
template <class Answer, class Ask>
absl::StatusOr<Answer> AskEngine(const Ask& ask) {
  auto promise = std::make_shared<std::promise<Answer>>();  // Outlives whoever gave up waiting.
  std::future<Answer> answer = promise->get_future();
  ask([promise](Answer given) { promise->set_value(std::move(given)); });
  if (answer.wait_for(kEnginePatience) != std::future_status::ready) {
    return absl::UnavailableError("the engine does not answer");
  }
  return answer.get();
}

}  // namespace kvist::serve
