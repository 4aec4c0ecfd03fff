#pragma once

/// @file
/// Turns a request's output tokens into text that may be shown: whole characters, never part of a stop string.
/// One per request; engine thread only.

#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/generation.h"
#include "modelfile/tokenizer.h"

namespace kvist::engine {

class OutputText {
 public:
  /// `tokenizer` must outlive this. Control tokens give no text, but for those in `shown`.
  OutputText(const Tokenizer& tokenizer, std::vector<std::string> stop, bool strip_leading_space,
             std::vector<TokenId> shown = {});

  /// Takes the next token. @return true when a stop string is complete; what follows it is dropped.
  bool Push(TokenEvent token);

  /// The stop string that was found; "" = none yet.
  const std::string& found_stop() const { return found_stop_; }

  /// No more tokens will come: what was held back becomes ready.
  void Finish();

  /// What was pushed so far was emitted before: the first `bytes` of its text (UINT64_MAX = all of it, with what is
  /// held back) and its tokens. It still counts for stop strings.
  void SkipEmitted(uint64_t bytes);

  /// Bytes of text handed out, or skipped.
  uint64_t emitted_bytes() const { return std::max(taken_, skipped_); }

  /// Moves what is ready to `event`: text, and the tokens that it is made of.
  void TakeReady(GenerationEvent& event);

 private:
  struct HeldToken {
    TokenEvent token;
    size_t text_begin, text_end;  ///< Bytes of output text; equal for tokens without text.
  };

  size_t HeldBackBytes() const;

  Detokenizer detokenizer_;
  std::vector<std::string> stop_;
  std::vector<TokenId> shown_;
  std::string found_stop_;
  std::string pending_;  ///< Text not yet ready, then ready text up to ready_.
  size_t ready_ = 0;     ///< Bytes of pending_ that may be shown.
  size_t taken_ = 0;     ///< Bytes handed out before pending_.
  size_t skipped_ = 0;   ///< Of the whole output: text before this is not handed out.
  std::vector<HeldToken> held_;
  bool stopped_ = false;
  bool all_ready_ = false;
};

}  // namespace kvist::engine
