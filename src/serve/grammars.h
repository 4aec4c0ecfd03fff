#pragma once

/// @file
/// Compiled grammars of recent requests, so that those with the same wish share one and what is known about it.
/// Threads: any. Non-goals: which grammar a request wants (output_rules.h).

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "grammar/constraint.h"
#include "modelfile/tokenizer.h"

namespace kvist::serve {

class Grammars {
 public:
  /// `tokenizer` must outlive this.
  explicit Grammars(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The grammar of this name, made by `compile` unless it is known. One is made at a time, so that those that take
  /// long leave the server's other workers to others. @param key  says all that it depends on
  /// Errors: of `compile`; Unavailable when others are being made for long.
  absl::StatusOr<std::shared_ptr<const grammar::Constraint>> Get(
      const std::string& key, const std::function<absl::StatusOr<grammar::Grammar>()>& compile);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const grammar::Constraint>>;

  std::shared_ptr<const grammar::Constraint> Find(const std::string& key);

  const Tokenizer& tokenizer_;
  std::timed_mutex making_;  ///< Held by the one who compiles.
  std::mutex mutex_;         ///< Guards what follows.
  std::shared_ptr<const grammar::TokenTable> table_;
  std::list<Entry> entries_;  ///< Last used first.
};

}  // namespace kvist::serve
