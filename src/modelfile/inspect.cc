#include "modelfile/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "tensor/kv_type.h"

namespace kvist {
namespace {

/// Length of the UTF-8 character that starts `text`; 0 when those bytes are none. REQUIRES: not empty.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

/// `text` with bytes that are not UTF-8 replaced by U+FFFD; with `escape`, control characters as \n or \x1b.
std::string Clean(std::string_view text, bool escape) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are C2 80 to C2 9F; some terminals obey them like escape sequences.
    const bool control = length == 1 ? (first < 0x20 || first == 0x7f)
                                     : (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (escape && text[0] == '\n') {
      out += "\\n";
    } else if (escape && control) {
      absl::StrAppendFormat(&out, "\\x%02x", length == 1 ? first : static_cast<unsigned char>(text[1]));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::optional<uint32_t> Number(const GgufFile& file, const std::string& key) {
  absl::StatusOr<uint32_t> value = file.GetU32(key);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::string Text(const GgufFile& file, std::string_view key) {
  return std::string(file.GetString(key).value_or(""));
}

/// KV heads summed over all layers. The key is one number, or an array with a number for each layer.
absl::StatusOr<uint64_t> KvHeadsOfAllLayers(const GgufFile& file, const std::string& arch, uint32_t block_count) {
  std::string key = arch + ".attention.head_count_kv";
  if (!file.Has(key)) key = arch + ".attention.head_count";  // No grouping: as many as query heads.
  const GgufValue* value = file.FindValue(key);
  if (value == nullptr || !value->IsArray()) {
    KVIST_ASSIGN_OR_RETURN(uint32_t heads, file.GetU32(key));
    return uint64_t{heads} * block_count;
  }
  KVIST_ASSIGN_OR_RETURN(std::span<const int64_t> by_layer, file.GetInts(key));
  if (by_layer.size() != block_count) {
    return absl::InvalidArgumentError(
        Cat("key \"", key, "\" has ", by_layer.size(), " entries for ", block_count, " layers"));
  }
  uint64_t heads = 0;
  for (int64_t layer_heads : by_layer) {
    if (layer_heads < 0 || layer_heads > UINT32_MAX) {
      return absl::InvalidArgumentError(Cat("key \"", key, "\": ", layer_heads, " heads"));
    }
    heads += static_cast<uint64_t>(layer_heads);
  }
  return heads;
}

absl::StatusOr<uint64_t> KvBytesPerToken(const GgufFile& file, const ModelSummary& summary, KvType type) {
  const std::string& arch = summary.architecture;
  if (arch.empty()) return absl::NotFoundError("key \"general.architecture\" is missing");
  if (file.Has(arch + ".attention.kv_lora_rank"))
    return absl::UnimplementedError("the model caches a latent, not keys and values");
  if (!summary.block_count) return absl::NotFoundError(Cat("key \"", arch, ".block_count\" is missing"));
  KVIST_ASSIGN_OR_RETURN(uint64_t heads, KvHeadsOfAllLayers(file, arch, *summary.block_count));
  if (heads == 0) return uint64_t{0};
  if (!summary.key_length || !summary.value_length) {
    return absl::NotFoundError("head sizes are neither stored nor follow from embedding_length and head_count");
  }
  uint64_t bytes = 0;
  const uint64_t head_bytes =
      (KvKeyPageBytes(type, *summary.key_length) + KvValuePageBytes(type, *summary.value_length)) / kKvPageTokens;
  if (__builtin_mul_overflow(heads, head_bytes, &bytes)) return absl::OutOfRangeError("the numbers are absurd");
  return bytes;
}

void CountTensors(const GgufFile& file, ModelSummary& summary) {
  for (const GgufTensor& tensor : file.tensors()) {
    auto same = [&](const DTypeTotal& total) { return total.dtype == tensor.dtype; };
    auto it = std::find_if(summary.types.begin(), summary.types.end(), same);
    if (it == summary.types.end()) it = summary.types.insert(it, DTypeTotal{tensor.dtype, 0, 0, 0});
    it->tensors_count += 1;
    it->parameters += tensor.Elements();
    it->bytes += tensor.bytes.size();
    summary.parameters += tensor.Elements();
    summary.tensor_bytes += tensor.bytes.size();
  }
  std::sort(summary.types.begin(), summary.types.end(), [](const DTypeTotal& a, const DTypeTotal& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.dtype < b.dtype;
  });
}

std::optional<uint64_t> ActiveParameters(const GgufFile& file, const ModelSummary& summary) {
  const uint64_t count = summary.expert_count.value_or(0), used = summary.expert_used_count.value_or(0);
  if (count == 0 || used == 0 || used > count) return std::nullopt;
  uint64_t idle = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.find("_exps.") == std::string_view::npos || tensor.dims.back() != count) continue;
    idle += tensor.Elements() / count * (count - used);
  }
  return summary.parameters - idle;
}

/// The fields that are plain numbers, with their JSON names.
std::vector<std::pair<const char*, std::optional<uint64_t>>> ShapeFields(const ModelSummary& s) {
  return {{"context_length", s.context_length},
          {"block_count", s.block_count},
          {"embedding_length", s.embedding_length},
          {"feed_forward_length", s.feed_forward_length},
          {"head_count", s.head_count},
          {"head_count_kv", s.head_count_kv},
          {"key_length", s.key_length},
          {"value_length", s.value_length},
          {"sliding_window", s.sliding_window},
          {"vocab_size", s.vocab_size},
          {"expert_count", s.expert_count},
          {"expert_used_count", s.expert_used_count},
          {"expert_feed_forward_length", s.expert_feed_forward_length},
          {"active_parameters", s.active_parameters},
          {"kv_bytes_per_token_f16", s.kv_bytes_per_token_f16},
          {"kv_bytes_per_token_q8", s.kv_bytes_per_token_q8}};
}

boost::json::value NumberOrNull(double value) {
  return std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

boost::json::value ElementJson(GgufType type, int64_t element) {
  return type == GgufType::kBool ? boost::json::value(element != 0) : boost::json::value(element);
}
boost::json::value ElementJson(GgufType, uint64_t element) {
  return element;
}
boost::json::value ElementJson(GgufType, float element) {
  return NumberOrNull(element);
}
boost::json::value ElementJson(GgufType, std::string_view element) {
  return boost::json::value(Clean(element, false));
}

boost::json::value ValueJson(const GgufValue& value, const InspectOptions& options) {
  return std::visit(
      [&]<class T>(const T& held) -> boost::json::value {
        if constexpr (std::is_same_v<T, double>) {
          return NumberOrNull(held);
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return boost::json::value(Clean(held, false));
        } else if constexpr (std::is_arithmetic_v<T>) {
          return held;
        } else {
          boost::json::array first;
          const size_t shown = std::min<size_t>(held.size(), options.array_elements_shown);
          for (size_t i = 0; i < shown; ++i) first.push_back(ElementJson(value.type, held[i]));
          return boost::json::object{
              {"type", std::string(GgufTypeName(value.type))}, {"count", held.size()}, {"first", std::move(first)}};
        }
      },
      value.value);
}

std::string Shortened(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return Clean(text, true);
  // Not inside a character: step back over continuation bytes.
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80 && bytes_max - end < 3) --end;
  return Cat(Clean(text.substr(0, end), true), "... (", text.size(), " bytes)");
}

std::string ElementText(GgufType type, int64_t element) {
  if (type == GgufType::kBool) return element != 0 ? "true" : "false";
  return Cat(element);
}
std::string ElementText(GgufType, uint64_t element) {
  return Cat(element);
}
std::string ElementText(GgufType, float element) {
  return Cat(element);
}
std::string ElementText(GgufType, std::string_view element) {
  return Cat("\"", Shortened(element, 24), "\"");
}

std::string ValueText(const GgufValue& value, const InspectOptions& options) {
  return std::visit(
      [&]<class T>(const T& held) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return held ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return Shortened(held, options.text_bytes_shown);
        } else if constexpr (std::is_arithmetic_v<T>) {
          return Cat(held);
        } else {
          std::string out = Cat("[", held.size(), "]");
          const size_t shown = std::min<size_t>(held.size(), options.array_elements_shown);
          for (size_t i = 0; i < shown; ++i) out += " " + ElementText(value.type, held[i]);
          return held.size() > shown ? out + " ..." : out;
        }
      },
      value.value);
}

/// "9026912 (8.61 MiB)"; plain below a KiB.
std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return Cat(bytes);
  double scaled = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; scaled >= 1024 && unit + 1 < std::size(kUnits); ++unit) scaled /= 1024;
  return absl::StrFormat("%d (%.2f %s)", bytes, scaled, kUnits[unit]);
}

