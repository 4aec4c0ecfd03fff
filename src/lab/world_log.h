#pragma once

/// @file
/// Virtual time of a simulated world, what is to happen in it, what has happened, and the first promise that was
/// broken. Everything runs on one thread in an order that the seed decides. Threads: one.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/prng.h"

namespace kvist::lab {

/// The first broken promise.
struct Violation {
  std::string checker;  ///< Which promise: "answers", "frames", "namespaces", "ends", "leaks", "meters", "drive", ...
  std::string message;
  double at_s = 0;
};

class WorldLog {
 public:
  static constexpr size_t kLinesKept = 40;

  const Clock& clock() const { return clock_; }
  TimeNs now() const { return clock_.Now(); }

  void At(TimeNs time, std::function<void()> what) {
    events_.emplace(std::pair(std::max(time, now()), next_event_++), std::move(what));
  }
  void After(int64_t ns, std::function<void()> what) { At(now() + ns, std::move(what)); }
  TimeNs NextEvent() const { return events_.empty() ? kTimeNever : events_.begin()->first.first; }
  void AdvanceTo(TimeNs time) { clock_.AdvanceTo(std::max(time, now())); }
  /// What is due now, in order.
  void RunDue() {
    while (!events_.empty() && events_.begin()->first.first <= now() && !failed()) {
      const std::function<void()> what = std::move(events_.extract(events_.begin()).mapped());
      what();
    }
  }

  void Add(std::string_view line) {
    for (const char c : line) Digest(static_cast<uint8_t>(c));
    Digest(static_cast<uint64_t>(now().value));
    lines_.push_back(Stamp() + std::string(line));
    if (lines_.size() > kLinesKept) lines_.pop_front();
  }
  /// What is not worth a line.
  void Digest(uint64_t value) { digest_ = Mix64(digest_ ^ value); }

  void Report(std::string_view checker, std::string message) {
    if (failed()) return;
    violation_ = {.checker = std::string(checker), .message = std::move(message), .at_s = Seconds(now().value)};
    Add("broken: " + violation_.checker + ": " + violation_.message);
  }
  bool failed() const { return !violation_.checker.empty(); }
  const Violation& violation() const { return violation_; }
  const std::deque<std::string>& lines() const { return lines_; }
  uint64_t digest() const { return digest_; }

 private:
  std::string Stamp() const {
    std::string micros = std::to_string(now().value / 1000);
    micros.insert(0, micros.size() < 7 ? 7 - micros.size() : 0, '0');
    return micros.insert(micros.size() - 6, ".") + " ";
  }

  VirtualClock clock_;
  std::map<std::pair<TimeNs, uint64_t>, std::function<void()>> events_;
  uint64_t next_event_ = 0;
  std::deque<std::string> lines_;
  uint64_t digest_ = 0;
  Violation violation_;
};

}  // namespace kvist::lab
