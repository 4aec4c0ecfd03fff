#include "serve/frame_sessions.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {

namespace {

constexpr std::string_view kCode = "frames_not_schedulable";
constexpr size_t kUnderWayMax = 2;
/// A session that sends nothing for so long is over.
constexpr int64_t kSilentPeriods = 8, kSilentNs = 2'000'000'000;

bool IsSilent(TimeNs last_at, int64_t period_ns, TimeNs now) {
  return now - last_at > std::max(kSilentPeriods * period_ns, kSilentNs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrameSessions::Frame>> FrameSessions::Enter(const std::string& key, int64_t period_ns,
                                                                           double frame_ns) {
  const TimeNs now = clock_.Now();
  std::lock_guard lock(mutex_);
  CloseSilent(now);
  for (auto& [name, session] : sessions_) CountLate(session, now);
  if (IsTooMany(key)) {
    admission_.Close();
    sessions_.erase(key);
  }
  if (!sessions_.contains(key)) KVIST_RETURN_IF_ERROR(Open(key, period_ns, frame_ns, now));
  Session& session = sessions_[key];
  session.period_ns = period_ns;
  session.last_at = now;
  if (session.under_way.size() >= kUnderWayMax) {
    return WithRetry(WithCode(absl::ResourceExhaustedError(Cat("the session has ", session.under_way.size(),
                                                               " frames under way: frames come faster than their "
                                                               "period says, or are answered too slowly")),
                              kCode),
                     static_cast<double>(period_ns) * 1e-9);
  }
  std::unique_ptr<Frame> frame(new Frame(shared_from_this(), key, period_ns, now));
  session.under_way.push_back(frame.get());
  return frame;
}

absl::Status FrameSessions::Open(const std::string& key, int64_t period_ns, double frame_ns, TimeNs now) {
  const double share = frame_ns / static_cast<double>(period_ns);
  if (const auto obstacle = admission_.ObstacleFor(share); obstacle != sched::FrameObstacle::kNone) {
    ++figures_.refused;
    return Refusal(obstacle, period_ns, share);
  }
  admission_.Open();
  sessions_[key] = {.period_ns = period_ns, .last_at = now, .number = next_number_++, .under_way = {}};
  return absl::OkStatus();
}

/// The figures that were looked at, and no others: a load that is not known yet says nothing.
absl::Status FrameSessions::Refusal(sched::FrameObstacle obstacle, int64_t period_ns, double share) const {
  const uint32_t in = admission_.sessions();
  const double load_max = admission_.load_max() * 100;
  const std::string price = fmt::format(
      "this frame alone is expected to take {:.3g} ms ({:.0f} % of the period) by what steps have taken so far",
      share * static_cast<double>(period_ns) * 1e-6, share * 100);
  int64_t retry_ns = kSilentPeriods * period_ns;
  std::string why;
  switch (obstacle) {
    case sched::FrameObstacle::kTooLong:
      why = fmt::format("{}, and {:.0f} % is the most", price, load_max);
      break;
    case sched::FrameObstacle::kTried:
      why = fmt::format("{} sessions are in, and with one more frames were late not long ago", in);
      break;
    case sched::FrameObstacle::kSettling: {
      const uint64_t frames = admission_.settling_frames();
      why = fmt::format(
          "{} sessions are in, and what the last one takes is still being measured: {} frames of all of them are to "
          "come before another session may",
          in, frames);
      retry_ns = period_ns * static_cast<int64_t>((frames + in - 1) / in);
      break;
    }
    case sched::FrameObstacle::kNone:
    case sched::FrameObstacle::kNoRoom:
      why = fmt::format(
          "{} sessions are in, their slowest frames take {:.0f} % of the period as measured, {}, and {:.0f} % is the "
          "most of both",
          in, admission_.load() * 100, price, load_max);
      break;
  }
  return WithRetry(
      WithCode(absl::ResourceExhaustedError(fmt::format("no room for a session with a frame each {:g} ms: {}",
                                                        static_cast<double>(period_ns) * 1e-6, why)),
               kCode),
      static_cast<double>(retry_ns) * 1e-9);
}

/// The last that came, when there is one too many and it has nothing under way.
bool FrameSessions::IsTooMany(const std::string& key) const {
  const auto it = sessions_.find(key);
  if (it == sessions_.end() || !admission_.IsOver() || !it->second.under_way.empty()) return false;
  return std::ranges::all_of(sessions_, [&](const auto& other) { return other.second.number <= it->second.number; });
}

void FrameSessions::Leave(Frame& frame, bool answered) {
  const TimeNs now = clock_.Now();
  std::lock_guard lock(mutex_);
  if (std::exchange(frame.left_, true)) return;
  Session& session = sessions_.at(frame.key_);
  std::erase(session.under_way, &frame);
  session.last_at = now;
  if (!answered || frame.counted_late_) return;
  const int64_t answer_ns = now - frame.came_at_;
  ++(answer_ns > frame.period_ns_ ? figures_.late : figures_.on_time);
  admission_.Observe(answer_ns, frame.period_ns_);
}

/// Frames that should have been answered by now: whoever waits for their answers learns of the load too late.
void FrameSessions::CountLate(Session& session, TimeNs now) {
  for (Frame* frame : session.under_way) {
    if (frame->counted_late_ || now - frame->came_at_ <= frame->period_ns_) continue;
    frame->counted_late_ = true;
    ++figures_.late;
    admission_.Observe(now - frame->came_at_, frame->period_ns_);
  }
}

void FrameSessions::CloseSilent(TimeNs now) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Session& session = it->second;
    if (session.under_way.empty() && IsSilent(session.last_at, session.period_ns, now)) {
      admission_.Close();
      sessions_.erase(it++);
    } else {
      ++it;
    }
  }
}

FrameFigures FrameSessions::Figures() {
  const TimeNs now = clock_.Now();
  std::lock_guard lock(mutex_);
  CloseSilent(now);
  for (auto& [key, session] : sessions_) CountLate(session, now);
  figures_.sessions = admission_.sessions();
  figures_.load = admission_.load();
  return figures_;
}

}  // namespace kvist::serve
