#pragma once

/// @file
/// Defects that are put into a simulated world on purpose, to see that its checkers find them: wrappers at the seams
/// (executor, drive, clock, meters), and wrong turns of the router and of workers. A test of the tester; the product
/// knows nothing of them. Threads: one.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/prng.h"
#include "engine/metering.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "kv/span_table.h"
#include "step/executor.h"

namespace kvist::lab {

enum class Defect : uint8_t {
  kNone,
  kLostWrite,       ///< A slot that a step computed is not written.
  kLostCopy,        ///< A block is not copied before it is written to.
  kWrongShift,      ///< Keys are read at a position that is one off.
  kWrongSalt,       ///< A request uses the cache of another tenant.
  kDoubledToken,    ///< A token is told twice.
  kLeakedSequence,  ///< A sequence is begun in KV memory and never ends.
  kEarlyRelease,    ///< A frame is given back while its bytes are still being written to the drive.
  kSwappedBlocks,   ///< The drive gives the bytes of another block.
  kStaleRoute,      ///< The router stays with a worker that is gone.
  kLostRequest,     ///< The router forgets a request whose worker is silent.
  kAnsweredTwice,   ///< The router passes on every copy of an answer.
  kMeterOff,        ///< One token too many on a meter.
  kClockBack,       ///< The clock goes back by a little.
  kIgnoredCancel,   ///< A cancelled request runs on.
  kDoubledRequest,  ///< A worker does not know requests again that it has already.
};

struct DefectEntry {
  Defect defect;
  std::string_view name, summary;
};
std::span<const DefectEntry> Defects();
/// nullptr when unknown.
const DefectEntry* FindDefect(std::string_view name);

/// When a defect shows. One a world.
class DefectDice {
 public:
  DefectDice(Defect defect, uint64_t seed) : defect_(defect), prng_(Mix64(seed ^ 0xdefec7)) {}
  bool Is(Defect defect) const { return defect_ == defect; }
  /// Now? Once in `every` times.
  bool Hits(Defect defect, uint64_t every) { return Is(defect) && prng_.Below(every) == 0; }
  uint64_t Below(uint64_t bound) { return prng_.Below(bound); }

 private:
  const Defect defect_;
  Prng prng_;
};

class DefectiveExecutor final : public step::Executor {
 public:
  /// References outlive it.
  DefectiveExecutor(step::Executor& inner, const kv::SpanTable& spans, const kv::FrameArena& arena, DefectDice& dice)
      : inner_(inner), spans_(spans), arena_(arena), dice_(dice) {}

  std::string_view Name() const override { return inner_.Name(); }
  const step::ExecutorLimits& Limits() const override { return inner_.Limits(); }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  std::optional<TimeNs> NextCompletion() const override { return inner_.NextCompletion(); }
  void SetWake(std::function<void()> wake) override { inner_.SetWake(std::move(wake)); }

 private:
  step::Executor& inner_;
  const kv::SpanTable& spans_;
  const kv::FrameArena& arena_;
  DefectDice& dice_;
};

class DefectiveClock final : public Clock {
 public:
  DefectiveClock(const Clock& inner, DefectDice& dice) : inner_(inner), dice_(dice) {}
  TimeNs Now() const override {
    return inner_.Now() + (dice_.Hits(Defect::kClockBack, 20000) ? -int64_t{1'000'000} : 0);
  }

 private:
  const Clock& inner_;
  DefectDice& dice_;
};

class DefectiveBook final : public engine::MeterBook {
 public:
  DefectiveBook(engine::MeterBook& inner, DefectDice& dice) : inner_(inner), dice_(dice) {}
  engine::Meter* Open(RequestId id, const engine::GenerationRequest& request) override {
    return inner_.Open(id, request);
  }
  void Close(engine::Meter* meter, engine::FinishReason reason) override {
    if (dice_.Hits(Defect::kMeterOff, 20)) ++meter->computed_tokens;
    inner_.Close(meter, reason);
  }
  void TakeHoldings(std::span<const kv::TierHolding> holdings) override { inner_.TakeHoldings(holdings); }

 private:
  engine::MeterBook& inner_;
  DefectDice& dice_;
};

class DefectiveColdBlocks final : public kv::ColdBlocks {
 public:
  DefectiveColdBlocks(kv::ColdBlocks& inner, const kv::FrameArena& arena, DefectDice& dice)
      : inner_(inner), arena_(arena), dice_(dice) {}

  kv::ColdRun Lookup(std::span<const kv::ContentId> ids) override { return inner_.Lookup(ids); }
  void CountLookup(const kv::ColdRun& run) override { inner_.CountLookup(run); }
  kv::ColdPlaces PlacesFor(const kv::ContentId& id) const override { return inner_.PlacesFor(id); }
  double LoadNs(const kv::ColdRun& run) const override { return inner_.LoadNs(run); }
  bool IsWriting() const override { return inner_.IsWriting(); }
  kv::ColdTicket Load(std::span<const kv::ColdRead> blocks, TimeNs now) override;
  kv::ColdTicket Store(std::span<const kv::ColdWrite> blocks, TimeNs now) override;
  void Poll(TimeNs now, kv::ColdNews& out, bool wait) override;
  bool busy() const override { return inner_.busy() || !early_.empty(); }
  void Close(const std::function<bool()>& keep) override { inner_.Close(keep); }
  void Forget(std::span<const kv::ContentId> ids) override { inner_.Forget(ids); }
  std::vector<kv::TierFigures> Figures() const override { return inner_.Figures(); }
  void Advance(TimeNs now) override { inner_.Advance(now); }
  std::vector<kv::TierHolding> Holdings() const override { return inner_.Holdings(); }

 private:
  kv::ColdBlocks& inner_;
  const kv::FrameArena& arena_;
  DefectDice& dice_;
  absl::flat_hash_map<kv::ColdTicket, std::vector<FrameId>> loads_;
  std::vector<kv::ColdTicket> early_, told_;
};

}  // namespace kvist::lab
