#pragma once

/// @file
/// Reads calls of tools after their opening mark, as the text comes. Threads: one. Non-goals: the text around calls
/// (output_parser.h).

#include <memory>
#include <string>

#include "serve/output_parser.h"

namespace kvist::serve::internal {

class CallReader {
 public:
  enum class Result : uint8_t {
    kMore,   ///< More text is needed.
    kDone,   ///< What is left of the text comes after the calls.
    kFault,  ///< The text is no call, from where the last one ended; a call that had begun is ended.
  };
  virtual ~CallReader() = default;
  /// Reads from the front of `text`, takes off what it has read and notes it in `parts` (PartList::Note).
  virtual Result Read(std::string& text, PartList& parts) = 0;
};

/// `syntax` outlives it.
std::unique_ptr<CallReader> NewCallReader(const OutputSyntax& syntax);

}  // namespace kvist::serve::internal
