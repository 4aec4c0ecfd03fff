#include "engine/output_text.h"

#include <algorithm>

namespace kvist::engine {

OutputText::OutputText(const Tokenizer& tokenizer, std::vector<std::string> stop, bool strip_leading_space,
                       std::vector<TokenId> shown)
    : detokenizer_(tokenizer, /*render_control=*/false, strip_leading_space),
      stop_(std::move(stop)),
      shown_(std::move(shown)) {
  std::erase_if(stop_, [](const std::string& s) { return s.empty(); });
}

/// Longest end of pending_ that a stop string may begin with.
size_t OutputText::HeldBackBytes() const {
  size_t held = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
      if (pending_.compare(pending_.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  return held;
}

bool OutputText::Push(TokenEvent token) {
  if (stopped_) return true;
  const size_t begin = taken_ + pending_.size();
  pending_ += detokenizer_.Push(token.token, std::ranges::find(shown_, token.token) != shown_.end());
  held_.push_back({std::move(token), begin, taken_ + pending_.size()});
  size_t found = std::string::npos;
  for (const std::string& stop : stop_) {
    const size_t place = pending_.find(stop);
    if (place >= found) continue;
    found = place;
    found_stop_ = stop;
  }
  if (found == std::string::npos) {
    ready_ = pending_.size() - HeldBackBytes();
    return false;
  }
  pending_.resize(found);
  ready_ = found;
  std::erase_if(held_,
                [&](const HeldToken& h) { return h.text_end > taken_ + found && h.text_begin >= taken_ + found; });
  all_ready_ = stopped_ = true;
  return true;
}

void OutputText::Finish() {
  if (stopped_) return;
  pending_ += detokenizer_.Finish();
  ready_ = pending_.size();
  all_ready_ = stopped_ = true;
}

void OutputText::SkipEmitted(uint64_t bytes) {
  const size_t all = taken_ + pending_.size();
  skipped_ = static_cast<size_t>(std::min<uint64_t>(bytes, all));
  held_.clear();
}

void OutputText::TakeReady(GenerationEvent& event) {
  const size_t skip = std::min(ready_, skipped_ - std::min(skipped_, taken_));
  event.text.append(pending_, skip, ready_ - skip);
  pending_.erase(0, ready_);
  taken_ += ready_;
  ready_ = 0;
  size_t count = 0;
  while (count < held_.size() && (all_ready_ || held_[count].text_end <= taken_)) {
    event.token_ids.push_back(held_[count].token.token);
    event.tokens.push_back(std::move(held_[count].token));
    ++count;
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace kvist::engine
