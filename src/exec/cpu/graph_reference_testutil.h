#pragma once

/// @file
/// A model's graph computed the plain way, in double, token by token, with attention over explicit arrays: keys are
/// kept before their rotary positions and rotated when they are looked at. What an executor is held against where no
/// golden values can exist, as after operations on a cache. Not for experts. Non-goals: speed.

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace kvist::exec {

class GraphReference {
 public:
  /// An earlier token as a later one sees it.
  struct Seen {
    uint32_t token = 0;          ///< Number in order of Next.
    int32_t position_shift = 0;  ///< From the position that Next got for it.
  };

  /// @param context_tokens  chooses rotary frequencies, as an executor's.
  GraphReference(const model::Model& model, uint32_t context_tokens);

  /// @param view  in order, the new token itself not included; windows count in it.
  /// @return  [vocab_size] logits.
  std::vector<double> Next(TokenId token, int32_t position, std::span<const Seen> view);

  /// What the last token paid of its attention to each token of its view and to itself: averaged over heads and layers,
  /// those with windows only where all have some.
  std::vector<double> Attention() const;

 private:
  struct Kept {
    int32_t position;
    std::vector<double> key, value;
  };

  void Do(const model::Embed& op);
  void Do(const model::RmsNorm& op);
  void Do(const model::Linear& op);
  void Do(const model::Rope& op);
  void Do(const model::Attention& op);
  void Do(const model::Add& op);
  void Do(const model::Gated& op);
  void Do(const model::ExpertMlp& op);
  void Do(const model::Gather& op);
  void Do(const model::Softcap& op);

  /// One head at a position.
  std::vector<double> Rotated(std::span<const double> head, int32_t rope, int32_t position) const;

  const model::Model& model_;
  const uint32_t context_tokens_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<double>> buffers_;
  std::vector<int32_t> ropes_;             ///< [buffers] rotary kind to be applied when the rows are used, or -1.
  std::vector<std::vector<Kept>> layers_;  ///< [layers][tokens]
  TokenId token_{};
  int32_t position_ = 0;
  std::span<const Seen> view_;
  std::vector<std::vector<double>> attention_;  ///< [layers][view + 1] of the last token, averaged over heads.
  std::vector<bool> windowed_;                  ///< [layers]
};

}  // namespace kvist::exec
