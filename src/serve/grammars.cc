#include "serve/grammars.h"

#include <algorithm>
#include <chrono>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {
namespace {

constexpr size_t kEntriesMax = 32;
/// Most are made in a thousandth of this.
constexpr std::chrono::milliseconds kWaitMax(500);

}  // namespace

std::shared_ptr<const grammar::Constraint> Grammars::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(entries_, key, &Entry::first);
  if (known == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, known);
  return known->second;
}

absl::StatusOr<std::shared_ptr<const grammar::Constraint>> Grammars::Get(
    const std::string& key, const std::function<absl::StatusOr<grammar::Grammar>()>& compile) {
  if (auto known = Find(key)) return known;
  std::unique_lock making(making_, kWaitMax);
  if (!making.owns_lock()) {
    return WithRetry(absl::UnavailableError("another request's schema is being compiled, which takes long"), 1);
  }
  if (auto known = Find(key)) return known;  // Somebody else has made it meanwhile.
  KVIST_ASSIGN_OR_RETURN(grammar::Grammar compiled, compile());
  std::lock_guard lock(mutex_);
  if (table_ == nullptr) table_ = std::make_shared<const grammar::TokenTable>(tokenizer_);
  auto constraint = std::make_shared<const grammar::Constraint>(std::move(compiled), table_);
  entries_.emplace_front(key, constraint);
  if (entries_.size() > kEntriesMax) entries_.pop_back();
  return constraint;
}

}  // namespace kvist::serve
