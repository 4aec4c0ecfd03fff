#include "cost/profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/status.h"
#include "platform/text_file.h"

namespace kvist::cost {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr double kMicro = 1e3;  // ns

// Layers are called as the published tables call them.
constexpr std::array kMatmuls = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};

bool ParseNumber(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out) && out >= 0;
}

/// Calls with the fields of each line after the first.
template <class Visit>
absl::Status ReadCsv(const std::string& path, size_t columns, const Visit& visit) {
  KVIST_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kFileBytesMax));
  std::string_view text = content;
  std::vector<std::string_view> fields;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 || line.empty()) continue;
    fields.clear();
    while (true) {
      const size_t comma = std::min(line.find(','), line.size());
      fields.push_back(line.substr(0, comma));
      if (comma == line.size()) break;
      line.remove_prefix(comma + 1);
    }
    if (fields.size() != columns || !visit(fields)) {
      return absl::InvalidArgumentError(
          Cat(path, ":", number, ": not ", columns, " columns of numbers that are known"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

double LatencyLine::At(double count) const {
  if (points_.empty() || count <= 0) return 0;
  const auto above = points_.lower_bound(count);
  if (above == points_.end()) return points_.rbegin()->second * count / points_.rbegin()->first;
  if (above == points_.begin() || above->first == count) return above->second;
  const auto below = std::prev(above);
  const double share = (count - below->first) / (above->first - below->first);
  return below->second + (above->second - below->second) * share;
}

void LatencyGrid::Add(const Place& place, double ns) {
  Node* node = &root_;
  for (const double count : place) node = &node->next[count];
  node->ns = ns;
}

double LatencyGrid::Between(const Node& node, const Place& place, size_t axis, const Names& names, Excess& excess) {
  if (axis == place.size()) return node.ns;
  const double count = place[axis];
  // Where there are no prompts, or no single tokens, contexts of them do not matter.
  const double first = node.next.begin()->first, last = node.next.rbegin()->first;
  const bool is_context = axis % 2 == 1;
  if (!is_context || (place[axis - 1] > 0 && last > 0)) excess.See(count, first, last, names[axis]);
  const auto above = node.next.lower_bound(count);
  if (above == node.next.end()) {
    return Between(node.next.rbegin()->second, place, axis + 1, names, excess) * (last > 0 ? count / last : 1);
  }
  if (above == node.next.begin() || above->first == count)
    return Between(above->second, place, axis + 1, names, excess);
  const auto below = std::prev(above);
  const double share = (count - below->first) / (above->first - below->first);
  const double low = Between(below->second, place, axis + 1, names, excess);
  return low + (Between(above->second, place, axis + 1, names, excess) - low) * share;
}

absl::StatusOr<Profile> Profile::Load(const std::string& folder) {
  Profile profile;
  const auto line = [&profile](const std::vector<std::string_view>& fields) {
    double count = 0, us = 0;
    if (!ParseNumber(fields[1], count) || !ParseNumber(fields[2], us) || count <= 0) return false;
    profile.lines_[std::string(fields[0])].Add(count, us * kMicro);
    return true;
  };
  const auto grid = [](LatencyGrid& to) {
    return [&to](const std::vector<std::string_view>& fields) {
      LatencyGrid::Place place;
      double us = 0;
      for (size_t i = 0; i < 4; ++i) {
        if (!ParseNumber(fields[i], place[i])) return false;
      }
      if (!ParseNumber(fields[4], us)) return false;
      to.Add(place, us * kMicro);
      return true;
    };
  };
  if (const absl::Status steps = ReadCsv(folder + "/steps.csv", 5, grid(profile.steps_)); !absl::IsNotFound(steps)) {
    KVIST_RETURN_IF_ERROR(steps);
    if (profile.steps_.empty()) return absl::InvalidArgumentError(Cat(folder, ": steps.csv has no steps"));
    return profile;
  }
  KVIST_RETURN_IF_ERROR(ReadCsv(folder + "/dense.csv", 3, line));
  KVIST_RETURN_IF_ERROR(ReadCsv(folder + "/per_sequence.csv", 3, line));
  KVIST_RETURN_IF_ERROR(ReadCsv(folder + "/attention.csv", 5, grid(profile.attention_)));
  for (const char* needed : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "layernorm", "lm_head"}) {
    if (profile.Line(needed).empty()) return absl::InvalidArgumentError(Cat(folder, ": no latencies of ", needed));
  }
  if (profile.attention_.empty()) return absl::InvalidArgumentError(Cat(folder, ": no latencies of attention"));
  return profile;
}

const LatencyLine& Profile::Line(const std::string& name) const {
  static const LatencyLine nothing;
  const auto found = lines_.find(name);
  return found == lines_.end() ? nothing : found->second;
}

double Profile::MatmulNs(double tokens) const {
  double sum = 0;
  for (const char* name : kMatmuls) sum += Line(name).At(tokens);
  return sum;
}

double Profile::ElementwiseNs(double tokens) const {
  return 2 * Line("layernorm").At(tokens) + Line("rotary_emb").At(tokens) + Line("qk_norm").At(tokens) +
         Line("act_fn").At(tokens);
}

double Profile::OnceNs(double tokens) const {
  return Line("embedding").At(tokens) + Line("final_layernorm").At(tokens);
}

void Profile::SeeRows(double tokens, double sampled, Excess& excess) const {
  for (const char* name : kMatmuls) {
    const LatencyLine& line = Line(name);
    if (!line.empty()) excess.See(tokens, line.first(), line.last(), "dense.csv, tokens");
  }
  const LatencyLine& head = Line("lm_head");
  if (!head.empty()) excess.See(sampled, head.first(), head.last(), "per_sequence.csv, sequences");
}

double Profile::AttentionNs(const AttentionLoad& load, Excess& excess) const {
  static constexpr LatencyGrid::Names kNames = {"attention.csv, prefill_chunk", "attention.csv, kv_prefill",
                                                "attention.csv, n_decode", "attention.csv, kv_decode"};
  return At(attention_, load, kNames, excess);
}

double Profile::StepNs(const AttentionLoad& load, Excess& excess) const {
  static constexpr LatencyGrid::Names kNames = {"steps.csv, prefill_chunk", "steps.csv, kv_prefill",
                                                "steps.csv, n_decode", "steps.csv, kv_decode"};
  return At(steps_, load, kNames, excess);
}

double Profile::At(const LatencyGrid& grid, const AttentionLoad& load, const LatencyGrid::Names& names,
                   Excess& excess) {
  // Several prompts of a step are asked for as one that has as many tokens and as many pairs.
  double chunk = load.prompt_tokens, before = 0;
  if (chunk > 0) {
    before = load.prompt_pairs / chunk - (chunk + 1) / 2;
    if (before < 0) {
      chunk = std::sqrt(2 * load.prompt_pairs);
      before = 0;
    }
  }
  const double view = load.decodes > 0 ? load.decode_keys / load.decodes : 0;
  return grid.At({chunk, before, load.decodes, view}, names, excess);
}

}  // namespace kvist::cost
