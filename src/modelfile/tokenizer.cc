#include "modelfile/tokenizer.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "base/status.h"
#include "modelfile/bpe_tokenizer.h"
#include "modelfile/spm_tokenizer.h"
#include "modelfile/tokenizer_base.h"

namespace kvist {

namespace {

absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::FromGguf(file));
  if (vocabulary.is_gpt2()) return BpeTokenizer::Create(std::move(vocabulary), file);
  return SpmTokenizer::Create(std::move(vocabulary));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  auto tokenizer = Load(file);
  // The file's own errors name it already.
  if (tokenizer.ok() || absl::StartsWith(tokenizer.status().message(), file.label())) return tokenizer;
  return Annotate(tokenizer.status(), file.label());
}

TokenizerBase::TokenizerBase(Vocabulary vocabulary, bool adds_bos)
    : vocabulary_(std::move(vocabulary)),
      adds_bos_(vocabulary_.bos() && vocabulary_.add_bos().value_or(adds_bos)),
      adds_eos_(vocabulary_.eos() && vocabulary_.add_eos().value_or(false)),
      // Byte-level BPE spells a leading space like any other; only `llama` adds one.
      adds_space_prefix_(!vocabulary_.is_gpt2() && vocabulary_.add_space_prefix().value_or(true)) {}

void TokenizerBase::AppendBytes(uint32_t id, std::string_view text) {
  const std::string_view piece = vocabulary_.Piece(id);
  std::string byte;
  switch (vocabulary_.Type(id)) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      text = piece;
      break;
    case TokenType::kByte:
      byte = absl::HexStringToBytes(ToAbsl(piece.substr(3, 2)));  // Vocabulary checked the form <0xHH>.
      text = byte;
      break;
    case TokenType::kNormal:
    case TokenType::kUnused:
    case TokenType::kUserDefined:
      break;
  }
  bytes_.insert(bytes_.end(), text.begin(), text.end());
}

void TokenizerBase::BuildMatchers() {
  std::vector<std::pair<std::string, uint32_t>> user_defined, all;
  for (uint32_t id = 0; id < vocabulary_.size(); ++id) {
    const TokenType type = vocabulary_.Type(id);
    const bool user = type == TokenType::kUserDefined;
    if (user) user_defined.emplace_back(Bytes(id), id);
    if (user || type == TokenType::kControl || type == TokenType::kUnknown) all.emplace_back(Bytes(id), id);
  }
  user_defined_ = SpecialMatcher(std::move(user_defined));
  all_specials_ = SpecialMatcher(std::move(all));
}

std::vector<TokenizerBase::Part> TokenizerBase::SplitParts(std::string_view text, bool parse_special) const {
  const SpecialMatcher& matcher = parse_special ? all_specials_ : user_defined_;
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, uint32_t special) {
    if (begin == end) return;
    const bool at_break = parts.empty() || (parts.back().special != kNoToken && IsBreak(TokenId{parts.back().special}));
    parts.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin), special, at_break});
  };
  size_t done = 0;
  SpecialMatcher::Match match;
  while (matcher.Find(text, done, match)) {
    add(done, match.begin, kNoToken);
    done = match.begin + match.bytes;
    add(match.begin, done, match.id);
    if (vocabulary_.StripsRight(match.id)) {
      while (done < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[done]))) ++done;
    }
  }
  add(done, text.size(), kNoToken);
  return parts;
}

std::vector<TokenId> TokenizerBase::Encode(std::string_view text, const EncodeOptions& options) const {
  KVIST_CHECK(text.size() < 1u << 30);  // Offsets are 32-bit, and an escaped space has three bytes.
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 4);
  if (options.add_special && adds_bos_) out.push_back(TokenId{*vocabulary_.bos()});
  std::vector<Part> parts = SplitParts(text, options.parse_special);
  if (options.continues && !parts.empty()) parts.front().at_break = false;
  EncodeParts(text, parts, out);
  if (options.add_special && adds_eos_) out.push_back(TokenId{*vocabulary_.eos()});
  return out;
}

std::string_view TokenizerBase::Shown(uint32_t id, bool render_control) const {
  KVIST_CHECK(id < vocabulary_.size());
  return render_control || !IsControl(TokenId{id}) ? Bytes(id) : std::string_view();
}

std::string TokenizerBase::TokenBytes(TokenId id, bool render_control) const {
  return std::string(Shown(id.value, render_control));
}

std::string TokenizerBase::Decode(std::span<const TokenId> ids, bool render_control) const {
  std::string out;
  bool strip = adds_space_prefix_;
  for (const TokenId id : ids) {
    std::string_view text = Shown(id.value, render_control);
    if (IsBreak(id)) {
      strip = adds_space_prefix_;
    } else if (strip && !text.empty()) {
      if (text.front() == ' ') text.remove_prefix(1);
      strip = false;
    }
    out.append(text);
  }
  return out;
}

bool TokenizerBase::IsControl(TokenId id) const {
  KVIST_CHECK(id.value < vocabulary_.size());
  const TokenType type = vocabulary_.Type(id.value);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool TokenizerBase::IsBreak(TokenId id) const {
  KVIST_CHECK(id.value < vocabulary_.size());
  const TokenType type = vocabulary_.Type(id.value);
  return type == TokenType::kControl || type == TokenType::kUserDefined;
}

bool TokenizerBase::IsEndOfGeneration(TokenId id) const {
  KVIST_CHECK(id.value < vocabulary_.size());
  return vocabulary_.IsEndOfGeneration(id.value);
}

std::optional<TokenId> TokenizerBase::Find(std::string_view piece) const {
  const uint32_t id = vocabulary_.FindAny(piece);
  return id == kNoToken ? std::nullopt : AsId(id);
}

std::string_view TokenizerBase::Piece(TokenId id) const {
  KVIST_CHECK(id.value < vocabulary_.size());
  return vocabulary_.Piece(id.value);
}

}  // namespace kvist
