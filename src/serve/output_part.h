#pragma once

/// @file
/// What a model writes, taken apart: text for the reader, reasoning, calls of tools. Between the parser that finds
/// these in the model's text and the writers of answers (answer_format.h). Plain data.

#include <cstdint>
#include <string>

namespace kvist::serve {

/// A piece of one choice's output. Pieces of the same part follow each other; a call is kCallBegin, any number of
/// kCallArguments, kCallEnd, and no other part comes between.
struct OutputPart {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kCallArguments, kCallEnd };
  Kind kind = Kind::kContent;
  std::string text;       ///< Of content and reasoning; of kCallArguments, a piece of JSON text. Whole characters.
  uint32_t call = 0;      ///< Of a call's parts: 0 for the first call of the choice, then 1, ...
  std::string call_id;    ///< With kCallBegin: unique, e.g. "call_9f3c...".
  std::string call_name;  ///< With kCallBegin: of the tool.
};

}  // namespace kvist::serve
