#pragma once

/// @file
/// Describes a model file for people and scripts: shape, sizes by type, KV memory per token, metadata, tensors. Reads
/// only the header. Files are untrusted, so text that goes to a terminal has its control characters escaped.
/// Non-goals: deciding whether kvist can run the model (model/). Pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "modelfile/gguf.h"
#include "tensor/dtype.h"

namespace kvist {

/// All tensors of one type.
struct DTypeTotal {
  DType dtype;
  uint64_t tensors_count;
  uint64_t parameters;
  uint64_t bytes;
};

/// What the header says about the model. Absent or malformed keys leave a field empty.
struct ModelSummary {
  std::string architecture;  ///< `general.architecture`, as stored.
  std::string name;          ///< `general.name`, as stored.
  std::string tokenizer;     ///< `tokenizer.ggml.model`, as stored.
  std::optional<uint32_t> context_length, block_count, embedding_length, feed_forward_length;
  std::optional<uint32_t> head_count, head_count_kv;  ///< Empty also where they differ by layer.
  std::optional<uint32_t> key_length, value_length;   ///< Per head; from embedding_length / head_count when not stored.
  std::optional<uint32_t> sliding_window;             ///< Tokens.
  std::optional<uint32_t> expert_count, expert_used_count, expert_feed_forward_length;
  std::optional<uint64_t> vocab_size;  ///< Entries of the token list, else the stored number.
  uint64_t parameters = 0;             ///< Elements of all tensors.
  /// What one token goes through: `parameters` less the share of the experts' tensors (`*_exps.*`) that it does not
  /// use.
  std::optional<uint64_t> active_parameters;  ///< Empty without experts.
  uint64_t tensor_bytes = 0;
  std::vector<DTypeTotal> types;  ///< Most bytes first.
  /// Sum over layers of KV heads * (key_length + value_length) * 2 bytes.
  std::optional<uint64_t> kv_bytes_per_token_f16;
  std::optional<uint64_t> kv_bytes_per_token_q8;  ///< The same with one byte a number and scales (tensor/kv_type.h).
  std::string kv_unknown_because;                 ///< Set when the numbers are absent.
};

ModelSummary Summarize(const GgufFile& file);

struct InspectOptions {
  bool tensors = false;               ///< List every tensor.
  uint32_t array_elements_shown = 8;  ///< Of a metadata array.
  uint32_t text_bytes_shown = 160;    ///< Of a metadata string, in InspectText only.
};

/// {"file","version","parts","file_bytes","architecture","name","tokenizer","parameters","tensors_count","tensor_bytes",
/// "types":[{"type","tensors","parameters","bytes"}],"context_length",...,"kv_bytes_per_token_f16","kv_bytes_per_token_q8","metadata":{key:
/// value}, "tensors":[{"name","type","dims","bytes"}]}. An array in "metadata" is {"type","count","first":[...]}. What
/// is not known is null. Bytes that are not UTF-8 become U+FFFD.
boost::json::object InspectJson(const GgufFile& file, const InspectOptions& options = {});

/// The same for a terminal: several lines, the last one ended.
std::string InspectText(const GgufFile& file, const InspectOptions& options = {});

}  // namespace kvist
