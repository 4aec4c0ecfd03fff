#pragma once

/// @file
/// Recorded requests of real services, as plain data: when each came, how long its prompt and answer were, and which
/// beginnings prompts share. Formats: Mooncake's JSON lines (blocks of 512 tokens by hash id), agent sessions (one JSON
/// object a session, blocks of 64 tokens), Azure's CSV (lengths alone). Threads: any.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"

namespace kvist::workload {

struct TraceRequest {
  double at_s = 0;       ///< Since the trace's start.
  uint32_t session = 0;  ///< Index of the file or session it belongs to.
  uint32_t input_tokens = 0, output_tokens = 0;
  std::vector<uint64_t> block_hashes;  ///< Of the whole blocks that the prompt begins with; equal = equal tokens.
};

struct Trace {
  uint32_t block_tokens = 0;  ///< Of a hash; 0 = the trace says nothing about contents.
  std::vector<TraceRequest> requests;
};

enum class TraceFormat : uint8_t { kMooncake, kAgentSession, kAzure };

/// Reads one file's text; the format is seen from its beginning. Hash ids that only mean something inside a session are
/// made distinct by `session`. Errors: InvalidArgument naming the line or the request.
absl::StatusOr<Trace> ParseTrace(std::string_view text, uint32_t session = 0);

/// Reads several files as one trace, in order of time; each file is a session of its own where the format has sessions.
/// Errors: those of ParseTrace and of reading, naming the file; InvalidArgument when block sizes differ.
absl::StatusOr<Trace> LoadTraces(const std::vector<std::string>& paths);

/// The prompt of a request: tokens below `vocab_size` that are equal where the hashes are, and differ elsewhere.
std::vector<TokenId> PromptTokens(const TraceRequest& request, uint32_t block_tokens, uint32_t vocab_size,
                                  uint64_t request_index);

}  // namespace kvist::workload
