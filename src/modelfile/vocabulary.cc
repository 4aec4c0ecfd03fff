#include "modelfile/vocabulary.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "modelfile/gguf_parse.h"

namespace kvist {

namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr size_t kPiecesMax = 1 << 24;
constexpr size_t kArenaBytesMax = 1 << 30;

/// Entries that end a turn or a text in public models, whatever their file says of eos, eot and eom.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|eot|>",
    "<|return|>",
    "<|call|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "_<EOT>",
    "</s>",
    "<eos>",
};

absl::Status Bad(std::string_view key, size_t index, std::string_view what) {
  return absl::InvalidArgumentError(Cat(key, "[", index, "]: ", what));
}

/// `<0xHH>` to its byte.
std::optional<uint8_t> ParseByteToken(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  if (!absl::ascii_isxdigit(piece[3]) || !absl::ascii_isxdigit(piece[4])) return std::nullopt;
  const std::string byte = absl::HexStringToBytes(ToAbsl(piece.substr(3, 2)));
  return static_cast<uint8_t>(byte[0]);
}

/// Optional token id below `size`.
absl::StatusOr<std::optional<uint32_t>> ReadId(const GgufFile& file, std::string_view key, uint32_t size) {
  if (!file.Has(key)) return std::optional<uint32_t>();
  KVIST_ASSIGN_OR_RETURN(const uint32_t id, file.GetU32(key));
  if (id >= size) {
    return absl::InvalidArgumentError(Cat(key, ": token ", id, " of a vocabulary of ", size));
  }
  return std::optional<uint32_t>(id);
}

absl::StatusOr<std::optional<bool>> ReadFlag(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return std::optional<bool>();
  KVIST_ASSIGN_OR_RETURN(const bool flag, file.GetBool(key));
  return std::optional<bool>(flag);
}

