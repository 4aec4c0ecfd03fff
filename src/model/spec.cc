#include "model/spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/status.h"

namespace kvist::model {
namespace {

constexpr uint32_t kLayersMax = 1024, kHeadsMax = 1024, kHeadWidthMax = 1024, kWidthMax = 1u << 17;

/// Reads `<architecture>.<suffix>`.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string Name(std::string_view suffix) const { return Cat(prefix_, suffix); }

  absl::StatusOr<uint32_t> U32(std::string_view suffix, uint32_t max) const {
    KVIST_ASSIGN_OR_RETURN(uint32_t value, FirstU32(suffix));
    if (value == 0 || value > max) {
      return absl::InvalidArgumentError(Cat(file_.label(), ": ", Name(suffix), " is ", value, ", expected 1 to ", max));
    }
    return value;
  }
  absl::StatusOr<uint32_t> U32Or(std::string_view suffix, uint32_t fallback, uint32_t max) const {
    return file_.Has(Name(suffix)) ? U32(suffix, max) : fallback;
  }
  /// 0 where the key is absent or says so.
  absl::StatusOr<uint32_t> U32OrZero(std::string_view suffix, uint32_t max) const {
    if (!file_.Has(Name(suffix))) return 0;
    KVIST_ASSIGN_OR_RETURN(uint32_t value, FirstU32(suffix));
    return value == 0 ? absl::StatusOr<uint32_t>(0u) : U32(suffix, max);
  }
  absl::StatusOr<float> F32Or(std::string_view suffix, float fallback) const {
    return file_.Has(Name(suffix)) ? file_.GetF32(Name(suffix)) : fallback;
  }

 private:
  /// Some writers store one number per layer; all must be equal here.
  absl::StatusOr<uint32_t> FirstU32(std::string_view suffix) const {
    std::string key = Name(suffix);
    auto list = file_.GetInts(key);
    if (!list.ok()) return file_.GetU32(key);
    if (list->empty() || std::ranges::any_of(*list, [&](int64_t v) { return v != list->front(); })) {
      return absl::UnimplementedError(Cat(file_.label(), ": ", key, " differs between layers"));
    }
    if (list->front() < 0 || list->front() > UINT32_MAX) {
      return absl::InvalidArgumentError(Cat(file_.label(), ": ", key, " is out of range"));
    }
    return static_cast<uint32_t>(list->front());
  }

  const GgufFile& file_;
  std::string prefix_;
};

absl::Status ReadShape(const GgufFile& file, const Keys& keys, ModelSpec& spec) {
  KVIST_ASSIGN_OR_RETURN(spec.layers, keys.U32("block_count", kLayersMax));
  KVIST_ASSIGN_OR_RETURN(spec.width, keys.U32("embedding_length", kWidthMax));
  KVIST_ASSIGN_OR_RETURN(spec.ffn_width, keys.U32("feed_forward_length", 8 * kWidthMax));
  KVIST_ASSIGN_OR_RETURN(spec.heads, keys.U32("attention.head_count", kHeadsMax));
  KVIST_ASSIGN_OR_RETURN(spec.kv_heads, keys.U32Or("attention.head_count_kv", spec.heads, kHeadsMax));
  KVIST_ASSIGN_OR_RETURN(spec.context_length, keys.U32("context_length", 1u << 30));
  KVIST_ASSIGN_OR_RETURN(spec.key_width, keys.U32Or("attention.key_length", spec.width / spec.heads, kHeadWidthMax));
  KVIST_ASSIGN_OR_RETURN(spec.value_width, keys.U32Or("attention.value_length", spec.key_width, kHeadWidthMax));
  if (spec.heads % spec.kv_heads != 0) {
    return absl::InvalidArgumentError(
        Cat(file.label(), ": ", spec.heads, " attention heads cannot share ", spec.kv_heads, " KV heads"));
  }
  if (spec.key_width % 16 != 0 || spec.value_width != spec.key_width) {
    return absl::UnimplementedError(Cat(file.label(), ": head widths ", spec.key_width, " (keys) and ",
                                        spec.value_width, " (values); expected equal multiples of 16"));
  }
  return absl::OkStatus();
}

/// Dimension whose wavelength makes `rotations` turns over the original context.
double CorrectionDim(double rotations, double dims, double base, double context) {
  return dims * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

absl::Status ApplyYarn(const Keys& keys, double factor, double base, uint32_t original_context, RopeSpec& rope) {
  KVIST_ASSIGN_OR_RETURN(float beta_fast, keys.F32Or("rope.scaling.yarn_beta_fast", 32.0f));
  KVIST_ASSIGN_OR_RETURN(float beta_slow, keys.F32Or("rope.scaling.yarn_beta_slow", 1.0f));
  KVIST_ASSIGN_OR_RETURN(float extrapolation, keys.F32Or("rope.scaling.yarn_ext_factor", 1.0f));
  KVIST_ASSIGN_OR_RETURN(float attention, keys.F32Or("rope.scaling.yarn_attn_factor", 1.0f));
  double low = std::max(0.0, std::floor(CorrectionDim(beta_fast, rope.dims, base, original_context)));
  double high = std::min(rope.dims - 1.0, std::ceil(CorrectionDim(beta_slow, rope.dims, base, original_context)));
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    double keep = (1.0 - ramp) * extrapolation;  // 1 = as trained, 0 = interpolated.
    rope.inv_freq[i] *= keep + (1.0 - keep) / factor;
  }
  rope.magnitude = attention * (1.0 + 0.1 * std::log(factor));
  return absl::OkStatus();
}

/// Divides each frequency by its factor.
absl::Status ApplyFactors(const GgufFile& file, const GgufTensor& tensor, std::vector<double>& inv_freq) {
  if (tensor.dtype != DType::kF32 || tensor.Elements() != inv_freq.size()) {
    return absl::InvalidArgumentError(Cat(file.label(), ": tensor ", tensor.name, " has ", tensor.Elements(),
                                          " elements of type ", InfoOf(tensor.dtype).name, ", expected ",
                                          inv_freq.size(), " of f32"));
  }
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    float factor = 0;
    std::memcpy(&factor, tensor.bytes.data() + i * sizeof(float), sizeof(float));
    if (!(factor > 0) || !std::isfinite(factor)) {
      return absl::InvalidArgumentError(
          Cat(file.label(), ": tensor ", tensor.name, " element ", i, " is ", factor, ", expected a positive number"));
    }
    inv_freq[i] /= factor;
  }
  return absl::OkStatus();
}

