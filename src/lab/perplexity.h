#pragma once

/// @file
/// Perplexity of a model on a text: how well it predicts what comes next. Drives step::Executor directly, one sequence
/// at a time in chunks, so that memory stays bounded for any text. The value has the same bits for every chunk size and
/// thread count, as long as nobody rewrites blocks.
///
/// Windows: the text is cut into windows that the model sees from position 0. A window holds `window_tokens` tokens,
/// the leading one (BOS) included where the vocabulary asks for it. Every text token is predicted and counted exactly
/// once, in the first window that can predict it; only the very first token of a text without leading token is not
/// counted, since nothing stands before it. Without a leading token a window therefore starts with the last token of
/// the one before. With `stride_tokens` windows start that many tokens apart and overlap: each counted token of a later
/// window then has at least window_tokens - stride_tokens tokens before it.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::lab {

struct PerplexityOptions {
  uint32_t window_tokens = 0;  ///< 0 = the smaller of 2048 and the executor's context.
  uint32_t stride_tokens = 0;  ///< Text tokens between the starts of windows; 0 = windows do not overlap.
  uint32_t chunk_tokens = 0;   ///< Tokens of one step; 0 = as many as the executor takes.
  /// Called with the frame of each full block once its step is done: later steps read what it leaves there.
  std::function<void(FrameId frame)> rewrite;
  /// Told after each step the text tokens counted so far and in all; false ends it (Cancelled).
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

struct PerplexityResult {
  double nll_sum = 0;   ///< Negative log-likelihood of the counted tokens, nats; summed in text order.
  uint64_t tokens = 0;  ///< Counted.
  uint32_t windows = 0;
  uint32_t window_tokens = 0, stride_tokens = 0;  ///< As used.
  double MeanNll() const { return nll_sum / static_cast<double>(tokens); }
  double Perplexity() const;  ///< exp(MeanNll()).
};

/// @param leading  put before each window; nullopt for vocabularies that add none.
/// REQUIRES: no step in flight, memory without sequences. Errors: InvalidArgument (text too short, window or stride
/// that do not fit, with the numbers), those of the executor.
absl::StatusOr<PerplexityResult> MeasurePerplexity(step::Executor& executor, kv::KvMemory& memory,
                                                   std::optional<TokenId> leading, std::span<const TokenId> text,
                                                   const PerplexityOptions& options = {});

}  // namespace kvist::lab