bool IsPhi3(const GgufFile& file) {
  for (const char* key : {"general.architecture", "general.name"}) {
    if (const auto value = file.GetString(key); value.ok()) {
      const std::string lower = absl::AsciiStrToLower(ToAbsl(*value));
      if (absl::StrContains(lower, "phi3") || absl::StrContains(lower, "phi-3")) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::FromGguf(const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model != "llama" && model != "gpt2") {
    return absl::UnimplementedError(
        Cat("tokenizer.ggml.model: ", QuoteForMessage(model), " is not supported (llama and gpt2 are)"));
  }
  Vocabulary v;
  v.is_gpt2_ = model == "gpt2";
  v.pre_ = "default";
  if (file.Has("tokenizer.ggml.pre")) {
    KVIST_ASSIGN_OR_RETURN(const std::string_view pre, file.GetString("tokenizer.ggml.pre"));
    v.pre_ = std::string(pre);
  }
  KVIST_RETURN_IF_ERROR(v.LoadPieces(file));
  KVIST_RETURN_IF_ERROR(v.LoadTypes(file));
  KVIST_RETURN_IF_ERROR(v.LoadScores(file));
  KVIST_RETURN_IF_ERROR(v.LoadBytes());
  KVIST_RETURN_IF_ERROR(v.LoadSpecialIds(file));
  v.BuildIndex();
  return v;
}

absl::Status Vocabulary::LoadPieces(const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(const auto pieces, file.GetStrings(kTokensKey));
  if (pieces.empty()) return absl::InvalidArgumentError(Cat(kTokensKey, ": no tokens"));
  if (pieces.size() > kPiecesMax) {
    return absl::InvalidArgumentError(Cat(kTokensKey, ": ", pieces.size(), " tokens, more than ", kPiecesMax));
  }
  size_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    // Empty entries are let through: some published models have them as padding, and nothing ever encodes to one.
    if (pieces[i].size() > kPieceBytesMax) {
      return Bad(kTokensKey, i, Cat("token of ", pieces[i].size(), " bytes, more than ", kPieceBytesMax));
    }
    bytes += pieces[i].size();
  }
  if (bytes > kArenaBytesMax) {
    return absl::InvalidArgumentError(Cat(kTokensKey, ": ", bytes, " bytes, more than ", kArenaBytesMax));
  }
  arena_.reserve(bytes);
  begin_.reserve(pieces.size() + 1);
  for (std::string_view piece : pieces) {
    begin_.push_back(static_cast<uint32_t>(arena_.size()));
    arena_.insert(arena_.end(), piece.begin(), piece.end());
  }
  begin_.push_back(static_cast<uint32_t>(arena_.size()));
  types_.assign(pieces.size(), TokenType::kNormal);
  return absl::OkStatus();
}

absl::Status Vocabulary::LoadTypes(const GgufFile& file) {
  if (!file.Has(kTypesKey)) {
    // Old files: the spelling is all there is to tell a byte from a word.
    for (uint32_t i = 0; i < size() && !is_gpt2_; ++i) {
      if (ParseByteToken(Piece(i))) types_[i] = TokenType::kByte;
    }
    return absl::OkStatus();
  }
  KVIST_ASSIGN_OR_RETURN(const auto types, file.GetInts(kTypesKey));
  if (types.size() != size()) {
    return absl::InvalidArgumentError(Cat(kTypesKey, ": ", types.size(), " entries for ", size(), " tokens"));
  }
  for (uint32_t i = 0; i < size(); ++i) {
    if (types[i] < 1 || types[i] > 6) return Bad(kTypesKey, i, Cat("unknown token type ", types[i]));
    types_[i] = static_cast<TokenType>(types[i]);
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::LoadScores(const GgufFile& file) {
  if (is_gpt2_) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(const auto scores, file.GetFloats(kScoresKey));
  if (scores.size() != size()) {
    return absl::InvalidArgumentError(Cat(kScoresKey, ": ", scores.size(), " entries for ", size(), " tokens"));
  }
  for (uint32_t i = 0; i < size(); ++i) {
    if (std::isnan(scores[i])) return Bad(kScoresKey, i, "not a number");
  }
  scores_.assign(scores.begin(), scores.end());
  return absl::OkStatus();
}

absl::Status Vocabulary::LoadBytes() {
  byte_tokens_.fill(kNoToken);
  for (uint32_t i = 0; i < size(); ++i) {
    if (types_[i] != TokenType::kByte) continue;
    const std::optional<uint8_t> byte = ParseByteToken(Piece(i));
    if (!byte) return Bad(kTokensKey, i, Cat("byte token ", QuoteForMessage(Piece(i)), " is not of the form <0xHH>"));
    byte_tokens_[*byte] = i;
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::LoadSpecialIds(const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(bos_, ReadId(file, "tokenizer.ggml.bos_token_id", size()));
  KVIST_ASSIGN_OR_RETURN(eos_, ReadId(file, "tokenizer.ggml.eos_token_id", size()));
  KVIST_ASSIGN_OR_RETURN(const auto eot, ReadId(file, "tokenizer.ggml.eot_token_id", size()));
  KVIST_ASSIGN_OR_RETURN(const auto eom, ReadId(file, "tokenizer.ggml.eom_token_id", size()));
  KVIST_ASSIGN_OR_RETURN(unknown_, ReadId(file, "tokenizer.ggml.unknown_token_id", size()));
  KVIST_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.padding_token_id", size()).status());
  KVIST_ASSIGN_OR_RETURN(add_bos_, ReadFlag(file, "tokenizer.ggml.add_bos_token"));
  KVIST_ASSIGN_OR_RETURN(add_eos_, ReadFlag(file, "tokenizer.ggml.add_eos_token"));
  KVIST_ASSIGN_OR_RETURN(add_space_prefix_, ReadFlag(file, "tokenizer.ggml.add_space_prefix"));
  if (!is_gpt2_ && size() >= 3) {
    // SentencePiece's own order, which files without the keys rely on.
    if (!unknown_ && types_[0] == TokenType::kUnknown) unknown_ = 0;
    if (!bos_ && types_[1] == TokenType::kControl) bos_ = 1;
    if (!eos_ && types_[2] == TokenType::kControl) eos_ = 2;
  }

  end_of_generation_.assign(size(), false);
  bool has_return = false, has_call = false;
  const bool phi3 = IsPhi3(file);
  if (phi3) strips_right_.assign(size(), false);
  for (uint32_t i = 0; i < size(); ++i) {
    const std::string_view piece = Piece(i);
    if (std::find(std::begin(kEndNames), std::end(kEndNames), piece) != std::end(kEndNames)) {
      end_of_generation_[i] = true;
      // Some files call their turn markers user-defined or normal; then a user could end a turn by writing one.
      if (piece.starts_with("<|") || piece == "<end_of_turn>") types_[i] = TokenType::kControl;
    }
    has_return |= piece == "<|return|>";
    has_call |= piece == "<|call|>";
    if (phi3 && (types_[i] == TokenType::kControl || types_[i] == TokenType::kUserDefined)) {
      strips_right_[i] = piece != "<unk>" && piece != "<s>" && piece != "<|endoftext|>";
    }
  }
  // Where outputs are several messages, the end of one is not the end of all.
  for (uint32_t i = 0; has_return && has_call && i < size(); ++i) {
    if (Piece(i) == "<|end|>") end_of_generation_[i] = false;
  }
  for (const auto& id : {eos_, eot, eom}) {
    if (id) end_of_generation_[*id] = true;
  }
  return absl::OkStatus();
}

void Vocabulary::BuildIndex() {
  text_index_.reserve(size());
  for (uint32_t i = 0; i < size(); ++i) {
    if (Piece(i).empty()) continue;
    const bool text = types_[i] == TokenType::kNormal || types_[i] == TokenType::kUnused;
    (text ? text_index_ : other_index_).insert_or_assign(Piece(i), i);
  }
}

uint32_t Vocabulary::FindText(std::string_view piece) const {
  const auto at = text_index_.find(piece);
  return at == text_index_.end() ? kNoToken : at->second;
}

uint32_t Vocabulary::FindAny(std::string_view piece) const {
  const uint32_t text = FindText(piece);
  const auto other = other_index_.find(piece);
  if (other == other_index_.end()) return text;
  return text == kNoToken ? other->second : std::max(text, other->second);
}

}  // namespace kvist
