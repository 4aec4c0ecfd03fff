#pragma once

/// @file
/// What must hold for any output of a model. Shared by the fuzzer and the replay of its corpus.

#include <string_view>

namespace kvist::serve {

/// The first byte says which manner of calls is looked for ('0' and on), the rest is the output. Aborts when the parts
/// depend on how the output arrives, when calls are not one after another with their own ids, or when text without any
/// mark is not content as it is.
/// @return calls found
int CheckOutput(std::string_view input);

}  // namespace kvist::serve
