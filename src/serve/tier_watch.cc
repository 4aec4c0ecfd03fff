#include "serve/tier_watch.h"

#include "base/status.h"

namespace kvist::serve {

std::vector<TierWatch::News> TierWatch::Look(std::span<const kv::TierFigures> tiers) {
  std::vector<News> news;
  for (const kv::TierFigures& tier : tiers) {
    const auto [known, is_first] = states_.try_emplace(tier.name, tier.state);
    if (is_first || known->second == tier.state) continue;
    const auto place = places_.find(tier.name);
    news.push_back(
        {.text = Cat("KV on ", tier.name, place == places_.end() ? "" : Cat(" (", place->second, ")"), ": ",
                     known->second, " before, ", tier.state, " now", tier.reason.empty() ? "" : ": ", tier.reason),
         .worse = tier.state != "writing"});
    known->second = tier.state;
  }
  return news;
}

}  // namespace kvist::serve
