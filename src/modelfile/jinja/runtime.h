#pragma once

/// @file
/// What one rendering owns: its budget of steps, bytes and depth, and the objects that may form cycles. Everything that
/// makes a value of unbounded size goes through here, so that a template can neither hang nor eat the memory.
/// Threads: one. Also the shapes of built-in filters, tests, functions and methods.

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "modelfile/jinja/value.h"

namespace kvist::jinja {

/// Bounds of one rendering.
struct Limits {
  uint64_t steps_max;
  size_t bytes_max;    ///< Of the output and of any one string.
  uint32_t depth_max;  ///< Nested evaluation, and nested containers in a value.
};

/// InvalidArgument with the parts joined; the place is added by the evaluator.
template <class... Parts>
absl::Status Fail(const Parts&... parts) {
  return absl::InvalidArgumentError(Cat(parts...));
}

class Runtime {
 public:
  /// 32 bytes written cost as much as one evaluated node, so that steps bound time and memory alike.
  static constexpr uint64_t kBytesPerStep = 32;
  /// Steps of one element of a new list.
  static constexpr uint64_t kStepsPerItem = 4;

  Runtime(const Limits& limits, int64_t now_unix_s)
      : limits_(limits), steps_left_(limits.steps_max), now_unix_s_(now_unix_s) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  int64_t now_unix_s() const { return now_unix_s_; }

  /// ResourceExhausted when the steps are used up.
  absl::Status Spend(uint64_t steps) {
    if (steps > steps_left_) [[unlikely]]
      return OutOfSteps();
    steps_left_ -= steps;
    return absl::OkStatus();
  }

  /// Pays for `bytes` new bytes in a string that will have `total` of them.
  absl::Status SpendBytes(size_t bytes, size_t total) {
    if (total > limits_.bytes_max) [[unlikely]]
      return TooLong();
    return Spend(bytes / kBytesPerStep);
  }

  /// One level of nested evaluation, for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
    ~Nesting() { --runtime_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

    /// ResourceExhausted when this level is one too many.
    absl::Status status() const {
      return runtime_.depth_ > runtime_.limits_.depth_max ? runtime_.TooDeep() : absl::OkStatus();
    }

   private:
    Runtime& runtime_;
  };

  absl::StatusOr<Value> NewText(std::string bytes, bool safe = false);
  absl::StatusOr<Value> NewList(std::vector<Value> items);
  absl::StatusOr<Value> NewTuple(std::vector<Value> items, bool is_group = false);
  /// `error` is what the generator meets after its last item.
  absl::StatusOr<Value> NewIterator(std::vector<Value> items, absl::Status error = {});
  /// Later values of an equal key replace earlier ones in place. Errors: unhashable key.
  absl::StatusOr<Value> NewDict(std::vector<std::pair<Value, Value>>&& entries);
  /// Owned by the rendering.
  absl::StatusOr<Value> NewNamespace();

  /// Adds one entry to a dict under construction, replacing the value of an equal key.
  absl::Status PutEntry(Dict& dict, Value key, Value value);
  /// The value of an equal key, or nullptr. Errors: unhashable key.
  absl::StatusOr<const Value*> FindKey(const Dict& dict, const Value& key);
  absl::StatusOr<Value> Finish(std::shared_ptr<Dict> dict);

 private:
  absl::Status OutOfSteps() const;
  absl::Status TooLong() const;
  absl::Status TooDeep() const;
  absl::StatusOr<Value> NewSequence(std::vector<Value> items, bool is_tuple, bool is_group);
  absl::StatusOr<uint32_t> DepthOf(std::span<const Value> items);

  const Limits limits_;
  uint64_t steps_left_;
  uint32_t depth_ = 0;
  const int64_t now_unix_s_;
  std::deque<Namespace> namespaces_;
};

/// Arguments as written at the call.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments bound to the parameters of a built-in.
class Args {
 public:
  Args(std::vector<const Value*> bound, CallArgs& all) : bound_(std::move(bound)), all_(all) {}

  /// Whether parameter i was given (None counts as given).
  bool Has(size_t i) const { return i < bound_.size() && bound_[i] != nullptr; }
  /// REQUIRES Has(i).
  const Value& operator[](size_t i) const { return *bound_[i]; }
  /// Given and not None.
  bool HasValue(size_t i) const { return Has(i) && !bound_[i]->IsNone(); }

  bool Truthy(size_t i, bool absent) const;
  absl::StatusOr<Int> Integer(size_t i, Int absent) const;
  /// A str argument; anything else is an error.
  absl::StatusOr<std::string_view> Text(size_t i, std::string_view absent) const;

  /// Everything that was passed, for built-ins that take any arguments.
  CallArgs& all() const { return all_; }

 private:
  std::vector<const Value*> bound_;  ///< [parameters]; nullptr = not given.
  CallArgs& all_;
};

/// A built-in filter, test, function or method. `self` is the filtered value, the tested value or the receiver.
struct Builtin {
  std::string_view name;
  /// Names separated by spaces; `?` after one that may be left out; "*" alone = any arguments, unbound.
  std::string_view params;
  absl::StatusOr<Value> (*fn)(Runtime& runtime, const Value& self, const Args& args);
};

/// Binds and calls. Errors: as the built-in, or arguments that do not fit.
absl::StatusOr<Value> Invoke(Runtime& runtime, const Builtin& builtin, const Value& self, CallArgs& args);

/// nullptr when there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindMethod(const Value& receiver, std::string_view name);

}  // namespace kvist::jinja
