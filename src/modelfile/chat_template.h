#pragma once

/// @file
/// Renders the Jinja chat template that a model file carries: messages in, prompt text out, the same text that Python's
/// jinja2 (as Hugging Face transformers sets it up) gives. Sandboxed: bounded steps, depth and output; a template
/// sees plain data only. Non-goals: Jinja features that chat templates do not use (include, import, extends, filters
/// with side effects).

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
  std::string bos_token, eos_token;  ///< Text of the tokens; empty when the vocabulary has none.
  boost::json::object extra;         ///< More variables, e.g. {"enable_thinking": false}; override the ones above.
  int64_t now_unix_s = 0;            ///< For strftime_now, UTC.
};

/// Bounds of one rendering. A template that exceeds one is an error, never a hang.
struct ChatTemplateLimits {
  uint64_t steps_max = 20'000'000;      ///< Evaluated nodes.
  size_t output_bytes_max = 64u << 20;  ///< Also bounds every intermediate string.
  uint32_t depth_max = 200;             ///< Nesting of expressions, blocks and macro calls.
  size_t source_bytes_max = 1u << 20;
};

/// A parsed template. Immutable. Threads: any may Render at once.
class ChatTemplate {
 public:
  /// Errors: InvalidArgument with line and column.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source, ChatTemplateLimits limits = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Errors: InvalidArgument (raise_exception of the template: its message; wrong types: line and what was found),
  /// ResourceExhausted (a limit).
  absl::StatusOr<std::string> Render(const ChatTemplateInputs& inputs) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvist
