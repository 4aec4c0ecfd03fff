#include "lab/work.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace kvist::lab {
namespace {

/// Keys that `tokens` rows after `depth` look at, all rows together and the distinct ones.
struct View {
  double pairs, keys;
};

View ViewOf(uint32_t tokens, uint32_t depth, uint32_t window) {
  View view{0, double{1} * depth + tokens};
  if (window > 0) view.keys = std::min(view.keys, double{1} * window + tokens);
  for (uint32_t t = 0; t < tokens; ++t) {
    const double seen = double{1} * depth + t + 1;
    view.pairs += window > 0 ? std::min<double>(seen, window) : seen;
  }
  return view;
}

}  // namespace

double ExpertsNeeded(const model::ExpertSpec& experts, double rows) {
  const double idle = 1.0 - double{1} * experts.used / experts.count;
  return experts.count * (1.0 - std::pow(idle, rows));
}

Work WorkOfStep(const model::Model& model, KvType kv_type, uint32_t sequences, uint32_t tokens, uint32_t depth,
                bool sample, uint32_t shared_depth) {
  const model::ModelSpec& spec = model.spec;
  Work work;
  for (const model::Op& op : model.graph.ops) {
    if (const auto* linear = std::get_if<model::Linear>(&op)) {
      const bool head = model.graph.buffers[linear->out.value].output_rows;
      const double rows = double{1} * sequences * (head ? (sample ? 1 : 0) : tokens);
      if (rows == 0) continue;
      const model::Weight& weight = model.graph.weights[linear->weight.value];
      work.bytes += static_cast<double>(weight.file_bytes());
      work.multiply_adds += rows * static_cast<double>(weight.elements());
    } else if (const auto* experts = std::get_if<model::ExpertMlp>(&op)) {
      const double rows = double{1} * sequences * tokens;
      const double needed = ExpertsNeeded(experts->experts, rows) / experts->experts.count;
      const double used = double{1} * experts->experts.used / experts->experts.count;
      for (model::WeightId id : {experts->gate, experts->up, experts->down}) {
        const model::Weight& weight = model.graph.weights[id.value];
        work.bytes += needed * static_cast<double>(weight.file_bytes());
        work.multiply_adds += rows * used * static_cast<double>(weight.elements());
      }
    } else if (const auto* attention = std::get_if<model::Attention>(&op)) {
      const View view = ViewOf(tokens, depth, attention->window);
      const double width = double{1} * spec.key_width + spec.value_width;
      const size_t pages_bytes = KvKeyPageBytes(kv_type, spec.key_width) + KvValuePageBytes(kv_type, spec.value_width);
      const double hidden = double{1} * depth + tokens - view.keys;
      const double shared = std::max(0.0, shared_depth - hidden);  // Of the keys of each.
      const double keys = sequences * (view.keys - shared) + shared;
      work.bytes += keys * spec.kv_heads * static_cast<double>(pages_bytes) / kKvPageTokens;
      work.multiply_adds += sequences * view.pairs * spec.heads * width;
    }
  }
  return work;
}

}  // namespace kvist::lab