absl::Status ApplyLongRope(const GgufFile& file, const Keys& keys, uint32_t context_length, RopeSpec& rope) {
  const GgufTensor* short_factors = file.FindTensor("rope_factors_short.weight");
  const GgufTensor* long_factors = file.FindTensor("rope_factors_long.weight");
  if (short_factors == nullptr || long_factors == nullptr) {
    return absl::InvalidArgumentError(
        Cat(file.label(), ": tensor rope_factors_", short_factors == nullptr ? "short" : "long", ".weight is missing"));
  }
  KVIST_ASSIGN_OR_RETURN(rope.long_beyond, keys.U32("rope.scaling.original_context_length", 1u << 30));
  if (rope.long_beyond < 2) {
    return absl::InvalidArgumentError(Cat(file.label(), ": ", keys.Name("rope.scaling.original_context_length"), " is ",
                                          rope.long_beyond, ", expected at least 2"));
  }
  rope.long_inv_freq = rope.inv_freq;
  KVIST_RETURN_IF_ERROR(ApplyFactors(file, *short_factors, rope.inv_freq));
  KVIST_RETURN_IF_ERROR(ApplyFactors(file, *long_factors, rope.long_inv_freq));
  const double stretch = double{1} * context_length / rope.long_beyond;
  if (stretch > 1) rope.magnitude = std::sqrt(1 + std::log(stretch) / std::log(rope.long_beyond));
  KVIST_ASSIGN_OR_RETURN(float given, keys.F32Or("rope.scaling.attn_factor", static_cast<float>(rope.magnitude)));
  if (!(given > 0) || !std::isfinite(given)) {
    return absl::InvalidArgumentError(
        Cat(file.label(), ": ", keys.Name("rope.scaling.attn_factor"), " is ", given, ", expected a positive number"));
  }
  if (file.Has(keys.Name("rope.scaling.attn_factor"))) rope.magnitude = given;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) {
  ModelSpec spec;
  KVIST_ASSIGN_OR_RETURN(std::string_view architecture, file.GetString("general.architecture"));
  spec.architecture = architecture;
  if (auto name = file.GetString("general.name"); name.ok()) spec.name = *name;
  Keys keys(file, spec.architecture);
  KVIST_RETURN_IF_ERROR(ReadShape(file, keys, spec));
  KVIST_ASSIGN_OR_RETURN(spec.norm_epsilon, file.GetF32(keys.Name("attention.layer_norm_rms_epsilon")));
  if (!(spec.norm_epsilon >= 0 && spec.norm_epsilon < 1)) {
    return absl::InvalidArgumentError(Cat(file.label(), ": ", keys.Name("attention.layer_norm_rms_epsilon"), " is ",
                                          spec.norm_epsilon, ", expected 0 to 1"));
  }
  // Some writers say 0 where there are no windows.
  KVIST_ASSIGN_OR_RETURN(spec.sliding_window, keys.U32OrZero("attention.sliding_window", 1u << 30));
  KVIST_ASSIGN_OR_RETURN(spec.logit_softcap, keys.F32Or("final_logit_softcapping", 0.0f));
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2 || embedding->dims[0] != spec.width ||
      embedding->dims[1] > UINT32_MAX) {
    return absl::InvalidArgumentError(
        Cat(file.label(), ": tensor token_embd.weight is missing or not [", spec.width, ", vocabulary]"));
  }
  spec.vocab_size = static_cast<uint32_t>(embedding->dims[1]);
  return spec;
}

