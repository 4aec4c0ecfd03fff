#include "lab/measured_shape.h"

#include <algorithm>
#include <variant>

namespace kvist::lab {

cost::ModelShape ShapeOf(const model::Model& model) {
  const model::ModelSpec& spec = model.spec;
  cost::ModelShape shape{.name = "file",
                         .layers = spec.layers,
                         .width = spec.width,
                         .ffn_width = spec.ffn_width,
                         .heads = spec.heads,
                         .kv_heads = spec.kv_heads,
                         .head_width = spec.key_width,
                         .vocab_size = spec.vocab_size,
                         .context_length = spec.context_length};
  uint32_t windowed = 0, attentions = 0;
  for (const model::Op& op : model.graph.ops) {
    if (const auto* experts = std::get_if<model::ExpertMlp>(&op)) {
      shape.experts = experts->experts.count;
      shape.experts_used = experts->experts.used;
      shape.expert_width = experts->experts.width;
    } else if (const auto* attention = std::get_if<model::Attention>(&op)) {
      ++attentions;
      windowed += attention->window > 0 ? 1 : 0;
    }
  }
  if (windowed > 0) {
    shape.window = spec.sliding_window;
    shape.window_period = windowed < attentions ? attentions / (attentions - windowed) : 1;
  }
  return shape;
}

device::Number WeightsOf(const model::Model& model) {
  double bytes = 0, elements = 0;
  for (const model::Weight& weight : model.graph.weights) {
    bytes += static_cast<double>(weight.file_bytes());
    elements += static_cast<double>(weight.elements());
  }
  const double each = elements > 0 ? bytes / elements : 2;
  if (each > 3) return device::Number::kF32;
  if (each > 1.5) return device::Number::kBf16;
  return each > 0.8 ? device::Number::kInt8 : device::Number::kInt4;
}

device::Device GuessOf(const MachineFacts& facts) {
  device::Device device{.name = "machine", .title = facts.title};
  device.memories.push_back({.name = "ram", .capacity_bytes = facts.capacity_bytes, .bandwidth = facts.bytes_per_s});
  device::Processor processor{.name = "cpu", .memory = "ram"};
  processor.peak_flops[static_cast<size_t>(device::Number::kBf16)] = 2 * facts.multiply_adds_per_s;
  for (size_t work = 0; work < device::kWorks; ++work) {
    device::Rates rates{.latency_ns = 2000,
                        .compute_efficiency = device::Curve({{1e6, 0.5}, {1e8, 0.5}, {1e10, 0.5}}),
                        .memory_efficiency = device::Curve(0.5)};
    processor.rates[work] = device::WorkRates{.all = rates, .of = {}};
  }
  device.processors.push_back(std::move(processor));
  device.overheads.step_ns = 50e3;
  return device;
}

SpeedOptions CalibrationSpeeds(uint32_t context_tokens_max) {
  const uint32_t depth = std::min(2048u, context_tokens_max / 2);
  return {.prompts = {16, 64, 256}, .decode_tokens = 16, .batches = {1, 8}, .depths = {0, depth}, .repetitions = 3};
}

std::vector<cost::StepSample> SamplesOf(const std::vector<Speed>& speeds, uint32_t tokens_per_step_max,
                                        uint32_t window) {
  std::vector<cost::StepSample> samples;
  for (const Speed& speed : speeds) {
    cost::StepSample sample{.ns = speed.SecondsAt(0.5) * 1e9};
    if (speed.kind == SpeedKind::kDecode) {
      const uint32_t depth = speed.shared_depth + speed.depth + speed.tokens / 2;
      for (uint32_t i = 0; i < speed.batch; ++i) sample.load.Add(1, depth, true, window);
      sample.ns /= speed.tokens;
    } else {
      if (speed.tokens > tokens_per_step_max) continue;
      sample.load.Add(speed.tokens, speed.shared_depth + speed.depth, true, window);
    }
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace kvist::lab
