#pragma once

/// @file
/// Sequences whose views are made of segments, run through a CPU executor for tests: appended to, forked, with ranges
/// dropped and what follows moved up. Addresses are laid out here, without a memory system. Aborts on errors.

#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_executor.h"

namespace kvist::exec {

/// One sequence as a planner sees it. Copying it makes a fork that sees the same tokens; the fork takes a tail of its
/// own before it goes on (SegmentWorld::NewTail).
struct SegmentSequence {
  std::vector<step::Segment> view;
  SpanId tail{};
  uint32_t tail_tokens = 0;
  uint32_t position = 0;  ///< Of the next token.

  uint32_t tokens() const;

  /// Takes the view's tokens [begin, end) out of it and moves what follows up to their positions.
  void Drop(uint32_t begin, uint32_t end);
  /// Cuts every segment into pieces of at most `tokens`.
  void Cut(uint32_t tokens);
};

class SegmentWorld {
 public:
  struct Options {
    uint32_t threads = 1;
    kernels::Isa isa = kernels::BestIsa();
    KvType kv_type = KvType::kF16;
    bool share_segments = true;
    uint32_t context_tokens = 0;  ///< 0 = the model's.
  };
  SegmentWorld(const std::string& path, const Options& options);

  /// An open span of so many blocks.
  SpanId NewSpan(uint32_t blocks);
  /// The sequence goes on in a span of its own, from token `first` of its first block on.
  void NewTail(SegmentSequence& sequence, uint32_t blocks, uint32_t first = 0);

  /// What a sequence adds in one step.
  struct Turn {
    SegmentSequence* sequence;
    std::vector<TokenId> tokens;
    std::vector<step::ViewRange> mass_ranges = {};
  };
  /// One step. @return  logits of all tokens of each turn.
  std::vector<std::vector<float>> Step(const std::vector<Turn>& turns, const std::vector<step::BlockCopy>& copies = {});
  /// Steps of at most `chunk` tokens of one sequence. @return  logits of all of them.
  std::vector<float> Append(SegmentSequence& sequence, std::span<const TokenId> tokens, uint32_t chunk = 512);

  /// Of the last step: what each turn's last token paid to its ranges, turn after turn.
  const std::vector<float>& range_mass() const { return range_mass_; }
  uint64_t kv_bytes_read() const { return kv_bytes_read_; }  ///< Of the last step.
  uint32_t vocab() const { return executor_->Limits().vocab_size; }
  const model::Model& model() const { return *model_; }
  uint32_t context_tokens() const { return executor_->Limits().context_tokens_max; }

 private:
  RealClock clock_;
  std::shared_ptr<const model::Model> model_;
  kv::SpanTable spans_;
  std::unique_ptr<CpuExecutor> executor_;
  uint32_t next_frame_ = 0;
  std::vector<float> range_mass_;
  uint64_t kv_bytes_read_ = 0;
};

}  // namespace kvist::exec
