#pragma once

/// @file
/// Sessions of periodic frames (cameras, game turns, sensors): each of their requests is a frame, due before the next
/// one comes. A session is let in while the frames of those that are in leave room for it (sched/frame_admission.h);
/// when frames are late then all the same, the last one that came goes again. A session is over when no frame has come
/// for long. Threads: any. Non-goals: bounding what a session keeps in view (sessions.h), order of requests (policies,
/// by the deadlines that frames carry). Source: Metronome (P23).

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "sched/frame_admission.h"

namespace kvist::serve {

struct FrameFigures {
  uint32_t sessions = 0;           ///< In now.
  double load = 0;                 ///< Of a period, what slow frames take of late.
  uint64_t on_time = 0, late = 0;  ///< Frames answered; late also those that are late and not answered yet.
  uint64_t refused = 0;            ///< Sessions, each time they asked.
};

/// Lives as long as any of its frames: REQUIRES: made by std::make_shared.
class FrameSessions : public std::enable_shared_from_this<FrameSessions> {
 public:
  /// A frame under way. Gone without Answered = it came to nothing, and says nothing about the load.
  class Frame {
   public:
    ~Frame() { owner_->Leave(*this, /*answered=*/false); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    /// Its answer is complete. Once.
    void Answered() { owner_->Leave(*this, /*answered=*/true); }

   private:
    friend class FrameSessions;
    Frame(std::shared_ptr<FrameSessions> owner, std::string key, int64_t period_ns, TimeNs came_at)
        : owner_(std::move(owner)), key_(std::move(key)), period_ns_(period_ns), came_at_(came_at) {}

    const std::shared_ptr<FrameSessions> owner_;
    const std::string key_;
    const int64_t period_ns_;
    const TimeNs came_at_;
    bool counted_late_ = false, left_ = false;  ///< Guarded by the owner's mutex.
  };

  explicit FrameSessions(const Clock& clock) : clock_(clock) {}

  /// A frame comes. The first of a session asks for the session to be let in.
  /// @param key  of the session, among those of all clients
  /// @param frame_ns  predicted time of the frame alone
  /// Errors: ResourceExhausted, code frames_not_schedulable: no room (also for a session that was in, and turned out to
  /// be too many), saying why and after what time to ask again; or the session has two frames under way already.
  absl::StatusOr<std::unique_ptr<Frame>> Enter(const std::string& key, int64_t period_ns, double frame_ns);

  FrameFigures Figures();

 private:
  struct Session {
    int64_t period_ns = 0;
    TimeNs last_at{0};              ///< Something happened to it.
    uint64_t number = 0;            ///< In the order in which they came.
    std::vector<Frame*> under_way;  ///< Oldest first.
  };

  absl::Status Open(const std::string& key, int64_t period_ns, double frame_ns, TimeNs now);
  bool IsTooMany(const std::string& key) const;
  absl::Status Refusal(sched::FrameObstacle obstacle, int64_t period_ns, double share) const;
  void Leave(Frame& frame, bool answered);
  void CountLate(Session& session, TimeNs now);
  void CloseSilent(TimeNs now);

  const Clock& clock_;
  std::mutex mutex_;  ///< Guards the rest.
  sched::FrameAdmission admission_{{.settle_frames = 8}};
  absl::flat_hash_map<std::string, Session> sessions_;
  uint64_t next_number_ = 0;
  FrameFigures figures_;
};

}  // namespace kvist::serve
