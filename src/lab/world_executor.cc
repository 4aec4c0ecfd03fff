#include "lab/world_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "lab/world_content.h"
#include "sched/step_work.h"

namespace kvist::lab {

absl::Status ContentExecutor::Translate(const step::StepPlan& plan) {
  places_.clear();
  copies_.clear();
  for (const step::BlockCopy& copy : plan.block_copies) {
    const kv::PageEntry& source = spans_.At(copy.source, copy.source_block);
    const kv::PageEntry& target = spans_.At(copy.target, copy.target_block);
    if (!kv::IsReadable(source.state) || !kv::IsReadable(target.state)) {
      return absl::FailedPreconditionError("a block that is to be copied is not in memory");
    }
    copies_.push_back({source.frame, target.frame});
  }
  for (const step::Segment& segment : plan.segments) {
    for (uint32_t i = 0; i < segment.tokens_count; ++i) {
      const uint32_t token = segment.token_begin + i;
      const kv::PageEntry& entry = spans_.At(segment.span, token / kv::kBlockTokens);
      if (!kv::IsReadable(entry.state)) {
        return absl::FailedPreconditionError(Cat("block ", token / kv::kBlockTokens, " of span ", segment.span.value,
                                                 " is to be read and not in memory"));
      }
      places_.push_back({entry.frame, token % kv::kBlockTokens, segment.position_shift});
    }
  }
  return absl::OkStatus();
}

absl::Status ContentExecutor::Submit(step::StepPlan&& plan) {
  if (result_) return absl::UnavailableError("one step at a time");
  if (failed_for_good_) return failure_;
  for (const step::Slice& slice : plan.slices) {
    if (std::string fault = hooks_.fault_of(slice.request); !fault.empty()) {
      hooks_.report("requests", Cat("request ", slice.request.value, " is computed, but ", fault));
    }
  }
  if (absl::Status status = Translate(plan); !status.ok()) {
    hooks_.report("views", std::string(status.message()));
    return status;
  }
  result_.emplace();
  result_->id = plan.id;
  const double ns = cost_.Ns(sched::WorkOf(plan)) * slowness_ * (1 + 0.2 * prng_.Uniform());
  result_->started_at = clock_.Now();
  result_->finished_at = result_->started_at + static_cast<int64_t>(ns);
  result_->plan = std::move(plan);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<step::StepResult>> ContentExecutor::Poll() {
  if (!result_) return std::optional<step::StepResult>();
  if (!failure_.ok()) {
    result_.reset();
    return failed_for_good_ ? failure_ : std::exchange(failure_, absl::OkStatus());
  }
  if (result_->finished_at > clock_.Now()) return std::optional<step::StepResult>();
  Compute();
  ++totals_.steps;
  totals_.step_ns += result_->finished_at - result_->started_at;
  for (const step::Slice& slice : result_->plan.slices) {
    totals_.tokens += slice.commit_count;
    // What comes too late for a request that was cancelled meanwhile is nobody's.
    if (slice.sampling && hooks_.fault_of(slice.request).empty()) ++totals_.sampled;
  }
  return std::exchange(result_, std::nullopt);
}

void ContentExecutor::Compute() {
  for (const Copy& copy : copies_) {
    std::memcpy(arena_.Frame(copy.target), arena_.Frame(copy.source), kContentFrameBytes);
  }
  size_t place = 0;
  for (const step::Slice& slice : result_->plan.slices) ComputeSlice(slice, place);
  result_->range_mass.assign(result_->plan.mass_ranges.size(), 0.0f);
}

void ContentExecutor::ComputeSlice(const step::Slice& slice, size_t& place) {
  const step::StepPlan& plan = result_->plan;
  const uint64_t cache_namespace = hooks_.namespace_of(slice.request);
  size_t view = 0;
  for (uint32_t s = 0; s < slice.segments_count; ++s) view += plan.segments[slice.segments_begin + s].tokens_count;
  KVIST_CHECK(view >= slice.tokens_count);
  ContentFold fold;
  for (const size_t end = place + view - slice.tokens_count; place < end; ++place) {
    const Place& at = places_[place];
    const ContentSlot slot = ReadSlot(arena_.Frame(at.frame), at.slot);
    if (slot.mark != slot.MarkOf()) {
      hooks_.report("views", Cat("request ", slice.request.value, " reads slot ", at.slot, " of frame ", at.frame.value,
                                 ", which holds no token"));
    } else if (slot.cache_namespace != cache_namespace) {
      hooks_.report("namespaces", Cat("request ", slice.request.value, " of namespace ", cache_namespace,
                                      " reads a token of namespace ", slot.cache_namespace));
    }
    fold.Read(slot.history, slot.position + static_cast<uint32_t>(at.shift));
  }
  for (uint32_t i = 0; i < slice.tokens_count; ++i, ++place) {
    const Place& at = places_[place];
    const ContentSlot slot =
        fold.Compute(cache_namespace, plan.tokens[slice.tokens_begin + i].known, slice.position + i);
    WriteSlot(arena_.Frame(at.frame), at.slot, slot);
    fold.Read(slot.history, slot.position);
  }
  if (slice.sampling) result_->sampled.push_back(fold.Sample(*slice.sampling));
}

}  // namespace kvist::lab
