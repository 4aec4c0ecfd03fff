#include "serve/grammars.h"

#include <algorithm>

#include "base/status.h"

namespace kvist::serve {
namespace {

constexpr size_t kEntriesMax = 32;

}  // namespace

absl::StatusOr<std::shared_ptr<const grammar::Constraint>> Grammars::Get(
    const std::string& key, const std::function<absl::StatusOr<grammar::Grammar>()>& compile) {
  {
    std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(entries_, key, &Entry::first);
    if (known != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, known);
      return known->second;
    }
  }
  KVIST_ASSIGN_OR_RETURN(grammar::Grammar compiled, compile());
  std::lock_guard lock(mutex_);
  if (table_ == nullptr) table_ = std::make_shared<const grammar::TokenTable>(tokenizer_);
  auto constraint = std::make_shared<const grammar::Constraint>(std::move(compiled), table_);
  entries_.emplace_front(key, constraint);
  if (entries_.size() > kEntriesMax) entries_.pop_back();
  return constraint;
}

}  // namespace kvist::serve