void AppendTensors(const GgufFile& file, std::string& out) {
  absl::StrAppendFormat(&out, "\n%d tensors: name, type, dimensions (row first), bytes\n", file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    std::string dims;
    for (uint64_t dim : tensor.dims) dims += (dims.empty() ? "" : " x ") + std::to_string(dim);
    absl::StrAppendFormat(&out, "  %-36s %-5s %-18s %d\n", Clean(tensor.name, true), ToAbsl(InfoOf(tensor.dtype).name),
                          dims, tensor.bytes.size());
  }
}

}  // namespace

ModelSummary Summarize(const GgufFile& file) {
  ModelSummary summary;
  summary.architecture = Text(file, "general.architecture");
  summary.name = Text(file, "general.name");
  summary.tokenizer = Text(file, "tokenizer.ggml.model");
  const std::string& arch = summary.architecture;
  summary.context_length = Number(file, arch + ".context_length");
  summary.block_count = Number(file, arch + ".block_count");
  summary.embedding_length = Number(file, arch + ".embedding_length");
  summary.feed_forward_length = Number(file, arch + ".feed_forward_length");
  summary.head_count = Number(file, arch + ".attention.head_count");
  summary.head_count_kv = Number(file, arch + ".attention.head_count_kv");
  if (!file.Has(arch + ".attention.head_count_kv")) summary.head_count_kv = summary.head_count;
  summary.key_length = Number(file, arch + ".attention.key_length");
  summary.value_length = Number(file, arch + ".attention.value_length");
  if (summary.embedding_length && summary.head_count.value_or(0) > 0) {
    const uint32_t length = *summary.embedding_length / *summary.head_count;
    if (!file.Has(arch + ".attention.key_length")) summary.key_length = length;
    if (!file.Has(arch + ".attention.value_length")) summary.value_length = length;
  }
  summary.sliding_window = Number(file, arch + ".attention.sliding_window");
  if (auto tokens = file.GetStrings("tokenizer.ggml.tokens"); tokens.ok()) {
    summary.vocab_size = tokens->size();
  } else {
    summary.vocab_size = Number(file, arch + ".vocab_size");
  }
  summary.expert_count = Number(file, arch + ".expert_count");
  summary.expert_used_count = Number(file, arch + ".expert_used_count");
  summary.expert_feed_forward_length = Number(file, arch + ".expert_feed_forward_length");
  CountTensors(file, summary);
  summary.active_parameters = ActiveParameters(file, summary);
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    absl::StatusOr<uint64_t> bytes = KvBytesPerToken(file, summary, type);
    if (bytes.ok()) {
      (type == KvType::kF16 ? summary.kv_bytes_per_token_f16 : summary.kv_bytes_per_token_q8) = *bytes;
    } else {
      summary.kv_unknown_because = std::string(bytes.status().message());
    }
  }
  return summary;
}

