#include "modelfile/jinja/runtime.h"

#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/strings.h"

namespace kvist::jinja {

absl::Status Runtime::OutOfSteps() const {
  return absl::ResourceExhaustedError(Cat("the template took more than ", limits_.steps_max, " steps to render"));
}

absl::Status Runtime::TooLong() const {
  return absl::ResourceExhaustedError(Cat("text is longer than ", limits_.bytes_max, " bytes"));
}

absl::Status Runtime::TooDeep() const {
  return absl::ResourceExhaustedError(Cat("evaluation is nested deeper than ", limits_.depth_max, " levels"));
}

absl::StatusOr<uint32_t> Runtime::DepthOf(std::span<const Value> items) {
  KVIST_RETURN_IF_ERROR(Spend(items.size() * kStepsPerItem));
  uint32_t depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.Depth() + 1);
  if (depth > limits_.depth_max) {
    return absl::ResourceExhaustedError(Cat("a value is nested deeper than ", limits_.depth_max, " levels"));
  }
  return depth;
}

absl::StatusOr<Value> Runtime::NewText(std::string bytes, bool safe) {
  KVIST_RETURN_IF_ERROR(SpendBytes(bytes.size(), bytes.size()));
  return Value::String(std::move(bytes), safe);
}

absl::StatusOr<Value> Runtime::NewSequence(std::vector<Value> items, bool is_tuple, bool is_group) {
  KVIST_ASSIGN_OR_RETURN(const uint32_t depth, DepthOf(items));
  auto sequence = std::make_shared<Sequence>();
  sequence->items = std::move(items);
  sequence->is_tuple = is_tuple;
  sequence->is_group = is_group;
  sequence->depth = depth;
  return Value::Of(std::shared_ptr<const Sequence>(std::move(sequence)));
}

absl::StatusOr<Value> Runtime::NewList(std::vector<Value> items) {
  return NewSequence(std::move(items), false, false);
}

absl::StatusOr<Value> Runtime::NewTuple(std::vector<Value> items, bool is_group) {
  return NewSequence(std::move(items), true, is_group);
}

absl::StatusOr<Value> Runtime::NewIterator(std::vector<Value> items, absl::Status error) {
  if (absl::IsResourceExhausted(error)) return error;  // A limit is final, wherever it was met.
  KVIST_ASSIGN_OR_RETURN(const uint32_t depth, DepthOf(items));
  auto iterator = std::make_shared<Iterator>();
  iterator->items = std::move(items);
  iterator->error = std::move(error);
  iterator->depth = depth;
  return Value::Of(std::move(iterator));
}

absl::StatusOr<Value> Runtime::NewNamespace() {
  KVIST_RETURN_IF_ERROR(Spend(kStepsPerItem));
  namespaces_.emplace_back();
  return Value::Of(&namespaces_.back());
}

absl::Status Runtime::PutEntry(Dict& dict, Value key, Value value) {
  KVIST_RETURN_IF_ERROR(Spend(2 * kStepsPerItem));
  KVIST_ASSIGN_OR_RETURN(const uint64_t hash, Hash(*this, key));
  absl::Status status;
  const size_t found = dict.Locate(hash, [&](const Value& other) {
    absl::StatusOr<bool> equal = Equals(*this, other, key);
    if (!equal.ok()) status = equal.status();
    return !equal.ok() || *equal;
  });
  KVIST_RETURN_IF_ERROR(status);
  if (found == dict.entries.size()) {
    dict.Append(std::move(key), std::move(value), hash);
  } else {
    dict.depth = std::max(dict.depth, value.Depth() + 1);
    dict.entries[found].second = std::move(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<const Value*> Runtime::FindKey(const Dict& dict, const Value& key) {
  if (key.IsText()) return dict.FindText(key.str());
  KVIST_ASSIGN_OR_RETURN(const uint64_t hash, Hash(*this, key));
  absl::Status status;
  const Value* found = dict.Find(hash, [&](const Value& other) {
    absl::StatusOr<bool> equal = Equals(*this, other, key);
    if (!equal.ok()) status = equal.status();
    return !equal.ok() || *equal;
  });
  KVIST_RETURN_IF_ERROR(status);
  return found;
}

absl::StatusOr<Value> Runtime::Finish(std::shared_ptr<Dict> dict) {
  if (dict->depth > limits_.depth_max) {
    return absl::ResourceExhaustedError(Cat("a value is nested deeper than ", limits_.depth_max, " levels"));
  }
  return Value::Of(std::shared_ptr<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> Runtime::NewDict(std::vector<std::pair<Value, Value>>&& entries) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : entries) KVIST_RETURN_IF_ERROR(PutEntry(*dict, std::move(key), std::move(value)));
  return Finish(std::move(dict));
}

bool Args::Truthy(size_t i, bool absent) const {
  return Has(i) ? jinja::Truthy((*this)[i]) : absent;
}

absl::StatusOr<Int> Args::Integer(size_t i, Int absent) const {
  if (!Has(i)) return absent;
  const Value& value = (*this)[i];
  if (value.IsUndefined()) return UndefinedError(value);
  if (!value.IsIntegral()) return Fail("expected an int as argument ", i + 1, ", got ", TypeName(value));
  return value.integer();
}

absl::StatusOr<std::string_view> Args::Text(size_t i, std::string_view absent) const {
  if (!Has(i)) return absent;
  const Value& value = (*this)[i];
  if (!value.IsText()) return Fail("expected a str as argument ", i + 1, ", got ", TypeName(value));
  return value.str();
}

absl::StatusOr<Value> Invoke(Runtime& runtime, const Builtin& builtin, const Value& self, CallArgs& args) {
  if (builtin.params == "*") return builtin.fn(runtime, self, Args({}, args));
  std::vector<const Value*> bound;
  std::vector<std::string_view> names;
  size_t required = 0;
  for (std::string_view name : SplitAt(builtin.params, ' ')) {
    if (name.empty()) continue;  // No parameters at all.
    const bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    if (!optional) ++required;
    names.push_back(name);
    bound.push_back(nullptr);
  }
  if (args.positional.size() > names.size()) {
    return Fail("'", builtin.name, "' takes at most ", names.size(), " argument(s), got ", args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const size_t i = std::find(names.begin(), names.end(), name) - names.begin();
    if (i == names.size()) return Fail("'", builtin.name, "' takes no argument named '", name, "'");
    if (bound[i] != nullptr) return Fail("'", builtin.name, "' got two values for '", name, "'");
    bound[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) return Fail("'", builtin.name, "' needs the argument '", names[i], "'");
  }
  return builtin.fn(runtime, self, Args(std::move(bound), args));
}

}  // namespace kvist::jinja
