#include "lab/claim_expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kvist::lab {

namespace json = boost::json;

namespace {

constexpr int kDepthMax = 64;
constexpr std::string_view kFunctions[] = {"min", "max", "mean", "sum", "count", "median", "abs"};

using List = std::vector<double>;
using Condition = std::pair<std::string, std::string>;

/// The value at a dotted path; nullptr where there is none.
const json::value* Find(const json::object& row, std::string_view path) {
  const json::object* object = &row;
  while (true) {
    const size_t dot = path.find('.');
    const json::value* value = object->if_contains(path.substr(0, dot));
    if (value == nullptr || dot == std::string_view::npos) return value;
    object = value->if_object();
    if (object == nullptr) return nullptr;
    path.remove_prefix(dot + 1);
  }
}

bool Equals(const json::value& value, std::string_view wanted) {
  if (value.is_string()) return std::string_view(value.get_string()) == wanted;
  return !value.is_structured() && json::serialize(value) == wanted;
}

/// One pass of recursive descent that computes as it reads.
class Evaluation {
 public:
  /// @param dry  selections stand for one row, whatever the rows are
  Evaluation(std::string_view text, std::span<const json::object> rows, bool dry)
      : text_(text), rows_(rows), dry_(dry) {}

  absl::StatusOr<double> Run() {
    KVIST_ASSIGN_OR_RETURN(const List list, Sum());
    Skip();
    if (at_ < text_.size()) return Unreadable("an operator or the end");
    KVIST_ASSIGN_OR_RETURN(const double value, Single(list));
    if (!std::isfinite(value) && !dry_) return absl::FailedPreconditionError("the figure is not finite");
    return value;
  }

 private:
  absl::Status Unreadable(std::string_view wanted) const {
    return absl::InvalidArgumentError(Cat("column ", at_ + 1, ": expected ", wanted));
  }

  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  static absl::StatusOr<double> Single(const List& list) {
    if (list.size() != 1) return absl::FailedPreconditionError(Cat(list.size(), " figures where one is wanted"));
    return list.front();
  }

  template <class Operation>
  static absl::Status Combine(List& left, const List& right, Operation operation) {
    if (left.size() != right.size() && left.size() != 1 && right.size() != 1) {
      return absl::FailedPreconditionError(Cat("lists of ", left.size(), " and of ", right.size(), " figures"));
    }
    if (left.size() < right.size()) left.resize(right.size(), left.front());
    for (size_t i = 0; i < left.size(); ++i) left[i] = operation(left[i], right[right.size() == 1 ? 0 : i]);
    return absl::OkStatus();
  }

  absl::StatusOr<List> Sum() {
    KVIST_ASSIGN_OR_RETURN(List left, Product());
    while (true) {
      const bool plus = Take('+');
      if (!plus && !Take('-')) return left;
      KVIST_ASSIGN_OR_RETURN(const List right, Product());
      KVIST_RETURN_IF_ERROR(Combine(left, right, [&](double a, double b) { return plus ? a + b : a - b; }));
    }
  }

  absl::StatusOr<List> Product() {
    KVIST_ASSIGN_OR_RETURN(List left, Operand());
    while (true) {
      const bool times = Take('*');
      if (!times && !Take('/')) return left;
      KVIST_ASSIGN_OR_RETURN(const List right, Operand());
      KVIST_RETURN_IF_ERROR(Combine(left, right, [&](double a, double b) { return times ? a * b : a / b; }));
    }
  }

  absl::StatusOr<List> Operand() {
    if (++depth_ > kDepthMax) return absl::InvalidArgumentError("too deeply nested");
    absl::StatusOr<List> list = OperandInside();
    --depth_;
    return list;
  }

  absl::StatusOr<List> OperandInside() {
    if (Take('-')) {
      KVIST_ASSIGN_OR_RETURN(List list, Operand());
      for (double& value : list) value = -value;
      return list;
    }
    if (Take('(')) {
      KVIST_ASSIGN_OR_RETURN(List list, Sum());
      if (!Take(')')) return Unreadable("')'");
      return list;
    }
    if (Take('[')) return Selection();
    if (at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z') return Function();
    double number = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc()) return Unreadable("a number, a function, '(' or '['");
    at_ = static_cast<size_t>(end - text_.data());
    return List{number};
  }

