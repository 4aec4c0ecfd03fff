#pragma once

/// @file
/// A model as a flat list of operations over numbered buffers. An architecture file builds it once; an executor
/// prepares it for its device and runs it for every step. Plain data. Non-goals: how an operation is computed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"
#include "model/spec.h"
#include "modelfile/gguf.h"

namespace kvist::model {

using BufferId = Strong<struct BufferIdTag, uint16_t>;
using WeightId = Strong<struct WeightIdTag, uint32_t>;

/// f32 [rows, stride]; rows = tokens of the step, or rows whose logits are wanted when `output_rows`. Operations may
/// use fewer elements of a row than its stride.
struct Buffer {
  uint32_t stride = 0;
  bool output_rows = false;
};

enum class WeightRole : uint8_t {
  kMatrix,     ///< [rows, cols] for Linear.
  kExperts,    ///< [experts, rows, cols] for ExpertMlp: one matrix after another.
  kEmbedding,  ///< [vocab, width], read row by row.
  kVector,     ///< Norm weight or bias.
};

/// A tensor of the file, or some of its rows, with the role it plays. One tensor may be several weights: a tied
/// embedding and head, or queries, keys and values in one tensor.
struct Weight {
  const GgufTensor* tensor = nullptr;
  WeightRole role = WeightRole::kMatrix;
  uint32_t first_row = 0;  ///< Where it begins in the tensor.
  uint32_t rows = 0;       ///< Rows of a matrix (each expert's), elements of a vector.
  uint32_t experts = 1;

  /// Of one row as it lies in the file; of one element of a vector.
  uint64_t row_bytes() const;
  /// Elements of one row; 1 for a vector.
  uint32_t cols() const;
  /// Where the weight begins in the file.
  const std::byte* data() const { return tensor->bytes.data() + first_row * row_bytes(); }
  /// Of all its rows and experts.
  uint64_t elements() const { return uint64_t{rows} * experts * cols(); }
  uint64_t file_bytes() const { return uint64_t{rows} * experts * row_bytes(); }
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

struct Embed {  ///< out = scale * embedding[token]
  WeightId weight;
  BufferId out;
  uint32_t width = 0;
  float scale = 1.0f;
};
struct RmsNorm {  ///< Over each group of `width` elements of a row: out = x / rms(x) * weight
  BufferId x, out;
  WeightId weight;
  uint32_t groups = 1, width = 0;
};
struct Linear {  ///< out = weight * x (+ bias)
  BufferId x, out;
  WeightId weight;
  std::vector<WeightId> bias;  ///< Empty or one.
};
struct Rope {  ///< In place.
  BufferId x;
  uint32_t heads = 0;
  uint16_t rope = 0;  ///< Index into Graph::ropes.
};
struct Attention {  ///< Stores k and v, then out = softmax(scale * q k') v over the view.
  BufferId q, k, v, out;
  uint32_t layer = 0;
  uint32_t window = 0;  ///< Tokens seen, itself included; 0 = all.
  float scale = 1.0f;
};
struct Add {  ///< out = a + b
  BufferId a, b, out;
  uint32_t width = 0;
};
struct Gated {  ///< out = activation(gate) * up
  BufferId gate, up, out;
  uint32_t width = 0;
  Activation activation = Activation::kSilu;
};
/// Each token goes through the `used` experts with the highest probabilities p = softmax(scores), best first, equal
/// ones by their index:
///   out = sum over these e, in that order, of w[e] * (down[e] * (activation(gate[e] x) * (up[e] x)))
/// with w = p, divided by the sum of the chosen ones where `normalised`, times `scale`. A token whose scores have no
/// softmax (a NaN, an infinite maximum) gets NaN.
struct ExpertMlp {
  BufferId x, scores, out;
  WeightId gate, up, down;
  ExpertSpec experts;
  Activation activation = Activation::kSilu;
};
struct Gather {  ///< out = rows of x whose logits are wanted
  BufferId x, out;
  uint32_t width = 0;
};
struct Softcap {  ///< x = cap * tanh(x / cap), in place
  BufferId x;
  uint32_t width = 0;
  float cap = 0;
};

using Op = std::variant<Embed, RmsNorm, Linear, Rope, Attention, Add, Gated, ExpertMlp, Gather, Softcap>;

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Weight> weights;
  std::vector<RopeSpec> ropes;
  std::vector<Op> ops;
  BufferId hidden;  ///< What the head reads: the last layer's output after its norm.
  BufferId logits;
};

/// Builds a graph in the order of its operations. Tensors are looked up by name and checked against the shape that the
/// operation needs; the first error is kept, later calls do nothing useful, and Finish returns it.
class GraphBuilder {
 public:
  GraphBuilder(const GgufFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {}

  /// Names of the following tensors get the prefix "blk.<layer>." where they start with a dot; scratch buffers of the
  /// layer before are used again.
  void BeginLayer(uint32_t layer);

  uint16_t AddRope(RopeSpec rope);
  bool Has(std::string_view weight) const;

  BufferId Embed(std::string_view weight, float scale = 1.0f);
  BufferId Norm(BufferId x, std::string_view weight);
  /// Norm of each head by itself, in place.
  void HeadNorm(BufferId x, std::string_view weight, uint32_t heads);
  /// `name`.weight, and `name`.bias where the file has one.
  BufferId Linear(BufferId x, std::string_view name, uint32_t out_width) {
    return LinearRows(x, name, 0, out_width, out_width);
  }
  /// The same for rows [first_row, first_row + out_width) of a tensor of `tensor_rows`, which holds several matrices.
  BufferId LinearRows(BufferId x, std::string_view name, uint32_t first_row, uint32_t out_width, uint32_t tensor_rows);
  void Rope(BufferId x, uint32_t heads, uint16_t rope);
  BufferId Attention(BufferId q, BufferId k, BufferId v, float scale, uint32_t window = 0);
  /// Elements of a row: those of `gate`.
  BufferId Gated(BufferId gate, BufferId up, Activation activation);
  /// Router and experts: ffn_gate_inp, ffn_gate_exps, ffn_up_exps, ffn_down_exps.
  BufferId Experts(BufferId x, const ExpertSpec& experts, Activation activation);
  /// x += y
  void AddTo(BufferId x, BufferId y);
  /// Norm and head on the rows that need logits. The head is output.weight, or the embedding where that is absent.
  void Output(BufferId x, std::string_view norm_weight, float softcap = 0);

  absl::StatusOr<Graph> Finish() &&;

 private:
  std::string FullName(std::string_view name) const;
  /// @param dims  what the whole tensor must have, the row first.
  WeightId AddWeight(std::string_view name, WeightRole role, const std::vector<uint64_t>& dims, uint32_t first_row = 0,
                     uint32_t rows = 0);
  BufferId NewBuffer(uint32_t width, bool output_rows);
  BufferId Scratch(uint32_t width, bool output_rows = false);

  const GgufFile& file_;
  const ModelSpec& spec_;
  Graph graph_;
  absl::Status status_;
  uint32_t layer_ = 0;
  std::vector<uint32_t> widths_;  ///< [buffers] elements of a row that the latest producer wrote.
  std::vector<BufferId> scratch_;
  size_t scratch_used_ = 0;
};

}  // namespace kvist::model
