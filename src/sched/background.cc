#include "sched/background.h"

#include <algorithm>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

bool IsUrgent(const RequestView& view) {
  return view.priority != kBackgroundPriority;
}

}  // namespace

double BackgroundStepNs(std::span<const RequestView> running, std::span<const RequestView> waiting,
                        const StepCost& cost, TimeNs now) {
  if (std::ranges::any_of(waiting, IsUrgent)) return 0;
  TimeNs due = kTimeNever;
  for (const RequestView& view : running) {
    if (!IsUrgent(view)) continue;
    if (!IsDecode(view) || view.next_token_due == kTimeNever) return 0;
    due = std::min(due, view.next_token_due);
  }
  return due == kTimeNever || due <= now ? 0 : WithoutErrors(static_cast<double>(due - now), cost);
}

}  // namespace kvist::sched
