#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool render_control, bool strip_leading_space)
    : tokenizer_(tokenizer),
      render_control_(render_control),
      strip_(strip_leading_space && tokenizer.adds_space_prefix()) {}

std::string Detokenizer::Push(TokenId id, bool render_control) {
  const std::string bytes = tokenizer_.TokenBytes(id, render_control);
  std::string_view text = bytes;
  if (tokenizer_.IsBreak(id)) {
    strip_ = tokenizer_.adds_space_prefix();
  } else if (strip_ && !text.empty()) {
    if (text.front() == ' ') text.remove_prefix(1);
    strip_ = false;
  }
  pending_.append(text);
  std::string out;
  TakeCharacters(pending_, false, out);
  return out;
}

std::string Detokenizer::Finish() {
  std::string out;
  TakeCharacters(pending_, true, out);
  return out;
}

}  // namespace kvist