  std::string_view Word(std::string_view ends) {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() && ends.find(text_[at_]) == std::string_view::npos) ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    while (word.ends_with(' ')) word.remove_suffix(1);
    return word;
  }

  /// After '['.
  absl::StatusOr<List> Selection() {
    std::vector<Condition> conditions;
    while (!Take(']')) {
      if (!conditions.empty() && !Take(',')) return Unreadable("',' or ']'");
      const std::string_view key = Word("=],[ ");
      if (key.empty() || !Take('=')) return Unreadable("key=value");
      const std::string_view value = Word("],[");
      if (value.empty()) return Unreadable("a value");
      conditions.emplace_back(key, value);
    }
    if (!Take('.')) return Unreadable("'.' and the path of a figure");
    const std::string_view path = Word(" \n\t+-*/(),[]");
    if (path.empty()) return Unreadable("the path of a figure");
    if (dry_) return List{1};
    List list;
    for (const json::object& row : rows_) {
      const bool chosen = std::ranges::all_of(conditions, [&](const Condition& condition) {
        const json::value* value = Find(row, condition.first);
        return value != nullptr && Equals(*value, condition.second);
      });
      const json::value* value = chosen ? Find(row, path) : nullptr;
      if (value == nullptr) continue;
      if (value->is_bool()) {
        list.push_back(value->get_bool() ? 1 : 0);
      } else if (value->is_number()) {
        list.push_back(value->to_number<double>());
      }
    }
    if (list.empty()) return absl::NotFoundError(Cat("no row has the figure '", path, "' that is asked for"));
    return list;
  }

  absl::StatusOr<List> Function() {
    const std::string_view name = Word(" (\n\t+-*/)[],");
    if (std::ranges::find(kFunctions, name) == std::end(kFunctions)) {
      return absl::InvalidArgumentError(Cat("column ", at_ + 1 - name.size(), ": unknown function '", name, "'"));
    }
    if (!Take('(')) return Unreadable("'('");
    KVIST_ASSIGN_OR_RETURN(List list, Sum());
    List weights;
    if (name == "mean" && Take(',')) {
      KVIST_ASSIGN_OR_RETURN(weights, Sum());
      if (weights.size() != list.size()) {
        return absl::FailedPreconditionError(Cat(list.size(), " figures and ", weights.size(), " weights"));
      }
    }
    if (!Take(')')) return Unreadable("')'");
    if (name == "abs") {
      for (double& value : list) value = std::fabs(value);
      return list;
    }
    return List{Reduce(name, list, weights)};
  }

  static double Reduce(std::string_view name, List& list, const List& weights) {
    if (name == "count") return static_cast<double>(list.size());
    if (name == "min") return *std::ranges::min_element(list);
    if (name == "max") return *std::ranges::max_element(list);
    const double count = static_cast<double>(list.size());
    if (name == "median") {
      std::ranges::sort(list);
      return (list[(list.size() - 1) / 2] + list[list.size() / 2]) / 2;
    }
    const double sum = weights.empty() ? std::reduce(list.begin(), list.end())
                                       : std::inner_product(list.begin(), list.end(), weights.begin(), 0.0);
    if (name == "sum") return sum;
    return sum / (weights.empty() ? count : std::reduce(weights.begin(), weights.end()));
  }

  const std::string_view text_;
  const std::span<const json::object> rows_;
  const bool dry_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<double> EvaluateClaim(std::string_view expression, std::span<const json::object> rows) {
  return Evaluation(expression, rows, /*dry=*/false).Run();
}

absl::Status CheckClaimExpression(std::string_view expression) {
  return Evaluation(expression, {}, /*dry=*/true).Run().status();
}

}  // namespace kvist::lab
