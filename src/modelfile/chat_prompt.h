#pragma once

/// @file
/// From chat messages to prompt tokens, by the model's own template and vocabulary. What people and tools wrote never
/// becomes a control token: only the template's own text does. Non-goals: HTTP, validation of messages.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "modelfile/chat_template.h"
#include "modelfile/tokenizer.h"

namespace kvist {

/// A prompt and where the contents of some of its messages lie in it.
struct MarkedPrompt {
  struct Range {
    uint32_t begin = 0, end = 0;  ///< Tokens of which every byte belongs to the content; may be empty.
  };
  std::vector<TokenId> tokens;
  std::vector<Range> ranges;  ///< Of each marked message, in their order.
};

/// Immutable. Threads: any.
class ChatEncoder {
 public:
  /// Both must outlive this.
  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  /// Renders `inputs` (bos_token and eos_token are filled in here) and encodes the text. A BOS that the template did
  /// not write is added where the vocabulary asks for it. Where a message spells a control token, the text is cut
  /// there, so that it is read as ordinary characters. Errors: those of ChatTemplate::Render.
  absl::StatusOr<std::vector<TokenId>> Encode(ChatTemplateInputs inputs) const;

  /// The same, and where the contents of the messages with indices `marked` (increasing) are. Errors: also
  /// InvalidArgument where the template does not write such a content, or not as it is, or more than once.
  absl::StatusOr<MarkedPrompt> EncodeMarked(ChatTemplateInputs inputs, std::span<const uint32_t> marked) const;

 private:
  void Prepare(ChatTemplateInputs& inputs) const;
  std::vector<TokenId> EncodeText(std::string_view text) const;
  void Guard(std::string& text) const;
  void GuardAll(boost::json::value& value) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  std::array<std::vector<std::string>, 256> control_pieces_;  ///< By first byte.
};

}  // namespace kvist
