#include "modelfile/bpe_tokenizer.h"

#include "base/status.h"
#include "modelfile/bpe_word_cache.h"
#include "modelfile/gguf_parse.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {

namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

/// GPT-2's alphabet: a byte that Latin-1 prints stands for itself, the others follow from U+0100 in order.
struct ByteAlphabet {
  std::array<uint16_t, 256> code_of{};
  std::array<int16_t, 0x144> byte_of{};  ///< -1: not a letter of the alphabet.
  constexpr ByteAlphabet() {
    byte_of.fill(-1);
    uint16_t next = 0x100;
    for (uint16_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      code_of[b] = printable ? b : next++;
      byte_of[code_of[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

/// The bytes that a piece spells; what is no letter of the alphabet stands for itself.
std::string SpelledBytes(std::string_view piece) {
  std::string out;
  out.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = ReadUtf8(piece.substr(at));
    if (c.code < kAlphabet.byte_of.size() && kAlphabet.byte_of[c.code] >= 0) {
      out.push_back(static_cast<char>(kAlphabet.byte_of[c.code]));
    } else {
      out.append(piece.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  return out;
}

}  // namespace

/// Buffers of one Encode call.
class BpeTokenizer::Run {
 public:
  Run(const BpeTokenizer& tokenizer, std::string_view text, std::vector<TokenId>& out)
      : t_(tokenizer), text_(text), pretokenizer_(tokenizer.pretokenizer_), cache_(text.size()), out_(out) {}

  /// Appends the ids of a plain stretch of the text.
  void EncodeText(std::string_view part) {
    pretokenizer_.Split(part, [this](std::string_view word) {
      const auto begin = static_cast<size_t>(word.data() - text_.data());
      cache_.Append(text_.data(), begin, word.size(), out_, [&] { EncodeWord(word); });
    });
  }

 private:
  struct Rules {
    const BpeTokenizer& t;
    uint32_t Priority(uint32_t left, uint32_t right, uint32_t, uint32_t) const { return t.merges_.Find(left, right); }
    uint32_t Merged(uint32_t rank, uint32_t, uint32_t, uint32_t, uint32_t) const { return t.merged_[rank]; }
  };

  void EncodeWord(std::string_view word);
  void Emit(uint32_t symbol);

  const BpeTokenizer& t_;
  std::string_view text_;
  PretokenizerRun pretokenizer_;
  BpeWordCache cache_;
  std::vector<TokenId>& out_;
  std::vector<BpeSymbol> symbols_;
  BpeMerger merger_;
};

void BpeTokenizer::Run::EncodeWord(std::string_view word) {
  if (!t_.words_.empty()) {
    if (const auto whole = t_.words_.find(word); whole != t_.words_.end()) {
      out_.push_back(TokenId{whole->second});
      return;
    }
  }
  symbols_.clear();
  for (uint32_t i = 0; i < word.size(); ++i) {
    symbols_.push_back({i, t_.byte_symbol_[static_cast<uint8_t>(word[i])]});
  }
  merger_.Merge(symbols_, static_cast<uint32_t>(word.size()), Rules{t_});
  for (const BpeSymbol& symbol : symbols_) Emit(symbol.id);
}

void BpeTokenizer::Run::Emit(uint32_t symbol) {
  if (symbol < t_.vocab_size()) {
    out_.push_back(TokenId{symbol});
  } else if (symbol == kNoToken) {
    for (const uint32_t s : t_.replacement_) out_.push_back(TokenId{s});
  } else {
    // Merged to something that is no token: fall back to its bytes.
    for (const char byte : t_.made_bytes_[symbol - t_.vocab_size()]) {
      const uint32_t s = t_.byte_symbol_[static_cast<uint8_t>(byte)];
      if (s < t_.vocab_size()) out_.push_back(TokenId{s});
    }
  }
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> BpeTokenizer::Create(Vocabulary vocabulary, const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::ForName(vocabulary.pre()));
  std::unique_ptr<BpeTokenizer> result(new BpeTokenizer(std::move(vocabulary), std::move(pretokenizer)));
  KVIST_RETURN_IF_ERROR(result->LoadMerges(file));
  return std::unique_ptr<const Tokenizer>(std::move(result));
}

BpeTokenizer::BpeTokenizer(Vocabulary moved, Pretokenizer pretokenizer)
    : TokenizerBase(std::move(moved), pretokenizer.adds_bos()), pretokenizer_(std::move(pretokenizer)) {
  SetBytes([](std::string_view piece, TokenType type) {
    return type == TokenType::kUserDefined ? std::string(piece) : SpelledBytes(piece);
  });
  BuildAlphabet();
  if (pretokenizer_.whole_words_first()) {
    words_.reserve(vocab_size());
    for (uint32_t id = 0; id < vocab_size(); ++id) {
      if (vocabulary().Type(id) == TokenType::kNormal && !Bytes(id).empty()) words_.insert_or_assign(Bytes(id), id);
    }
  }
}

void BpeTokenizer::BuildAlphabet() {
  for (size_t b = 0; b < 256; ++b) {
    std::string letter;
    AppendUtf8(kAlphabet.code_of[b], letter);
    byte_symbol_[b] = vocabulary().FindText(letter);
    if (byte_symbol_[b] == kNoToken) byte_symbol_[b] = vocabulary().ByteToken(static_cast<uint8_t>(b));
  }
  for (const char byte : kReplacementUtf8) {
    const uint32_t symbol = byte_symbol_[static_cast<uint8_t>(byte)];
    if (symbol == kNoToken) {
      // Not even U+FFFD can be spelled.
      replacement_.clear();
      if (vocabulary().unknown()) replacement_.push_back(*vocabulary().unknown());
      return;
    }
    replacement_.push_back(symbol);
  }
}

uint32_t BpeTokenizer::Intern(std::string_view piece, absl::flat_hash_map<std::string, uint32_t>& made) {
  if (const uint32_t id = vocabulary().FindText(piece); id != kNoToken) return id;
  const auto [at, added] = made.try_emplace(std::string(piece), vocab_size() + static_cast<uint32_t>(made.size()));
  if (added) made_bytes_.push_back(SpelledBytes(piece));
  return at->second;
}

absl::Status BpeTokenizer::LoadMerges(const GgufFile& file) {
  KVIST_ASSIGN_OR_RETURN(const auto merges, file.GetStrings(kMergesKey));
  if (merges.size() > 1u << 24) {
    return absl::InvalidArgumentError(Cat(kMergesKey, ": ", merges.size(), " merges, more than ", 1u << 24));
  }
  merges_ = BpeMergeTable(merges.size());
  merged_.reserve(merges.size());
  absl::flat_hash_map<std::string, uint32_t> made;
  std::string merged;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    // A piece may begin with the space that also separates, so the search starts behind the first character.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size() || merge.size() > kPieceBytesMax) {
      return absl::InvalidArgumentError(
          Cat(kMergesKey, "[", rank, "]: ", QuoteForMessage(merge), " is not two pieces with a space between"));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    merged.assign(left).append(right);
    const uint32_t left_symbol = Intern(left, made), right_symbol = Intern(right, made);
    // Of equal merges the first counts.
    merges_.Add(left_symbol, right_symbol, rank);
    merged_.push_back(Intern(merged, made));
  }
  return absl::OkStatus();
}

void BpeTokenizer::EncodeParts(std::string_view text, std::span<const Part> parts, std::vector<TokenId>& out) const {
  Run run(*this, text, out);
  for (const Part& part : parts) {
    if (part.special != kNoToken) {
      out.push_back(TokenId{part.special});
    } else {
      run.EncodeText(text.substr(part.begin, part.bytes));
    }
  }
}

}  // namespace kvist