absl::StatusOr<ExpertSpec> ReadExperts(const GgufFile& file, const ModelSpec& spec) {
  constexpr uint32_t kSoftmax = 1;  // Of expert_gating_func; 0 = not said.
  Keys keys(file, spec.architecture);
  ExpertSpec experts;
  KVIST_ASSIGN_OR_RETURN(experts.count, keys.U32("expert_count", kExpertsMax));
  KVIST_ASSIGN_OR_RETURN(experts.used, keys.U32("expert_used_count", experts.count));
  KVIST_ASSIGN_OR_RETURN(experts.width, keys.U32("expert_feed_forward_length", 8 * kWidthMax));
  KVIST_ASSIGN_OR_RETURN(experts.normalised, file.GetBoolOr(keys.Name("expert_weights_norm"), true));
  KVIST_ASSIGN_OR_RETURN(experts.scale, keys.F32Or("expert_weights_scale", 1.0f));
  if (!(experts.scale > 0) || !std::isfinite(experts.scale)) {
    return absl::InvalidArgumentError(Cat(file.label(), ": ", keys.Name("expert_weights_scale"), " is ", experts.scale,
                                          ", expected a positive number"));
  }
  KVIST_ASSIGN_OR_RETURN(uint32_t gating, file.GetU32Or(keys.Name("expert_gating_func"), 0));
  if (gating > kSoftmax) {
    return absl::UnimplementedError(Cat(file.label(), ": ", keys.Name("expert_gating_func"), " is ", gating,
                                        "; only a softmax (", kSoftmax, ") is supported"));
  }
  for (const char* shared : {"expert_shared_count", "expert_shared_feed_forward_length", "expert_group_count"}) {
    KVIST_ASSIGN_OR_RETURN(uint32_t value, file.GetU32Or(keys.Name(shared), 0));
    if (value == 0) continue;
    return absl::UnimplementedError(Cat(file.label(), ": ", keys.Name(shared), " is ", value,
                                        "; shared experts and groups of experts are not supported"));
  }
  return experts;
}

RopeSpec PlainRope(uint32_t dims, double base, bool half_split) {
  RopeSpec rope{.dims = dims, .half_split = half_split, .inv_freq = {}, .long_inv_freq = {}};
  for (uint32_t i = 0; i < dims / 2; ++i) rope.inv_freq.push_back(std::pow(base, -2.0 * i / dims));
  return rope;
}

absl::StatusOr<RopeSpec> ReadRope(const GgufFile& file, const ModelSpec& spec, bool half_split) {
  Keys keys(file, spec.architecture);
  KVIST_ASSIGN_OR_RETURN(uint32_t dims, keys.U32Or("rope.dimension_count", spec.key_width, spec.key_width));
  KVIST_ASSIGN_OR_RETURN(float base, keys.F32Or("rope.freq_base", 10000.0f));
  KVIST_ASSIGN_OR_RETURN(float factor, keys.F32Or("rope.scaling.factor", 1.0f));
  if (dims % 2 != 0 || !(base > 1) || !std::isfinite(base) || !(factor > 0) || !std::isfinite(factor)) {
    return absl::InvalidArgumentError(Cat(file.label(), ": rotary embedding of ", dims, " dimensions, base ", base,
                                          ", scaling factor ", factor, " makes no sense"));
  }
  RopeSpec rope = PlainRope(dims, base, half_split);
  std::string_view type = "none";
  if (auto given = file.GetString(keys.Name("rope.scaling.type")); given.ok()) type = *given;
  if (type == "linear") {
    for (double& frequency : rope.inv_freq) frequency /= factor;
  } else if (type == "yarn") {
    KVIST_ASSIGN_OR_RETURN(uint32_t original,
                           keys.U32Or("rope.scaling.original_context_length", spec.context_length, 1u << 30));
    KVIST_RETURN_IF_ERROR(ApplyYarn(keys, factor, base, original, rope));
  } else if (type != "none" && type != "longrope") {
    return absl::UnimplementedError(
        Cat(file.label(), ": ", keys.Name("rope.scaling.type"), " \"", type, "\" is not supported"));
  }
  if (const GgufTensor* factors = file.FindTensor("rope_freqs.weight")) {
    KVIST_RETURN_IF_ERROR(ApplyFactors(file, *factors, rope.inv_freq));
  }
  // Not every writer names the type.
  const bool has_factors = file.FindTensor("rope_factors_short.weight") || file.FindTensor("rope_factors_long.weight");
  if (type == "longrope" || has_factors) KVIST_RETURN_IF_ERROR(ApplyLongRope(file, keys, spec.context_length, rope));
  return rope;
}

}  // namespace kvist::model
