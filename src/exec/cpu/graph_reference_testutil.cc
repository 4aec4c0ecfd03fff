#include "exec/cpu/graph_reference_testutil.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

std::vector<float> ReadWeight(const model::Weight& weight) {
  std::vector<float> out(weight.elements());
  const uint64_t rows = weight.role == model::WeightRole::kVector ? 1 : weight.rows;
  const uint64_t width = out.size() / rows;
  const uint64_t bytes = weight.file_bytes() / rows;
  for (uint64_t row = 0; row < rows; ++row) {
    DequantizeRow(weight.tensor->dtype, weight.data() + row * bytes, width, out.data() + row * width);
  }
  return out;
}

double Activated(model::Activation activation, double x) {
  if (activation == model::Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

GraphReference::GraphReference(const model::Model& model, uint32_t context_tokens)
    : model_(model),
      context_tokens_(context_tokens),
      layers_(model.spec.layers),
      attention_(model.spec.layers),
      windowed_(model.spec.layers) {
  for (const model::Weight& weight : model.graph.weights) {
    KVIST_CHECK(weight.role != model::WeightRole::kExperts);
    weights_.push_back(ReadWeight(weight));
  }
  for (const model::Buffer& buffer : model.graph.buffers) buffers_.emplace_back(buffer.stride);
  ropes_.assign(buffers_.size(), -1);
}

std::vector<double> GraphReference::Next(TokenId token, int32_t position, std::span<const Seen> view) {
  token_ = token;
  position_ = position;
  view_ = view;
  for (const model::Op& op : model_.graph.ops) std::visit([this](const auto& o) { Do(o); }, op);
  std::vector<double> logits = buffers_[model_.graph.logits.value];
  logits.resize(model_.spec.vocab_size);
  return logits;
}

std::vector<double> GraphReference::Attention() const {
  const bool all = std::ranges::find(windowed_, false) == windowed_.end();
  std::vector<double> mean(attention_.front().size());
  double layers = 0;
  for (size_t layer = 0; layer < attention_.size(); ++layer) {
    if (windowed_[layer] && !all) continue;
    ++layers;
    for (size_t t = 0; t < mean.size(); ++t) mean[t] += attention_[layer][t];
  }
  for (double& mass : mean) mass /= layers;
  return mean;
}

void GraphReference::Do(const model::Embed& op) {
  for (uint32_t i = 0; i < op.width; ++i) {
    buffers_[op.out.value][i] = double{op.scale} * weights_[op.weight.value][size_t{token_.value} * op.width + i];
  }
}

void GraphReference::Do(const model::RmsNorm& op) {
  for (uint32_t group = 0; group < op.groups; ++group) {
    const double* x = &buffers_[op.x.value][size_t{group} * op.width];
    double* out = &buffers_[op.out.value][size_t{group} * op.width];
    double squares = 0;
    for (uint32_t i = 0; i < op.width; ++i) squares += x[i] * x[i];
    const double factor = 1 / std::sqrt(squares / op.width + double{model_.spec.norm_epsilon});
    for (uint32_t i = 0; i < op.width; ++i) out[i] = x[i] * factor * double{weights_[op.weight.value][i]};
  }
}

void GraphReference::Do(const model::Linear& op) {
  const std::vector<float>& weight = weights_[op.weight.value];
  const std::vector<double> x = buffers_[op.x.value];
  const uint32_t rows = model_.graph.weights[op.weight.value].rows, cols = model_.graph.weights[op.weight.value].cols();
  ropes_[op.out.value] = -1;
  for (uint32_t row = 0; row < rows; ++row) {
    double sum = op.bias.empty() ? 0 : weights_[op.bias.front().value][row];
    for (uint32_t i = 0; i < cols; ++i) sum += double{weight[size_t{row} * cols + i]} * x[i];
    buffers_[op.out.value][row] = sum;
  }
}

void GraphReference::Do(const model::Rope& op) {
  ropes_[op.x.value] = op.rope;
}

std::vector<double> GraphReference::Rotated(std::span<const double> head, int32_t rope, int32_t position) const {
  std::vector<double> out(head.begin(), head.end());
  if (rope < 0) return out;
  const model::RopeSpec& spec = model_.graph.ropes[static_cast<size_t>(rope)];
  for (uint32_t i = 0; i < spec.dims / 2; ++i) {
    const double angle = position * spec.FrequenciesFor(context_tokens_)[i];
    const size_t a = spec.half_split ? i : 2 * i, b = spec.half_split ? i + spec.dims / 2 : 2 * i + 1;
    out[a] = spec.magnitude * (head[a] * std::cos(angle) - head[b] * std::sin(angle));
    out[b] = spec.magnitude * (head[b] * std::cos(angle) + head[a] * std::sin(angle));
  }
  return out;
}

void GraphReference::Do(const model::Attention& op) {
  const model::ModelSpec& spec = model_.spec;
  std::vector<Kept>& kept = layers_[op.layer];
  const std::vector<double>&q = buffers_[op.q.value], &k = buffers_[op.k.value], &v = buffers_[op.v.value];
  kept.push_back({.position = position_,
                  .key = {k.begin(), k.begin() + spec.kv_heads * spec.key_width},
                  .value = {v.begin(), v.begin() + spec.kv_heads * spec.value_width}});
  std::vector<Seen> view(view_.begin(), view_.end());
  view.push_back({static_cast<uint32_t>(kept.size() - 1), 0});
  windowed_[op.layer] = op.window != 0;
  attention_[op.layer].assign(view.size(), 0.0);
  const size_t hidden = op.window != 0 && view.size() > op.window ? view.size() - op.window : 0;
  view.erase(view.begin(), view.begin() + static_cast<std::ptrdiff_t>(hidden));
  std::vector<double> result(size_t{spec.heads} * spec.value_width);
  for (uint32_t head = 0; head < spec.heads; ++head) {
    const size_t kv_head = head / (spec.heads / spec.kv_heads);
    const std::vector<double> query =
        Rotated(std::span(q).subspan(size_t{head} * spec.key_width, spec.key_width), ropes_[op.q.value], position_);
    std::vector<double> scores;
    for (const Seen& seen : view) {
      const Kept& token = kept[seen.token];
      const std::vector<double> key = Rotated(std::span(token.key).subspan(kv_head * spec.key_width, spec.key_width),
                                              ropes_[op.k.value], token.position + seen.position_shift);
      double score = 0;
      for (uint32_t i = 0; i < spec.key_width; ++i) score += query[i] * key[i];
      scores.push_back(score * double{op.scale});
    }
    const double top = *std::ranges::max_element(scores);
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - top);
    for (size_t t = 0; t < view.size(); ++t) {
      attention_[op.layer][hidden + t] += scores[t] / total / spec.heads;
      const double* value = &kept[view[t].token].value[kv_head * spec.value_width];
      for (uint32_t i = 0; i < spec.value_width; ++i) {
        result[size_t{head} * spec.value_width + i] += scores[t] / total * value[i];
      }
    }
  }
  ropes_[op.out.value] = -1;
  std::ranges::copy(result, buffers_[op.out.value].begin());
}

void GraphReference::Do(const model::Add& op) {
  for (uint32_t i = 0; i < op.width; ++i) buffers_[op.out.value][i] = buffers_[op.a.value][i] + buffers_[op.b.value][i];
}

void GraphReference::Do(const model::Gated& op) {
  for (uint32_t i = 0; i < op.width; ++i) {
    buffers_[op.out.value][i] = Activated(op.activation, buffers_[op.gate.value][i]) * buffers_[op.up.value][i];
  }
}

void GraphReference::Do(const model::ExpertMlp&) {
  CheckFailed(__FILE__, __LINE__, "no experts");
}

void GraphReference::Do(const model::Gather& op) {
  std::copy_n(buffers_[op.x.value].begin(), op.width, buffers_[op.out.value].begin());
}

void GraphReference::Do(const model::Softcap& op) {
  for (uint32_t i = 0; i < op.width; ++i) {
    double& x = buffers_[op.x.value][i];
    x = double{op.cap} * std::tanh(x / double{op.cap});
  }
}

}  // namespace kvist::exec
