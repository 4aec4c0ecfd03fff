#include "cli/progress.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/byte_size.h"
#include "platform/terminal.h"

namespace kvist::cli {
namespace {

constexpr std::chrono::milliseconds kRedrawEvery(100);
constexpr std::chrono::seconds kLogEvery(10);

}  // namespace

StatusLine::StatusLine() : on_terminal_(StderrIsTerminal()), drawn_at_(std::chrono::steady_clock::now()) {}

StatusLine::~StatusLine() {
  Clear();
}

void StatusLine::Show(std::string_view text) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (!on_terminal_) {
    if (now - drawn_at_ < kLogEvery) return;
    drawn_at_ = now;
    fmt::print(stderr, "{}\n", text);
    return;
  }
  if (drawn_ && now - drawn_at_ < kRedrawEvery) return;
  drawn_ = true;
  drawn_at_ = now;
  text = text.substr(0, StderrColumns() - 1);
  fmt::print(stderr, "\r{}\033[K", text);
  std::fflush(stderr);
}

void StatusLine::ShowBytes(std::string_view label, uint64_t done_bytes, uint64_t total_bytes) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (label != label_) {
    label_ = label;
    label_since_ = now;
    label_first_bytes_ = done_bytes;
    drawn_ = false;  // Another phase is shown at once.
  }
  std::string text(label);
  if (total_bytes > 0) text += fmt::format("  {:3} %", done_bytes * 100 / total_bytes);
  text += "  " + FormatByteSize(done_bytes);
  if (total_bytes > 0) text += " of " + FormatByteSize(total_bytes);
  const double seconds = std::chrono::duration<double>(now - label_since_).count();
  if (seconds > 0.5 && done_bytes > label_first_bytes_) {
    const double rate = static_cast<double>(done_bytes - label_first_bytes_) / seconds;
    text += "  " + FormatByteSize(static_cast<uint64_t>(rate)) + "/s";
    if (total_bytes > done_bytes) {
      text += fmt::format("  {:.0f} s left", static_cast<double>(total_bytes - done_bytes) / rate);
    }
  }
  Show(text);
}

void StatusLine::Clear() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

exec::LoadProgress LoadingProgress() {
  return [line = std::make_shared<StatusLine>()](uint64_t done, uint64_t total) {
    if (done >= total) return line->Clear();
    line->ShowBytes("loading", done, total);
  };
}

}  // namespace kvist::cli
