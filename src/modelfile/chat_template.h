#pragma once

/// @file
/// Renders the Jinja chat template that a model file carries: messages in, prompt text out, byte for byte the text that
/// Python's jinja2 gives when Hugging Face transformers sets it up (immutable sandbox, trim_blocks, lstrip_blocks, loop
/// controls, the generation tag, its tojson, raise_exception and strftime_now). Where jinja2 raises, this gives an
/// error. Sandboxed: bounded steps, depth, output and intermediate values; a template sees plain data only, and what it
/// sees it cannot change. Non-goals: include, import, extends, block, autoescape, recursive loops, integers beyond 128
/// bits; the filters filesizeformat, pprint, random, striptags, urlize, wordwrap and xmlattr; the functions cycler,
/// joiner and lipsum. What is not supported is an error that says so, when the template is parsed if it shows there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist {

/// What a template may read.
struct ChatTemplateInputs {
  boost::json::array messages;  ///< OpenAI message objects, keys in order.
  boost::json::value tools;     ///< Array of OpenAI tool objects, or null.
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;  ///< Text of the tokens; empty when the vocabulary has none, never undefined.
  boost::json::object extra;         ///< More variables, e.g. {"enable_thinking": false}; override the ones above.
  int64_t now_unix_s = 0;            ///< For strftime_now, UTC.
};

/// Bounds of one rendering. A template that exceeds one is an error, never a hang.
struct ChatTemplateLimits {
  uint64_t steps_max = 20'000'000;      ///< Evaluated nodes, and 32 bytes of new text each: bounds memory, too.
  size_t output_bytes_max = 64u << 20;  ///< Also bounds every intermediate string.
  uint32_t depth_max = 200;             ///< Nesting of expressions, blocks, macro calls and values.
  size_t source_bytes_max = 1u << 20;
};

/// A parsed template. Immutable. Threads: any may Render at once.
class ChatTemplate {
 public:
  /// Errors: InvalidArgument "chat template: line L, column C: ...", columns in bytes.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source, ChatTemplateLimits limits = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Errors: InvalidArgument, the bare message where the template called raise_exception, else with line, column and
  /// what was found there; ResourceExhausted (a limit).
  absl::StatusOr<std::string> Render(const ChatTemplateInputs& inputs) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvist
