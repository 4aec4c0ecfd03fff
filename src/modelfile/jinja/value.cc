#include "modelfile/jinja/value.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "base/status.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

/// Below this a scan is faster than a table.
constexpr size_t kDictScanMax = 8;

}  // namespace

int64_t Text::CodePoints() const {
  int64_t count = code_points.load(std::memory_order_relaxed);
  if (count < 0) {
    count = static_cast<int64_t>(CountCodePoints(bytes));
    code_points.store(count, std::memory_order_relaxed);
  }
  return count;
}

uint64_t HashText(std::string_view text) {
  return absl::HashOf(text);
}

const Value* Dict::FindText(std::string_view key) const {
  const auto equal = [key](const Value& k) { return k.IsText() && k.str() == key; };
  if (entries.size() > kDictScanMax) return Find(HashText(key), equal);
  for (const auto& [k, v] : entries) {
    if (equal(k)) return &v;
  }
  return nullptr;
}

void Dict::Append(Value key, Value value, uint64_t hash) {
  depth = std::max({depth, key.Depth() + 1, value.Depth() + 1});
  entries.emplace_back(std::move(key), std::move(value));
  hashes_.push_back(hash);
  if (entries.size() * 2 > table_.size()) {  // Also when there is no table yet.
    Rehash();
    return;
  }
  size_t slot = hash & (table_.size() - 1);
  while (table_[slot] != 0) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = static_cast<uint32_t>(entries.size());
}

void Dict::Rehash() {
  if (entries.size() <= kDictScanMax) return;
  size_t size = std::max<size_t>(32, table_.size());
  while (size < entries.size() * 4) size *= 2;
  table_.assign(size, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    size_t slot = hashes_[i] & (size - 1);
    while (table_[slot] != 0) slot = (slot + 1) & (size - 1);
    table_[slot] = static_cast<uint32_t>(i + 1);
  }
}

Text* Value::UniqueText() {
  auto* text = std::get_if<std::shared_ptr<const Text>>(&rep_);
  if (text == nullptr || text->use_count() != 1) return nullptr;
  return const_cast<Text*>(text->get());  // Made as a mutable Text, and nobody else sees it.
}

bool Value::SameObject(const Value& other) const {
  if (rep_.index() != other.rep_.index()) return false;
  return std::visit(
      [&other](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        const T& theirs = std::get<T>(other.rep_);
        if constexpr (std::is_same_v<T, Nothing>) {
          return true;
        } else if constexpr (std::is_same_v<T, Missing>) {
          return false;
        } else {
          return mine == theirs;
        }
      },
      rep_);
}

uint32_t Value::Depth() const {
  switch (kind()) {
    case Kind::kSequence:
      return sequence().depth;
    case Kind::kDict:
      return dict().depth;
    case Kind::kDictView:
      return view().dict->depth + 1;
    case Kind::kIterator:
      return iterator().depth;
    case Kind::kMethod:
      return method().self.Depth() + 1;
    case Kind::kLoop:
      return loop().depth();
    default:
      return 0;
  }
}

Value* Namespace::Find(std::string_view name) {
  for (auto& [key, value] : entries) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  if (Value* old = Find(name)) {
    *old = std::move(value);
  } else {
    entries.emplace_back(std::string(name), std::move(value));
  }
}

Loop::Loop(std::vector<Value> source, absl::Status source_error, Filter filter)
    : source_(std::move(source)), source_error_(std::move(source_error)), filter_(std::move(filter)) {
  for (const Value& item : source_) depth_ = std::max(depth_, item.Depth() + 1);
}

absl::StatusOr<std::optional<Value>> Loop::Pull() {
  while (next_ < source_.size()) {
    Value item = source_[next_++];
    if (!filter_) return std::optional<Value>(std::move(item));
    KVIST_ASSIGN_OR_RETURN(std::optional<Value> passed, filter_(item));
    if (passed.has_value()) return passed;
  }
  KVIST_RETURN_IF_ERROR(source_error_);
  return std::optional<Value>();
}

absl::StatusOr<const Value*> Loop::Peek() {
  if (pulled_next_ == pulled_.size()) {
    KVIST_ASSIGN_OR_RETURN(std::optional<Value> item, Pull());
    if (!item.has_value()) return nullptr;
    pulled_.clear();
    pulled_next_ = 0;
    pulled_.push_back(*std::move(item));
  }
  return &pulled_[pulled_next_];
}

absl::StatusOr<bool> Loop::Advance() {
  KVIST_ASSIGN_OR_RETURN(const Value* item, Peek());
  if (item == nullptr) return false;
  previous_ = std::move(current_);
  current_ = std::move(pulled_[pulled_next_++]);
  ++index0_;
  return true;
}

absl::StatusOr<Int> Loop::Length() {
  for (;;) {
    KVIST_ASSIGN_OR_RETURN(std::optional<Value> item, Pull());
    if (!item.has_value()) break;
    pulled_.push_back(*std::move(item));
  }
  return index0_ + 1 + static_cast<Int>(pulled_.size() - pulled_next_);
}

void Loop::Close() {
  next_ = source_.size();
  source_error_ = absl::OkStatus();
  filter_ = nullptr;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return value.text().safe ? "Markup" : "str";
    case Kind::kSequence:
      return value.sequence().is_tuple ? "tuple" : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      switch (value.view().which) {
        case DictView::Which::kKeys:
          return "dict_keys";
        case DictView::Which::kValues:
          return "dict_values";
        case DictView::Which::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kBuiltin:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

}  // namespace kvist::jinja
