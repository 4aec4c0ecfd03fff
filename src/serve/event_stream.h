#pragma once

/// @file
/// Reads server-sent events from pieces of any size. One thread. Non-goals: reconnecting, event ids.

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvist::serve {

/// Source of the format: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
class EventStreamReader {
 public:
  /// Longest data of one event, and longest line.
  static constexpr size_t kEventBytesMax = 16u << 20;

  /// Calls on_event(std::string_view name, std::string_view data) for each event that `piece` completes; `name` is ""
  /// when not given. Comments and events without data are left out. Errors: ResourceExhausted above kEventBytesMax.
  template <class OnEvent>
  absl::Status Feed(std::string_view piece, const OnEvent& on_event) {
    while (!piece.empty()) {
      if (skip_newline_ && piece.front() == '\n') piece.remove_prefix(1);  // The second half of "\r\n".
      skip_newline_ = false;
      const size_t end = std::min(piece.find_first_of("\r\n"), piece.size());
      if (line_.size() + end + data_.size() > kEventBytesMax) {
        return absl::ResourceExhaustedError("an event of the stream is longer than 16 MiB");
      }
      line_.append(piece.substr(0, end));
      if (end == piece.size()) break;
      skip_newline_ = piece[end] == '\r';
      piece.remove_prefix(end + 1);
      if (TakeLine()) on_event(std::string_view(name_), std::string_view(data_).substr(0, data_.size() - 1));
      if (line_.empty()) {
        name_.clear();
        data_.clear();
      }
      line_.clear();
    }
    return absl::OkStatus();
  }

 private:
  /// @return  whether the line ends an event with data.
  bool TakeLine();

  std::string line_;  ///< That has not ended yet.
  std::string name_;
  std::string data_;  ///< Each line of it with "\n".
  bool skip_newline_ = false;
  bool first_line_ = true;
};

}  // namespace kvist::serve
