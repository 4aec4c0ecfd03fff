#include "lab/world_defect.h"

#include <algorithm>
#include <array>

#include "lab/world_content.h"

namespace kvist::lab {
namespace {

constexpr std::array<DefectEntry, 15> kDefects = {{
    {Defect::kLostWrite, "lost-write", "a slot that a step computed is not written"},
    {Defect::kLostCopy, "lost-copy", "a block is not copied before it is written to"},
    {Defect::kWrongShift, "wrong-shift", "keys are read at a position that is one off"},
    {Defect::kWrongSalt, "wrong-salt", "a request uses the cache of another tenant"},
    {Defect::kDoubledToken, "doubled-token", "a token is told twice"},
    {Defect::kLeakedSequence, "leaked-sequence", "a sequence in KV memory never ends"},
    {Defect::kEarlyRelease, "early-release", "a frame is given back while it is still being written to the drive"},
    {Defect::kSwappedBlocks, "swapped-blocks", "the drive gives the bytes of another block"},
    {Defect::kStaleRoute, "stale-route", "the router stays with a worker that is gone"},
    {Defect::kLostRequest, "lost-request", "the router forgets a request whose worker is silent"},
    {Defect::kAnsweredTwice, "answered-twice", "the router passes on every copy of an answer"},
    {Defect::kMeterOff, "meter-off", "one token too many on a meter"},
    {Defect::kClockBack, "clock-back", "the clock goes back by a millisecond"},
    {Defect::kIgnoredCancel, "ignored-cancel", "a cancelled request runs on"},
    {Defect::kDoubledRequest, "doubled-request", "a worker does not know a request again that it has already"},
}};

}  // namespace

std::span<const DefectEntry> Defects() {
  return kDefects;
}

const DefectEntry* FindDefect(std::string_view name) {
  const auto* entry = std::ranges::find(kDefects, name, &DefectEntry::name);
  return entry == kDefects.end() ? nullptr : entry;
}

absl::Status DefectiveExecutor::Submit(step::StepPlan&& plan) {
  if (!plan.block_copies.empty() && dice_.Hits(Defect::kLostCopy, 2)) plan.block_copies.pop_back();
  if (!plan.segments.empty() && dice_.Hits(Defect::kWrongShift, 50)) ++plan.segments.front().position_shift;
  return inner_.Submit(std::move(plan));
}

absl::StatusOr<std::optional<step::StepResult>> DefectiveExecutor::Poll() {
  absl::StatusOr<std::optional<step::StepResult>> polled = inner_.Poll();
  if (!polled.ok() || !polled->has_value() || !dice_.Hits(Defect::kLostWrite, 50)) return polled;
  const step::StepPlan& plan = (*polled)->plan;
  const step::Slice& slice = plan.slices[dice_.Below(plan.slices.size())];
  const auto token = static_cast<uint32_t>(slice.tail_begin + dice_.Below(slice.tokens_count));
  const FrameId frame = spans_.FrameOf(slice.tail, token / kv::kBlockTokens);
  WriteSlot(arena_.Frame(frame), token % kv::kBlockTokens, {});
  return polled;
}

kv::ColdTicket DefectiveColdBlocks::Load(std::span<const kv::ColdRead> blocks, TimeNs now) {
  const kv::ColdTicket ticket = inner_.Load(blocks, now);
  for (const kv::ColdRead& block : blocks) loads_[ticket].push_back(block.frame);
  return ticket;
}

kv::ColdTicket DefectiveColdBlocks::Store(std::span<const kv::ColdWrite> blocks, TimeNs now) {
  const kv::ColdTicket ticket = inner_.Store(blocks, now);
  if (dice_.Hits(Defect::kEarlyRelease, 1)) early_.push_back(ticket);
  return ticket;
}

void DefectiveColdBlocks::Poll(TimeNs now, kv::ColdNews& out, bool wait) {
  kv::ColdNews news;
  news.stores = early_;
  told_.insert(told_.end(), early_.begin(), early_.end());
  early_.clear();
  kv::ColdNews true_news;
  inner_.Poll(now, true_news, wait && news.stores.empty());
  for (const kv::ColdTicket ticket : true_news.stores) {
    if (std::erase(told_, ticket) == 0) news.stores.push_back(ticket);
  }
  for (kv::ColdNews::Load& load : true_news.loads) {
    const std::vector<FrameId> frames = loads_.extract(load.ticket).mapped();
    if (frames.size() > 1 && load.missing.empty() && dice_.Hits(Defect::kSwappedBlocks, 2)) {
      std::swap_ranges(arena_.Frame(frames[0]), arena_.Frame(frames[0]) + kContentFrameBytes, arena_.Frame(frames[1]));
    }
    news.loads.push_back(std::move(load));
  }
  out.loads.insert(out.loads.end(), news.loads.begin(), news.loads.end());
  out.stores.insert(out.stores.end(), news.stores.begin(), news.stores.end());
}

}  // namespace kvist::lab
