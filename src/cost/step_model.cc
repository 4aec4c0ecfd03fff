#include "cost/step_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"

namespace kvist::cost {

using device::Number;
using device::Work;

namespace {

constexpr double kActivationBytes = 2;  // Features between operations are 16 bits wide.
constexpr double kSamplerPasses = 2;    // Over the logits, in 32 bits.
constexpr uint32_t kRememberedRows = 1 << 16;

}  // namespace

double ActiveExperts(uint32_t experts, uint32_t used, double tokens) {
  if (experts == 0) return 0;
  return experts * (1 - std::pow(1 - 1.0 * used / experts, tokens));
}

StepCost& StepCost::operator+=(const StepCost& other) {
  matmul_ns += other.matmul_ns;
  attention_ns += other.attention_ns;
  experts_ns += other.experts_ns;
  other_ns += other.other_ns;
  links_ns += other.links_ns;
  host_ns += other.host_ns;
  flops += other.flops;
  bytes += other.bytes;
  joules += other.joules;
  return *this;
}

absl::StatusOr<StepModel> StepModel::Create(StepModelOptions options) {
  const ModelShape& shape = options.shape;
  const uint32_t group = options.tensor_parallel, stages = options.pipeline_parallel;
  if (group == 0 || stages == 0) return absl::InvalidArgumentError("parallelism of 0 devices");
  if (shape.heads % group != 0) {
    return absl::InvalidArgumentError(
        Cat(shape.name, " has ", shape.heads, " heads, which ", group, " devices cannot share evenly"));
  }
  if (stages > shape.layers) {
    return absl::InvalidArgumentError(
        Cat(shape.name, " has ", shape.layers, " layers, fewer than ", stages, " stages"));
  }
  if (group * stages > 1 && !options.link) {
    return absl::InvalidArgumentError(Cat(options.device.name, " names no link, so that it cannot work in a group"));
  }
  if (options.link && options.link->devices_max > 0 && group > options.link->devices_max) {
    return absl::InvalidArgumentError(
        Cat(options.link->name, " joins ", options.link->devices_max, " devices, not ", group));
  }
  const auto does_experts = [](const device::Processor& p) {
    return p.rates[static_cast<size_t>(Work::kExperts)].has_value();
  };
  if (shape.experts > 0 && std::ranges::none_of(options.device.processors, does_experts)) {
    return absl::InvalidArgumentError(Cat(options.device.name, " has no figures for experts"));
  }
  StepModel model(std::move(options));
  if (model.weight_bytes_ >= model.options_.device.capacity_bytes()) {
    constexpr double kGib = 1024.0 * 1024 * 1024;
    return absl::ResourceExhaustedError(Cat(shape.name, " has ", model.weight_bytes_ / kGib,
                                            " GiB of weights a device, ", model.options_.device.name, " has ",
                                            model.options_.device.capacity_bytes() / kGib, " GiB"));
  }
  return model;
}

StepModel::StepModel(StepModelOptions options)
    : options_(std::move(options)),
      dense_number_(options_.shape.narrow_experts_only && device::BytesOf(options_.weights) < 1 ? Number::kBf16
                                                                                                : options_.weights) {
  const ModelShape& shape = options_.shape;
  const double stages = options_.pipeline_parallel, group = options_.tensor_parallel;
  layers_ = shape.layers / stages;
  expert_layers_ = shape.expert_layers() / stages;
  full_layers_ = shape.full_layers() / stages;
  const double embeddings = (shape.own_head ? 2.0 : 1.0) * shape.vocab_size * shape.width;
  const double routed = 1.0 * shape.experts * shape.expert_weights() * shape.expert_layers();
  const double dense = shape.weights() - embeddings - routed;
  weight_bytes_ = (embeddings * device::BytesOf(Number::kBf16) + dense * device::BytesOf(dense_number_) +
                   routed * device::BytesOf(options_.weights)) /
                  (group * stages);
}

double StepModel::kv_bytes_per_token() const {
  const ModelShape& shape = options_.shape;
  const double number = device::BytesOf(options_.keys);
  const double layers = shape.full_layers() > 0 ? full_layers_ : layers_;
  if (shape.is_latent()) return layers * (shape.latent_width + shape.rope_width) * number;
  const double heads = std::max(1.0, 1.0 * shape.kv_heads / options_.tensor_parallel);
  return layers * 2 * heads * shape.head_width * number;
}

uint64_t StepModel::KvBlocks(double memory_share, uint32_t block_tokens) const {
  const double room = options_.device.capacity_bytes() * memory_share - weight_bytes_;
  return room <= 0 ? 0 : static_cast<uint64_t>(room / (kv_bytes_per_token() * block_tokens));
}

bool StepModel::IsCaptured(double tokens) const {
  const double most = options_.device.overheads.eager_tokens;
  return most == 0 || tokens <= most;
}

double StepModel::PaddedRows(double tokens) const {
  const double unit = options_.device.overheads.graph_rows;
  return unit > 1 && tokens > unit / 2 && IsCaptured(tokens) ? std::ceil(tokens / unit) * unit : tokens;
}

Operation StepModel::Matmul(double rows, double from, double to, Number weights) const {
  const double input = weights == Number::kFp8 || weights == Number::kInt8 ? 1 : kActivationBytes;
  return {Work::kMatmul, 2 * rows * from * to,
          from * to * device::BytesOf(weights) + rows * (from * input + to * kActivationBytes), weights};
}

void StepModel::Add(const Operation& operation, double times, bool captured, double& ns, Rows& rows) const {
  ns += PlaceOperation(options_.device, operation, captured).ns * times;
  rows.flops += operation.flops * times;
  rows.bytes += operation.bytes * times;
}

void StepModel::AddFeedForward(double tokens, bool captured, Rows& rows) const {
  const ModelShape& shape = options_.shape;
  const auto add = [&](double width, double layers) {
    if (width <= 0 || layers <= 0) return;
    Add(Matmul(tokens, shape.width, 2 * width, dense_number_), layers, captured, rows.matmul_ns, rows);
    Add(Elementwise(tokens * 3 * width * kActivationBytes), layers, captured, rows.other_ns, rows);
    Add(Matmul(tokens, width, shape.width, dense_number_), layers, captured, rows.matmul_ns, rows);
  };
  add(1.0 * shape.ffn_width / options_.tensor_parallel, layers_ - expert_layers_);
  add(1.0 * shape.shared_expert_width / options_.tensor_parallel, expert_layers_);
}

void StepModel::AddExperts(double tokens, bool captured, Rows& rows) const {
  const ModelShape& shape = options_.shape;
  if (shape.experts == 0) return;
  const double share = 1.0 / options_.tensor_parallel;
  const double slots = tokens * shape.experts_used;
  const double active = ActiveExperts(shape.experts, shape.experts_used, tokens);
  Add(Matmul(tokens, shape.width, shape.experts, Number::kBf16), expert_layers_, captured, rows.matmul_ns, rows);
  const Operation experts{Work::kExperts, 2 * slots * shape.expert_weights() * share,
                          active * shape.expert_weights() * share * device::BytesOf(options_.weights) +
                              2 * slots * shape.width * kActivationBytes,
                          options_.weights};
  Add(experts, expert_layers_, captured, rows.experts_ns, rows);
}

void StepModel::AddProfiledRows(double tokens, Rows& rows) const {
  const Profile& profile = *options_.profile;
  rows.matmul_ns += profile.MatmulNs(tokens) * layers_;
  rows.other_ns += profile.ElementwiseNs(tokens) * layers_ + profile.OnceNs(tokens) / options_.pipeline_parallel;
}

StepModel::Rows StepModel::MakeRows(uint32_t count) const {
  const ModelShape& shape = options_.shape;
  const double tokens = PaddedRows(count), group = options_.tensor_parallel;
  const bool captured = IsCaptured(count);
  Rows rows{.known = true};
  if (group > 1) {
    const double sum = AllReduceNs(*options_.link, options_.tensor_parallel, tokens * shape.width * kActivationBytes);
    rows.links_ns = 2 * (captured ? sum : std::max(sum, options_.device.processors.front().launch_ns)) * layers_;
  }
  if (options_.profile) {
    AddProfiledRows(tokens, rows);
    // Only for what is said of arithmetic and energy.
    rows.flops = 2 * tokens * layers_ * (shape.attention_weights() + shape.ffn_weights()) / group;
    rows.bytes = layers_ * (shape.attention_weights() + shape.ffn_weights()) / group * device::BytesOf(dense_number_);
    return rows;
  }
  const double heads = shape.heads / group, row_bytes = tokens * shape.width * kActivationBytes;
  // Norms read the sum so far and what is added, and write both.
  Add(Elementwise(4 * row_bytes), 2 * layers_, captured, rows.other_ns, rows);
  if (shape.is_latent()) {
    const double rotary = shape.head_width + shape.rope_width;
    Add(Matmul(tokens, shape.width, shape.query_latent_width + shape.latent_width + shape.rope_width, dense_number_),
        layers_, captured, rows.matmul_ns, rows);
    Add(Matmul(tokens, shape.query_latent_width, heads * rotary, dense_number_), layers_, captured, rows.matmul_ns,
        rows);
    // Queries into the latent space and values out of it: single tokens attend to latents as they are.
    Add(Matmul(tokens, shape.latent_width, heads * (shape.head_width + shape.value_width), dense_number_), layers_,
        captured, rows.matmul_ns, rows);
    Add(Elementwise(2 * tokens * heads * rotary * kActivationBytes), layers_, captured, rows.other_ns, rows);
    Add(Matmul(tokens, heads * shape.value_width, shape.width, dense_number_), layers_, captured, rows.matmul_ns, rows);
  } else {
    const double kv_heads = std::max(1.0, shape.kv_heads / group);
    const double width = shape.head_width;
    Add(Matmul(tokens, shape.width, (heads + 2 * kv_heads) * width, dense_number_), layers_, captured, rows.matmul_ns,
        rows);
    // Positions, and keys and values into their blocks; norms of heads are a pass of their own.
    const double passes = shape.qk_norm ? 2 : 1;
    Add(Elementwise(2 * tokens * (heads + 2 * kv_heads) * width * kActivationBytes), passes * layers_, captured,
        rows.other_ns, rows);
    Add(Matmul(tokens, heads * width, shape.width, dense_number_), layers_, captured, rows.matmul_ns, rows);
  }
  AddFeedForward(tokens, captured, rows);
  AddExperts(tokens, captured, rows);
  Add(Elementwise(2 * row_bytes), 1.0 / options_.pipeline_parallel, captured, rows.other_ns, rows);  // Embedding.
  return rows;
}

/// The last norm, the head and the choice of a token.
StepModel::Rows StepModel::MakeHead(uint32_t count) const {
  const ModelShape& shape = options_.shape;
  const double rows_count = count, share = 1.0 / options_.pipeline_parallel;
  const double words = 1.0 * shape.vocab_size / options_.tensor_parallel;
  Rows rows{.known = true};
  if (count == 0) return rows;
  if (options_.profile) {
    rows.matmul_ns = options_.profile->HeadNs(rows_count) * share;
    rows.other_ns = options_.profile->SamplerNs(rows_count) * share;
    rows.bytes = words * shape.width * kActivationBytes * share;
    return rows;
  }
  Add(Elementwise(4 * rows_count * shape.width * kActivationBytes), share, false, rows.other_ns, rows);
  Add(Matmul(rows_count, shape.width, words, Number::kBf16), share, false, rows.matmul_ns, rows);
  Add(Elementwise(kSamplerPasses * rows_count * shape.vocab_size * 4), share, false, rows.other_ns, rows);
  if (options_.tensor_parallel > 1) {
    rows.links_ns =
        AllGatherNs(*options_.link, options_.tensor_parallel, rows_count * words * kActivationBytes) * share;
  }
  return rows;
}

const StepModel::Rows& StepModel::RowsOf(uint32_t tokens) {
  KVIST_CHECK(tokens < kRememberedRows);
  if (tokens >= rows_.size()) rows_.resize(std::max<size_t>(tokens + 1, 2 * rows_.size()));
  if (!rows_[tokens].known) rows_[tokens] = MakeRows(tokens);
  return rows_[tokens];
}

const StepModel::Rows& StepModel::HeadOf(uint32_t rows) {
  KVIST_CHECK(rows < kRememberedRows);
  if (rows >= head_.size()) head_.resize(std::max<size_t>(rows + 1, 2 * head_.size()));
  if (!head_[rows].known) head_[rows] = MakeHead(rows);
  return head_[rows];
}

Operation StepModel::Attention(Work work, double pairs, double keys, double rows) const {
  const ModelShape& shape = options_.shape;
  const double heads = 1.0 * shape.heads / options_.tensor_parallel;
  const double number = device::BytesOf(options_.keys);
  if (shape.is_latent()) {
    // Single tokens attend to latents; prompts to keys and values made of them.
    const double key =
        work == Work::kDecode ? shape.latent_width + shape.rope_width : shape.head_width + shape.rope_width;
    const double value = work == Work::kDecode ? shape.latent_width : shape.value_width;
    const double kept = work == Work::kDecode ? key : heads * (key + value);
    return {work, 2 * pairs * heads * (key + value), (keys * kept) * number + 2 * rows * heads * key * kActivationBytes,
            options_.keys};
  }
  const double kv_heads = std::max(1.0, 1.0 * shape.kv_heads / options_.tensor_parallel);
  return {work, 4 * pairs * heads * shape.head_width,
          keys * 2 * kv_heads * shape.head_width * number + 2 * rows * heads * shape.head_width * kActivationBytes,
          Number::kBf16};
}

StepModel::Sum StepModel::AttentionOf(const StepLoad& load, bool windowed, bool captured, Excess& excess) const {
  const double prompt_pairs = windowed ? load.prompt_pairs_windowed : load.prompt_pairs;
  const double decode_keys = windowed ? load.decode_keys_windowed : load.decode_keys;
  const double prompt_keys = windowed ? load.prompt_keys_windowed : load.prompt_keys;
  Operation prompt = Attention(Work::kPrompt, prompt_pairs, prompt_keys, load.prompt_tokens);
  Operation decode = Attention(Work::kDecode, decode_keys, decode_keys, load.decodes);
  if (load.prompts == 0) prompt.flops = prompt.bytes = 0;
  if (load.decodes == 0) decode.flops = decode.bytes = 0;
  Sum sum{.flops = prompt.flops + decode.flops, .bytes = prompt.bytes + decode.bytes};
  if (options_.profile) {
    const Profile::AttentionLoad asked{.prompt_tokens = 1.0 * load.prompt_tokens,
                                       .prompt_pairs = prompt_pairs,
                                       .decodes = 1.0 * load.decodes,
                                       .decode_keys = decode_keys};
    if (!options_.profile->has_steps()) sum.ns = options_.profile->AttentionNs(asked, excess);
    return sum;
  }
  if (load.prompts > 0 && load.decodes > 0) {
    const double group = 1.0 * options_.shape.heads / options_.shape.kv_heads;
    decode.bytes *= 1 + options_.device.processors.front().mixed_reread * (group - 1);
  }
  sum.ns = PairNs(options_.device, prompt, decode, captured);
  return sum;
}

double StepModel::Joules(double ns, double flops, double bytes) const {
  const device::Power& power = options_.device.power;
  const device::Processor& first = options_.device.processors.front();
  const double busy_ns =
      std::max(flops / first.PeakOf(options_.weights), bytes / options_.device.MemoryOf(first).bandwidth) * 1e9;
  return (power.idle_w * ns + (power.busy_w - power.idle_w) * std::min(busy_ns, ns)) * 1e-9;
}

/// Measured with all that a step is; what windows spare is in it.
double StepModel::WholeNs(const StepLoad& load, Excess& excess) const {
  const Profile::AttentionLoad asked{.prompt_tokens = 1.0 * load.prompt_tokens,
                                     .prompt_pairs = load.prompt_pairs,
                                     .decodes = 1.0 * load.decodes,
                                     .decode_keys = load.decode_keys};
  return options_.profile->StepNs(asked, excess) / options_.pipeline_parallel;
}

StepCost StepModel::StageCost(const StepLoad& load) {
  const Rows& rows = RowsOf(load.tokens);
  const Rows head = HeadOf(load.sampled);
  const bool captured = IsCaptured(load.tokens);
  Excess excess;
  const Sum full = AttentionOf(load, /*windowed=*/false, captured, excess);
  const bool whole = options_.profile && options_.profile->has_steps();
  StepCost cost{.matmul_ns = rows.matmul_ns + head.matmul_ns,
                .attention_ns = full.ns * full_layers_,
                .experts_ns = rows.experts_ns,
                .other_ns = whole ? WholeNs(load, excess) : rows.other_ns + head.other_ns,
                .links_ns = rows.links_ns + head.links_ns,
                .flops = rows.flops + head.flops + full.flops * full_layers_,
                .bytes = rows.bytes + head.bytes + full.bytes * full_layers_};
  if (full_layers_ < layers_) {
    const Sum windowed = AttentionOf(load, /*windowed=*/true, captured, excess);
    const double others = layers_ - full_layers_;
    cost.attention_ns += windowed.ns * others;
    cost.flops += windowed.flops * others;
    cost.bytes += windowed.bytes * others;
  }
  if (options_.profile) {
    options_.profile->SeeRows(PaddedRows(load.tokens), load.sampled, excess);
    profile_use_.Count(excess);
  }
  return cost;
}

StepCost StepModel::Cost(const StepLoad& load) {
  if (load.tokens == 0) return {};
  const uint32_t parts = std::min(options_.pipeline_parallel, load.requests);
  StepLoad part = load;
  if (parts > 1) {
    const auto each = [parts](auto& value) { value = (value + parts - 1) / parts; };
    each(part.tokens), each(part.requests), each(part.sampled), each(part.decodes), each(part.prompts);
    each(part.prompt_tokens);
    for (double* sum : {&part.decode_keys, &part.decode_keys_windowed, &part.prompt_keys, &part.prompt_keys_windowed,
                        &part.prompt_pairs, &part.prompt_pairs_windowed}) {
      *sum /= parts;
    }
  }
  StepCost cost = StageCost(part);
  // Each part goes through all stages, one behind the other: the next step of the first part follows the last part.
  const double stages = options_.pipeline_parallel;
  if (stages > 1) {
    cost.links_ns += TransferNs(*options_.link, part.tokens * 1.0 * options_.shape.width * kActivationBytes);
    for (double* ns : {&cost.matmul_ns, &cost.attention_ns, &cost.experts_ns, &cost.other_ns, &cost.links_ns}) {
      *ns *= stages;
    }
    cost.flops *= stages;
    cost.bytes *= stages;
  }
  cost.host_ns = options_.device.overheads.step_ns + options_.device.overheads.request_ns * load.requests;
  const double devices = options_.tensor_parallel;
  cost.joules = Joules(cost.ns(), cost.flops / stages, cost.bytes / stages) * devices * stages;
  cost.flops *= devices;
  cost.bytes *= devices;
  return cost;
}

double StepModel::FloorNs(uint32_t tokens_max) {
  // What the rows alone take: attention, head and messages between stages only add to it.
  double floor_ns = 0;
  for (uint32_t tokens = 1; tokens <= tokens_max; ++tokens) {
    const Rows& rows = RowsOf(tokens);
    const double ns = rows.matmul_ns + rows.experts_ns + rows.other_ns + rows.links_ns;
    floor_ns = tokens == 1 ? ns : std::min(floor_ns, ns);
  }
  return floor_ns * options_.pipeline_parallel + options_.device.overheads.step_ns;
}

}  // namespace kvist::cost
