#pragma once

/// @file
/// Texts for tests of KV memory. Threads: any.

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace kvist::kv {

/// Consecutive token ids: texts with other first ids share nothing.
inline std::vector<TokenId> Tokens(uint32_t count, uint32_t first = 0) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

}  // namespace kvist::kv
