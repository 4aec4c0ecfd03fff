#include "sched/length_predictor.h"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>

#include "base/status.h"

namespace kvist::sched {
namespace {

namespace json = boost::json;

constexpr std::string_view kFormat = "kvist-length-1";
constexpr size_t kTreesMax = 10'000, kNodesMax = 1'000'000;

absl::Status Bad(std::string_view place, std::string_view what) {
  return absl::InvalidArgumentError(Cat("the length model's ", place, " ", what));
}

absl::StatusOr<const json::array*> ArrayOf(const json::object& model, std::string_view key) {
  const json::value* value = model.if_contains(key);
  if (value == nullptr || !value->is_array()) return Bad(Cat("\"", key, "\""), "is not a list");
  return &value->get_array();
}

absl::StatusOr<double> NumberOf(const json::value& value, std::string_view place) {
  boost::system::error_code error;
  const auto number = value.to_number<double>(error);
  if (error.failed() || !std::isfinite(number) || std::abs(number) > 1e30) return Bad(place, "is not a finite number");
  return number;
}

absl::StatusOr<uint32_t> IndexOf(const json::value& value, uint32_t min, size_t size, std::string_view place) {
  boost::system::error_code error;
  const auto index = value.to_number<uint32_t>(error);
  if (error.failed() || index < min || index >= size) {
    return Bad(place, Cat("is not a whole number from ", min, " to below ", size));
  }
  return index;
}

absl::StatusOr<LengthNode> NodeOf(const json::value& value, uint32_t index, size_t nodes, std::string_view place) {
  if (!value.is_array() || (value.get_array().size() != 1 && value.get_array().size() != 4)) {
    return Bad(place, "is neither [leaf] nor [feature, value, below, other]");
  }
  const json::array& fields = value.get_array();
  LengthNode node;
  const bool leaf = fields.size() == 1;
  KVIST_ASSIGN_OR_RETURN(const double number, NumberOf(fields[leaf ? 0 : 1], place));
  node.value = static_cast<float>(number);
  if (leaf) return node;
  KVIST_ASSIGN_OR_RETURN(node.feature, IndexOf(fields[0], 0, kLengthFeatures, place));
  KVIST_ASSIGN_OR_RETURN(node.below, IndexOf(fields[2], index + 1, nodes, place));  // Later ones: no way leads back.
  KVIST_ASSIGN_OR_RETURN(node.other, IndexOf(fields[3], index + 1, nodes, place));
  return node;
}

absl::Status CheckFeatures(const json::array& names) {
  const bool same = std::ranges::equal(names, kLengthFeatureNames, [](const json::value& name, std::string_view known) {
    return name.is_string() && std::string_view(name.get_string()) == known;
  });
  return same ? absl::OkStatus() : Bad("features", "are not those of this version: train it again");
}

}  // namespace

absl::StatusOr<LengthPredictor> LengthPredictor::Parse(std::string_view text) {
  boost::system::error_code error;
  const json::value parsed = json::parse(text, error);
  if (error.failed()) return absl::InvalidArgumentError(Cat("the length model is not JSON: ", error.message()));
  const json::object* model = parsed.if_object();
  const json::value* format = model != nullptr ? model->if_contains("format") : nullptr;
  if (format == nullptr || !format->is_string() || std::string_view(format->get_string()) != kFormat) {
    return Bad("\"format\"", Cat("is not \"", kFormat, "\""));
  }
  KVIST_ASSIGN_OR_RETURN(const json::array* names, ArrayOf(*model, "features"));
  KVIST_RETURN_IF_ERROR(CheckFeatures(*names));
  LengthPredictor predictor;
  const json::value* base = model->if_contains("base");
  if (base == nullptr) return Bad("\"base\"", "is missing");
  KVIST_ASSIGN_OR_RETURN(predictor.base_, NumberOf(*base, "\"base\""));
  KVIST_ASSIGN_OR_RETURN(const json::array* trees, ArrayOf(*model, "trees"));
  if (trees->size() > kTreesMax) return Bad("\"trees\"", Cat("are more than ", kTreesMax));
  for (size_t t = 0; t < trees->size(); ++t) {
    const std::string place = Cat("trees[", t, "]");
    if (!(*trees)[t].is_array() || (*trees)[t].get_array().empty()) return Bad(place, "is not a list of nodes");
    const json::array& nodes = (*trees)[t].get_array();
    const auto root = static_cast<uint32_t>(predictor.nodes_.size());
    if (root + nodes.size() > kNodesMax) return Bad("\"trees\"", Cat("have more than ", kNodesMax, " nodes"));
    predictor.roots_.push_back(root);
    for (uint32_t n = 0; n < nodes.size(); ++n) {
      KVIST_ASSIGN_OR_RETURN(LengthNode node, NodeOf(nodes[n], n, nodes.size(), Cat(place, "[", n, "]")));
      node.below += root;
      node.other += root;
      predictor.nodes_.push_back(node);
    }
  }
  return predictor;
}

uint32_t LengthPredictor::PredictFrom(const LengthFeatures& features) const {
  double log_tokens = base_;
  for (const uint32_t root : roots_) {
    const LengthNode* node = &nodes_[root];
    while (node->feature != LengthNode::kLeaf) {
      node = &nodes_[features[node->feature] < node->value ? node->below : node->other];
    }
    log_tokens += node->value;
  }
  return static_cast<uint32_t>(std::exp(std::clamp(log_tokens, 0.0, 20.0)));
}

}  // namespace kvist::sched
