#pragma once

/// @file
/// How many sessions of periodic frames fit: each sends a frame every period, and it must be answered before the next
/// one comes. The number is found while they run: a session more is let in while the slowest answers leave room for it.
/// That works because the state of a session is bounded, so that the time of an answer says how loaded the machine is;
/// where it grows for ever, answers are quick until memory is full, and then none is. Pure. Threads: one. Non-goals:
/// order of requests (policies do that), the bound itself (a window of the view).
/// Source: Metronome (P23).

#include <algorithm>
#include <cstdint>

namespace kvist::sched {

struct FrameAdmissionOptions {
  double load_max = 0.8;         ///< Of a period, what the slowest answers may take.
  uint32_t settle_frames = 16;   ///< Of each session, after a session came, before another may.
  uint32_t retry_frames = 1000;  ///< Of all sessions without a miss, before a number that missed is tried again.
};

/// Why no session may come now.
enum class FrameObstacle : uint8_t {
  kNone,      ///< One may.
  kTooLong,   ///< Its frame does not fit its period, whoever else is in.
  kTried,     ///< With one more there were misses, not long ago.
  kSettling,  ///< The last one that came has not shown yet what it takes.
  kNoRoom,    ///< The slowest answers leave none.
};

class FrameAdmission {
 public:
  explicit FrameAdmission(const FrameAdmissionOptions& options = {}) : options_(options) {}

  /// @param frame_share  predicted time of one frame alone, as a share of its period
  FrameObstacle ObstacleFor(double frame_share) const {
    if (frame_share > options_.load_max) return FrameObstacle::kTooLong;
    if (sessions_ >= sessions_max_) return FrameObstacle::kTried;
    if (sessions_ == 0) return FrameObstacle::kNone;
    if (settling_frames() > 0) return FrameObstacle::kSettling;
    const bool fits = load_ + std::min(frame_share, load_ / sessions_) <= options_.load_max;
    return fits ? FrameObstacle::kNone : FrameObstacle::kNoRoom;
  }
  bool MayOpen(double frame_share) const { return ObstacleFor(frame_share) == FrameObstacle::kNone; }
  void Open() {
    ++sessions_;
    settled_ = 0;
  }
  /// REQUIRES: an Open for it.
  void Close() {
    if (--sessions_ == 0) load_ = 0;  // Nobody's answers are slow any more.
    grace_ = uint64_t{kGraceFrames} * sessions_;
  }
  /// Frames miss their deadlines since the last session came, and it should go again: how long answers take does not
  /// show that the machine is nearly full as long as they do not meet.
  bool IsOver() const { return sessions_ > sessions_max_; }

  /// A frame was answered after `answer_ns`; more than its period = it missed its deadline.
  void Observe(int64_t answer_ns, int64_t period_ns) {
    // Beyond kShareMax a late answer says nothing more, and would be remembered for long.
    const double share = std::min(static_cast<double>(answer_ns) / static_cast<double>(period_ns), kShareMax);
    load_ += (share > load_ ? kRise : kFall) * (share - load_);
    ++settled_;
    const bool in_grace = grace_ > 0;
    if (in_grace) --grace_;
    if (answer_ns > period_ns) {
      ++misses_;
      since_miss_ = 0;
      if (!in_grace) sessions_max_ = std::max(sessions_, 2u) - 1;  // So many are too many.
    } else if (++since_miss_ % options_.retry_frames == 0 && sessions_max_ != UINT32_MAX) {
      ++sessions_max_;
    }
  }

  uint32_t sessions() const { return sessions_; }
  /// Frames of all sessions that are still to come before the last session is known.
  uint64_t settling_frames() const {
    const uint64_t wanted = uint64_t{options_.settle_frames} * sessions_;
    return wanted - std::min(settled_, wanted);
  }
  double load_max() const { return options_.load_max; }
  double load() const { return load_; }  ///< What slow answers take of their period, of late.
  uint64_t misses() const { return misses_; }

 private:
  static constexpr double kShareMax = 2;
  static constexpr uint32_t kGraceFrames = 3;         // Of each session: what waited when one went may still be late.
  static constexpr double kRise = 0.3, kFall = 0.02;  // Quick to see slow answers, slow to forget them.

  const FrameAdmissionOptions options_;
  uint32_t sessions_ = 0, sessions_max_ = UINT32_MAX;
  double load_ = 0;
  uint64_t settled_ = 0;     ///< Frames since a session came.
  uint64_t grace_ = 0;       ///< Frames whose misses say nothing about the sessions that are left.
  uint64_t since_miss_ = 0;  ///< Frames.
  uint64_t misses_ = 0;
};

}  // namespace kvist::sched