boost::json::object InspectJson(const GgufFile& file, const InspectOptions& options) {
  const ModelSummary summary = Summarize(file);
  boost::json::object out{{"file", Clean(file.label(), false)},
                          {"version", file.version()},
                          {"parts", file.parts_count()},
                          {"file_bytes", file.file_bytes()},
                          {"architecture", Clean(summary.architecture, false)},
                          {"name", Clean(summary.name, false)},
                          {"tokenizer", Clean(summary.tokenizer, false)},
                          {"parameters", summary.parameters},
                          {"tensors_count", file.tensors().size()},
                          {"tensor_bytes", summary.tensor_bytes}};
  boost::json::array& types = out["types"].emplace_array();
  for (const DTypeTotal& total : summary.types) {
    types.push_back(boost::json::object{{"type", std::string(InfoOf(total.dtype).name)},
                                        {"tensors", total.tensors_count},
                                        {"parameters", total.parameters},
                                        {"bytes", total.bytes}});
  }
  for (const auto& [name, number] : ShapeFields(summary)) {
    out[name] = number ? boost::json::value(*number) : boost::json::value(nullptr);
  }
  boost::json::object& metadata = out["metadata"].emplace_object();
  for (const auto& [key, value] : file.metadata())
    metadata[boost::json::string_view(key.data(), key.size())] = ValueJson(value, options);
  if (!options.tensors) return out;
  boost::json::array& tensors = out["tensors"].emplace_array();
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back(boost::json::object{{"name", Clean(tensor.name, false)},
                                          {"type", std::string(InfoOf(tensor.dtype).name)},
                                          {"dims", boost::json::array(tensor.dims.begin(), tensor.dims.end())},
                                          {"bytes", tensor.bytes.size()}});
  }
  return out;
}

std::string InspectText(const GgufFile& file, const InspectOptions& options) {
  const ModelSummary summary = Summarize(file);
  std::string out = absl::StrFormat("%s: GGUF version %d", Clean(file.label(), true), file.version());
  if (file.parts_count() > 1) absl::StrAppendFormat(&out, ", %d parts", file.parts_count());
  absl::StrAppendFormat(&out, "\n  %-24s %s\n", "file bytes", BytesText(file.file_bytes()));
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppendFormat(&out, "  %-24s %s\n", name, Shortened(value, options.text_bytes_shown));
  };
  text("architecture", summary.architecture);
  text("name", summary.name);
  text("tokenizer", summary.tokenizer);
  absl::StrAppendFormat(&out, "  %-24s %d\n", "parameters", summary.parameters);
  for (const auto& [name, number] : ShapeFields(summary)) {
    if (number) absl::StrAppendFormat(&out, "  %-24s %d\n", name, *number);
  }
  text("kv bytes unknown", summary.kv_unknown_because);
  if (!summary.types.empty()) out += "\ntypes: tensors, parameters, bytes\n";
  for (const DTypeTotal& total : summary.types) {
    absl::StrAppendFormat(&out, "  %-6s %6d %14d   %s\n", ToAbsl(InfoOf(total.dtype).name), total.tensors_count,
                          total.parameters, BytesText(total.bytes));
  }
  absl::StrAppendFormat(&out, "\n%d metadata entries\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    const std::string type = Cat(value.IsArray() ? "array of " : "", GgufTypeName(value.type));
    absl::StrAppendFormat(&out, "  %-44s %-16s %s\n", Shortened(key, options.text_bytes_shown), type,
                          ValueText(value, options));
  }
  if (options.tensors) AppendTensors(file, out);
  return out;
}

}  // namespace kvist
