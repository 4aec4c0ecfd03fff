#include "modelfile/chat_prompt.h"

#include <algorithm>

#include "base/status.h"

namespace kvist {
namespace {

/// Marks a cut inside the rendered text. A noncharacter of Unicode, dropped from what users send.
constexpr std::string_view kCut = "\xF4\x8F\xBF\xBF";

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
  for (size_t at = text.find(kCut); at != std::string::npos; at = text.find(kCut, at)) text.erase(at, kCut.size());
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

absl::StatusOr<std::vector<TokenId>> ChatEncoder::Encode(ChatTemplateInputs inputs) const {
  inputs.bos_token = tokenizer_.bos() ? std::string(tokenizer_.Piece(*tokenizer_.bos())) : "";
  inputs.eos_token = tokenizer_.eos() ? std::string(tokenizer_.Piece(*tokenizer_.eos())) : "";
  for (boost::json::value& message : inputs.messages) GuardAll(message);
  GuardAll(inputs.tools);
  for (auto& member : inputs.extra) GuardAll(member.value());
  KVIST_ASSIGN_OR_RETURN(std::string text, chat_template_.Render(inputs));
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kCut, begin), text.size());
    const std::vector<TokenId> part = tokenizer_.Encode(std::string_view(text).substr(begin, end - begin),
                                                        {.add_special = false, .parse_special = true});
    ids.insert(ids.end(), part.begin(), part.end());
    begin = end + kCut.size();
  }
  if (tokenizer_.adds_bos() && tokenizer_.bos() && (ids.empty() || ids.front() != *tokenizer_.bos())) {
    ids.insert(ids.begin(), *tokenizer_.bos());
  }
  return ids;
}

}  // namespace kvist
