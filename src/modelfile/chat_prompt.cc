#include "modelfile/chat_prompt.h"

#include <algorithm>

#include "base/status.h"

namespace kvist {
namespace {

/// Marks a cut inside the rendered text. A noncharacter of Unicode, dropped from what users send.
constexpr std::string_view kCut = "\xF4\x8F\xBF\xBF";
/// Marks either end of a message's content. Another noncharacter.
constexpr std::string_view kMark = "\xF4\x8F\xBF\xBE";

void EraseAll(std::string& text, std::string_view what) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) text.erase(at, what.size());
}

/// Puts marks around the content of a message, inside white space that templates like to trim.
void MarkContent(boost::json::value& message) {
  boost::json::string* content = message.is_object() && message.get_object().contains("content")
                                     ? message.get_object().at("content").if_string()
                                     : nullptr;
  if (content == nullptr) return;
  const std::string_view text(content->data(), content->size());
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  const size_t end = begin == text.size() ? begin : text.find_last_not_of(kSpace) + 1;
  const std::string marked =
      Cat(text.substr(0, begin), kMark, text.substr(begin, end - begin), kMark, text.substr(end));
  *content = marked;
}

/// Byte offset in `text` at which each token ends; empty when the tokens do not spell the text.
std::vector<size_t> TokenEnds(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::string_view text) {
  std::vector<size_t> ends;
  size_t at = 0;
  bool space_may_be_added = tokenizer.adds_space_prefix();
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (text.substr(at).starts_with(kCut)) {
      at += kCut.size();
      space_may_be_added = tokenizer.adds_space_prefix();
    }
    const std::string spelled = tokenizer.TokenBytes(tokens[i], /*render_control=*/true);
    std::string_view bytes = spelled;
    if (!text.substr(at).starts_with(bytes)) {
      const bool added_bos = i == 0 && tokenizer.bos() == tokens[i];
      if (added_bos) {
        bytes = {};
      } else if (space_may_be_added && bytes.starts_with(' ')) {
        bytes.remove_prefix(1);
      }
      if (!text.substr(at).starts_with(bytes)) return {};
    }
    space_may_be_added = tokenizer.adds_space_prefix() && tokenizer.IsBreak(tokens[i]);
    at += bytes.size();
    ends.push_back(at);
  }
  return ends;
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : tokenizer_(tokenizer), chat_template_(chat_template) {
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string_view piece = tokenizer.Piece(TokenId{id});
    if (piece.size() < 2 || !tokenizer.IsControl(TokenId{id})) continue;
    control_pieces_[static_cast<unsigned char>(piece.front())].emplace_back(piece);
  }
}

/// Puts a cut after the first byte of every control token that `text` spells.
void ChatEncoder::Guard(std::string& text) const {
  EraseAll(text, kCut);
  EraseAll(text, kMark);
  std::string guarded;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto& pieces = control_pieces_[static_cast<unsigned char>(text[at])];
    const bool spells = std::ranges::any_of(
        pieces, [&](const std::string& piece) { return text.compare(at, piece.size(), piece) == 0; });
    if (!spells) continue;
    guarded.append(text, copied, at + 1 - copied).append(kCut);
    copied = at + 1;
  }
  if (copied == 0) return;
  text = guarded.append(text, copied);
}

void ChatEncoder::GuardAll(boost::json::value& value) const {
  if (boost::json::string* text = value.if_string()) {
    std::string plain(text->begin(), text->end());
    Guard(plain);
    *text = plain;
  } else if (boost::json::array* array = value.if_array()) {
    for (boost::json::value& element : *array) GuardAll(element);
  } else if (boost::json::object* object = value.if_object()) {
    for (auto& member : *object) GuardAll(member.value());
  }
}

void ChatEncoder::Prepare(ChatTemplateInputs& inputs) const {
  inputs.bos_token = tokenizer_.bos() ? std::string(tokenizer_.Piece(*tokenizer_.bos())) : "";
  inputs.eos_token = tokenizer_.eos() ? std::string(tokenizer_.Piece(*tokenizer_.eos())) : "";
  for (boost::json::value& message : inputs.messages) GuardAll(message);
  GuardAll(inputs.tools);
  for (auto& member : inputs.extra) GuardAll(member.value());
}

std::vector<TokenId> ChatEncoder::EncodeText(std::string_view text) const {
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kCut, begin), text.size());
    const std::vector<TokenId> part =
        tokenizer_.Encode(text.substr(begin, end - begin), {.add_special = false, .parse_special = true});
    ids.insert(ids.end(), part.begin(), part.end());
    begin = end + kCut.size();
  }
  if (tokenizer_.adds_bos() && tokenizer_.bos() && (ids.empty() || ids.front() != *tokenizer_.bos())) {
    ids.insert(ids.begin(), *tokenizer_.bos());
  }
  return ids;
}

absl::StatusOr<std::vector<TokenId>> ChatEncoder::Encode(ChatTemplateInputs inputs) const {
  Prepare(inputs);
  KVIST_ASSIGN_OR_RETURN(const std::string text, chat_template_.Render(inputs));
  return EncodeText(text);
}

absl::StatusOr<MarkedPrompt> ChatEncoder::EncodeMarked(ChatTemplateInputs inputs,
                                                       std::span<const uint32_t> marked) const {
  Prepare(inputs);
  KVIST_ASSIGN_OR_RETURN(const std::string text, chat_template_.Render(inputs));
  MarkedPrompt prompt{.tokens = EncodeText(text), .ranges = {}};
  if (marked.empty()) return prompt;
  for (const uint32_t index : marked) MarkContent(inputs.messages.at(index));
  KVIST_ASSIGN_OR_RETURN(std::string with_marks, chat_template_.Render(inputs));
  std::vector<size_t> marks;  // Offsets in `text`.
  for (size_t at = with_marks.find(kMark); at != std::string::npos; at = with_marks.find(kMark, at)) {
    marks.push_back(at);
    with_marks.erase(at, kMark.size());
  }
  const std::vector<size_t> ends = TokenEnds(tokenizer_, prompt.tokens, text);
  if (with_marks != text || marks.size() != 2 * marked.size() || (ends.empty() && !prompt.tokens.empty())) {
    return absl::InvalidArgumentError(
        "the model's chat template changes contents, so where a message's tokens are is not known");
  }
  for (size_t i = 0; i < marked.size(); ++i) {
    const auto first = std::ranges::lower_bound(ends, marks[2 * i]) - ends.begin();  // Tokens before it end by here.
    const auto last = std::ranges::upper_bound(ends, marks[2 * i + 1]) - ends.begin();
    const auto starts_at = [&](ptrdiff_t token) { return token == 0 ? 0 : ends[static_cast<size_t>(token) - 1]; };
    ptrdiff_t begin = first;
    while (begin < last && starts_at(begin) < marks[2 * i]) ++begin;
    prompt.ranges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(std::max(begin, last))});
  }
  return prompt;
}

}  // namespace kvist
