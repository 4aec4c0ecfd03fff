#pragma once

/// @file
/// How long cached blocks are wished to stay. A request wishes a class for ranges of its text, for a time that counts
/// from its end, and says what happens then. From that follows a wish per block (WishesPerBlock): a block is worthless
/// without those before it, so pins and "high" hold from the beginning of the text on, but not for what has been
/// dropped. The book keeps, per frame, until when each class is wished: of several wishes the strongest that has not
/// ended holds, and the one that ends last says what happens then. Threads: engine thread only. Non-goals: who is
/// evicted (FramePool), what goes with it (PrefixTree).

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/units.h"
#include "kv/frame_pool.h"
#include "kv/live_text.h"

namespace kvist::kv {

inline constexpr uint32_t kToTheEnd = UINT32_MAX;
inline constexpr int64_t kForeverNs = INT64_MAX;

/// "low", "normal", "high", "pinned".
std::string_view RetentionName(Retention retention);

/// A wish for tokens [begin, end) of a text.
struct RetainRange {
  uint32_t begin = 0;
  uint32_t end = kToTheEnd;  ///< kToTheEnd = output included.
  Retention retention = Retention::kNormal;
  int64_t for_ns = kForeverNs;  ///< From the request's end on.
  bool forget = false;          ///< Afterwards its blocks are freed; else they are as any others.
};

/// "" when each range has tokens, lies in the prompt and ends some time where it is to be forgotten, else what is
/// wrong, naming the range.
std::string FindFault(std::span<const RetainRange> ranges, uint32_t prompt_tokens);

/// What the ranges mean for one block. Times in ns from the request's end; kNone = not wished.
struct BlockWish {
  static constexpr int64_t kNone = -1;
  int64_t pinned_ns = kNone, high_ns = kNone;  ///< Of this block, or of one after it where this one is in view.
  int64_t low_ns = kNone;                      ///< Only where nothing of the block is wished otherwise,
  bool not_low = false;                        ///< as it is here.
  int64_t end_ns = kNone;                      ///< When the last wish for the block itself ends,
  bool forget = false;                         ///< and whether it then is forgotten.
};

/// [blocks of the text] For a text that ends with this view; ranges after its end are left out. The block in which a
/// range ends is wished for even when it has been dropped, or nobody would find the way there. O(n log n + blocks) for
/// n ranges.
std::vector<BlockWish> WishesPerBlock(std::span<const RetainRange> ranges, const LiveText& live);

class RetentionBook {
 public:
  /// @param pins_max  frames that may be pinned at once
  explicit RetentionBook(uint32_t pins_max) : pins_max_(pins_max) {}

  /// Until when the frame is wished to be of this class; kPast = it is not.
  TimeNs Until(FrameId frame, Retention retention) const;
  Retention ClassOf(FrameId frame) const;
  /// Frames of this class, cached or referenced. kNormal is not counted.
  uint32_t count(Retention retention) const { return counts_[static_cast<size_t>(retention)]; }
  bool pins_left() const { return count(Retention::kPinned) < pins_max_; }
  uint32_t pins_max() const { return pins_max_; }
  /// Of the pinned frames, those that this tenant pinned first.
  uint32_t pins_of(TenantId owner) const;
  bool empty() const { return states_.empty(); }
  bool Knows(FrameId frame) const { return states_.contains(frame); }  ///< Something is wished for it.
  bool any_low() const { return lows_ > 0; }                           ///< Now, or once something stronger ends.
  /// The frame's own time is over, and it is to be forgotten then: whoever references it releases the last of it.
  bool IsDoomed(FrameId frame) const;
  /// When the frame is to be forgotten, as things are; kTimeNever = it is not.
  TimeNs ForgottenAt(FrameId frame) const;

  /// Wishes a class (kHigh, kPinned) at least until then. Takes effect with Settle, as all changes.
  /// @param owner  whose pin it is, unless the frame is pinned already
  void Raise(FrameId frame, Retention retention, TimeNs until, TenantId owner = {});
  /// kPast = no longer. REQUIRES for order: no block that follows this one stops being low earlier.
  void SetLow(FrameId frame, TimeNs until);
  /// The frame's own wishes end then.
  void SetEnd(FrameId frame, TimeNs end, bool forget);
  /// A pin becomes "high" until the same time.
  void Unpin(FrameId frame);

  struct Settled {
    Retention retention;
    bool doomed;
  };
  /// Puts what holds now into effect; ends what is over.
  Settled Settle(FrameId frame, TimeNs now);

  /// The frame has lost its contents.
  void Erase(FrameId frame);
  /// The contents of `from` are in `to` now, with more: its wishes go over, but for "low". REQUIRES: `to` has none.
  void Move(FrameId from, FrameId to);

  /// When something ends next, or earlier; kTimeNever = nothing does.
  TimeNs next() const { return queue_.empty() ? kTimeNever : queue_.front().first; }
  /// Frames to be settled now, each once.
  void TakeDue(TimeNs now, std::vector<FrameId>& out);

  /// Aborts unless counts and times agree. For tests.
  void CheckInvariants() const;

  static constexpr TimeNs kPast{INT64_MIN};

 private:
  struct State {
    TimeNs until[kRetentions] = {kPast, kPast, kPast, kPast};
    TimeNs end = kPast;  ///< Of the wishes for this block itself.
    TimeNs queued = kTimeNever;
    bool forget = false, doomed = false;
    Retention retention = Retention::kNormal;  ///< In effect.
    TenantId owner{};                          ///< Of the pin.
  };
  void SetClass(State& state, Retention retention);
  void Enqueue(FrameId frame, State& state, TimeNs at);
  void Compact();

  const uint32_t pins_max_;
  uint32_t lows_ = 0;  ///< Frames with a time for kLow.
  std::array<uint32_t, kRetentions> counts_ = {};
  absl::flat_hash_map<TenantId, uint32_t> pins_;  ///< By owner; none is 0.
  absl::flat_hash_map<FrameId, State> states_;
  /// A heap, earliest first. An entry counts only while the frame's `queued` says the same.
  std::vector<std::pair<TimeNs, FrameId>> queue_;
};

}  // namespace kvist::kv
