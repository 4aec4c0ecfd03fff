#pragma once

/// @file
/// Tells when a tier below memory has changed its state: a drive that fails is read no more, or written no more, and
/// whoever runs the server should learn of it from the log. Pure; one thread. Non-goals: figures (serve_metrics.h,
/// state_view.h).

#include <map>
#include <span>
#include <string>
#include <vector>

#include "kv/cold_blocks.h"

namespace kvist::serve {

class TierWatch {
 public:
  struct News {
    std::string text;    ///< "KV on drive (/fast/kvist): writing before, read-only now: No space left on device"
    bool worse = false;  ///< It does less than before.
  };

  /// @param places  where tiers lie, by their names
  explicit TierWatch(std::map<std::string, std::string> places) : places_(std::move(places)) {}

  /// What is new since the last call. The first state of a tier is no news.
  std::vector<News> Look(std::span<const kv::TierFigures> tiers);

 private:
  const std::map<std::string, std::string> places_;
  std::map<std::string, std::string> states_;  ///< By name.
};

}  // namespace kvist::serve
