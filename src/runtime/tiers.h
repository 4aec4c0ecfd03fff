#pragma once

/// @file
/// Tiers below hot memory, as the options of a server ask for them: cold memory, a store on a drive that belongs to one
/// model file, and who decides what is written there. Used once, at the start. Non-goals: moving blocks
/// (engine/engine_tier.h).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "kv/page_layout.h"
#include "kv/tier/admission.h"
#include "kv/tier/frame_codec.h"
#include "modelfile/gguf.h"

namespace kvist::runtime {

struct TierOptions {
  uint64_t cold_memory_bytes = 0;                  ///< 0 = none.
  std::string cold_codec{kv::kDefaultFrameCodec};  ///< kv::MakeFrameCodec. With "int8" answers are not exact any more.
  bool paced = true;                               ///< kv::TierStackOptions
  std::string folder;                              ///< Of the store; "" = none.
  uint64_t disk_bytes = uint64_t{20} << 30;        ///< That it may take.
  bool read_only = false;                          ///< Beside a process that writes.
  std::string admission{kv::kDefaultAdmission};    ///< kv::MakeAdmissionPolicy
  uint64_t written_bytes_per_day = 0;              ///< 0 = no limit. For the policies that have one.

  bool any() const { return !folder.empty() || cold_memory_bytes > 0; }
  /// Blocks do not always come back as they were.
  bool LosesBits() const { return cold_memory_bytes > 0 && cold_codec != kv::kDefaultFrameCodec; }
};

/// What the bytes of a model's files hash to: tokenizer, numbers and weights. It takes as long as reading them; the
/// result is kept in `folder` and used as long as the files' stamps say that nothing changed.
/// Errors: those of the file system, when the folder cannot be made.
absl::StatusOr<uint64_t> ModelDigest(const GgufFile& file, const std::string& folder);

struct OpenedTiers {
  std::unique_ptr<kv::AdmissionPolicy> admission;
  std::unique_ptr<kv::ColdBlocks> cold;
};
/// @param arena  outlives what is opened
/// Errors: InvalidArgument for options that do not fit; Unavailable where another process writes to the store; those of
/// the file system, with the folder.
absl::StatusOr<OpenedTiers> OpenTiers(const TierOptions& options, uint64_t fingerprint, const kv::PageLayout& layout,
                                      const kv::FrameArena& arena);

}  // namespace kvist::runtime
