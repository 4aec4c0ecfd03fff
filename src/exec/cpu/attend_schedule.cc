#include "exec/cpu/attend_schedule.h"

#include <algorithm>

namespace kvist::exec {
namespace {

using attention::kSectionBlocks;
using attention::ViewBlock;

std::span<const ViewBlock> ViewOf(const StepBatch& batch, uint32_t run) {
  return std::span(batch.view_blocks).subspan(batch.runs[run].view_begin, batch.runs[run].view_count);
}

std::span<const ViewBlock> SectionOf(const StepBatch& batch, uint32_t run, uint32_t section) {
  const std::span<const ViewBlock> view = ViewOf(batch, run);
  const size_t first = std::min(view.size(), size_t{section} * kSectionBlocks);
  return view.subspan(first, std::min<size_t>(kSectionBlocks, view.size() - first));
}

uint32_t TokensOf(std::span<const ViewBlock> blocks) {
  uint32_t tokens = 0;
  for (const ViewBlock& block : blocks) tokens += block.count;
  return tokens;
}

}  // namespace

void AttendSchedule::Reserve(uint32_t tokens, uint32_t slices, uint32_t sections) {
  // A slice has at most one run of one token; only those are cut.
  const size_t runs = tokens / StepBatch::kQueryRunTokens + slices, cut = size_t{slices} * sections;
  items_.reserve(runs + cut);
  merges_.reserve(slices);
  parts_.reserve(cut);
  readers_.reserve(runs + cut);
  covered_.reserve(runs);
  order_.reserve(slices);
  alike_.reserve(slices);
}

void AttendSchedule::Build(const StepBatch& batch, const Options& options) {
  items_.clear();
  merges_.clear();
  readers_.clear();
  order_.clear();
  sums_tokens_ = 0;
  covered_.assign(batch.runs.size(), {});
  uint32_t parts = 0;
  for (uint32_t run = 0; run < batch.runs.size(); ++run) {
    if (batch.runs[run].rows > 1) continue;
    covered_[run].parts_begin = parts;
    parts += attention::SectionsOf(batch.runs[run].view_count);
    order_.push_back(run);
  }
  parts_.resize(parts);
  if (options.share) Share(batch);
  // With few pieces, a thread could hold up the others by a long view.
  const bool cut = batch.runs.size() * options.kv_heads < options.pieces_wanted;
  for (uint32_t run = 0; run < batch.runs.size(); ++run) AddRest(batch, run, cut);
}

void AttendSchedule::Share(const StepBatch& batch) {
  alike_.assign(1, {0, static_cast<uint32_t>(order_.size()), 0, 0});
  while (!alike_.empty()) {
    Alike all = alike_.back();
    alike_.pop_back();
    while (all.begin < all.end) {
      const uint32_t end = GatherAlike(batch, all);
      if (end - all.begin > 1) {
        const uint32_t tokens = TokensOf(SectionOf(batch, order_[all.begin], all.section));
        for (uint32_t first = all.begin; first < end; first += kReadersMax) {
          const uint32_t count = std::min(kReadersMax, end - first);
          AddSection(std::span(order_).subspan(first, count), all.section, all.start, tokens);
        }
        alike_.push_back({all.begin, end, all.section + 1, all.start + tokens});
      }
      all.begin = end;
    }
  }
}

uint32_t AttendSchedule::GatherAlike(const StepBatch& batch, const Alike& alike) {
  uint32_t end = alike.begin + 1;
  const std::span<const ViewBlock> section = SectionOf(batch, order_[alike.begin], alike.section);
  if (section.size() < kSectionBlocks) return end;  // It holds tokens of this step, which nobody else has.
  for (uint32_t i = end; i < alike.end; ++i) {
    if (std::ranges::equal(SectionOf(batch, order_[i], alike.section), section)) std::swap(order_[i], order_[end++]);
  }
  return end;
}

void AttendSchedule::AddSection(std::span<const uint32_t> runs, uint32_t section, uint32_t start, uint32_t tokens) {
  const auto count = static_cast<uint32_t>(runs.size());
  for (uint32_t reader = 0; reader < count; ++reader) {
    Covered& covered = covered_[runs[reader]];
    parts_[covered.parts_begin + section] = {static_cast<uint32_t>(items_.size()), reader};
    covered.sections = section + 1;
    covered.tokens = start + tokens;
  }
  items_.push_back({.readers_begin = static_cast<uint32_t>(readers_.size()),
                    .readers_count = count,
                    .section = section,
                    .start = start,
                    .tokens = tokens,
                    .sums = sums_tokens_});
  readers_.insert(readers_.end(), runs.begin(), runs.end());
  sums_tokens_ += count;
}

void AttendSchedule::AddRest(const StepBatch& batch, uint32_t run, bool cut) {
  const QueryRun& query = batch.runs[run];
  const uint32_t sections = attention::SectionsOf(query.view_count);
  const uint32_t shared = covered_[run].sections;
  if (query.rows > 1 || (shared == 0 && (!cut || sections == 1))) {
    items_.push_back(
        {.readers_begin = static_cast<uint32_t>(readers_.size()), .tokens = query.query_index + query.rows});
    readers_.push_back(run);
    return;
  }
  for (uint32_t section = shared; section < sections; ++section) {
    AddSection(std::span(&run, 1), section, covered_[run].tokens, TokensOf(SectionOf(batch, run, section)));
  }
  merges_.push_back({.run = run, .parts = std::span(parts_).subspan(covered_[run].parts_begin, sections)});
}

uint64_t AttendSchedule::TokensRead(const StepBatch& batch, uint32_t window) const {
  uint64_t tokens = 0;
  for (const AttendItem& item : items_) {
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t run : ReadersOf(item)) {
      const QueryRun& query = batch.runs[run];
      const bool limited = window != 0 && query.query_index + 1 > window;
      low = std::min(low, limited ? query.query_index + 1 - window : 0);
      high = std::max(high, query.query_index + query.rows);
    }
    low = std::max(low, item.start);
    high = std::min(high, item.start + item.tokens);
    tokens += high > low ? high - low : 0;
  }
  return tokens;
}

}  // namespace kvist::exec
