#pragma once

/// @file
/// How far something long has come, on standard error: on a terminal one line that is redrawn, elsewhere (a log) a line
/// of its own about every ten seconds. Threads: one at a time.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "exec/cpu/weights.h"

namespace kvist::cli {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();  ///< Clears the line.
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Draws `text`, cut to the terminal's width. Texts that come too soon after the one before are left out.
  void Show(std::string_view text);

  /// "label  37 %  12.0 MiB of 34.1 MiB  3.1 MiB/s  7 s left". The rate is that since the first call with this label.
  /// @param total_bytes  0 = unknown.
  void ShowBytes(std::string_view label, uint64_t done_bytes, uint64_t total_bytes);

  /// Removes the line, so that other text can be written. What a log has stays.
  void Clear();

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  bool on_terminal_;
  bool drawn_ = false;   ///< There is a line to remove.
  SteadyTime drawn_at_;  ///< Last text, or the beginning.
  std::string label_;
  SteadyTime label_since_{};
  uint64_t label_first_bytes_ = 0;
};

/// Draws how much of a model's weights is packed; for RuntimeOptions::progress.
exec::LoadProgress LoadingProgress();

}  // namespace kvist::cli
