#pragma once

/// @file
/// Text that a grammar forces, as tokens that need no sampling. The rule (docs/decisions/0022): the forced text is
/// tokenized as a text of its own, and only those tokens are taken that stay the same whatever may follow; where there
/// is a choice after it, the last one is always left to the model, which may know a longer token for it. Threads: as
/// Matcher.

#include <vector>

#include "grammar/constraint.h"
#include "modelfile/tokenizer.h"

namespace kvist::grammar {

/// Tokens to append now, which `matcher` accepts one after another; often none. `matcher` is not changed.
/// @param max  most of them
std::vector<TokenId> ForcedTokens(const Matcher& matcher, const Tokenizer& tokenizer, size_t max);

}  // namespace kvist::grammar
