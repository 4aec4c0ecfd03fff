#include "modelfile/spm_tokenizer.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_replace.h"
#include "base/prng.h"
#include "base/status.h"
#include "modelfile/bpe_merge.h"
#include "modelfile/bpe_word_cache.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {

/// Buffers of one Encode call.
class SpmTokenizer::Run {
 public:
  Run(const SpmTokenizer& tokenizer, size_t text_bytes, std::vector<TokenId>& out)
      : tokenizer_(tokenizer), vocabulary_(tokenizer.vocabulary()), cache_(text_bytes), out_(out) {
    buffer_.reserve(text_bytes + text_bytes / 2);
    if (text_bytes >= kPairs) pairs_.resize(kPairs);
  }

  /// Appends the ids of a plain stretch of text.
  void EncodeText(std::string_view text, bool space_prefix);

 private:
  /// What the text of two neighbours may become.
  struct Pair {
    uint32_t left = kNoToken, right = kNoToken;  ///< kNoToken: free.
    uint32_t priority = kNoMerge, id = kNoToken;
  };
  struct Rules {
    Run& run;
    uint32_t Priority(uint32_t left, uint32_t right, uint32_t begin, uint32_t end) const {
      return run.Find(left, right, begin, end).priority;
    }
    uint32_t Merged(uint32_t, uint32_t left, uint32_t right, uint32_t begin, uint32_t end) const {
      return run.Find(left, right, begin, end).id;
    }
  };

  /// Equal ids are equal text, so most questions in a long chunk were asked before.
  Pair Find(uint32_t left, uint32_t right, uint32_t begin, uint32_t end) {
    if (pairs_.empty() || left == kNoToken || right == kNoToken) return Look(begin, end);
    Pair& pair = pairs_[Mix64(uint64_t{left} << 32 | right) & (kPairs - 1)];
    if (pair.left != left || pair.right != right) {
      pair = Look(begin, end);
      pair.left = left;
      pair.right = right;
    }
    return pair;
  }
  Pair Look(uint32_t begin, uint32_t end) const {
    if (end - begin > tokenizer_.piece_bytes_max_) return {};
    const uint32_t id = vocabulary_.FindText(std::string_view(buffer_).substr(begin, end - begin));
    if (id == kNoToken) return {};
    return {kNoToken, kNoToken, tokenizer_.priority_[id], id};
  }

  void EncodeChunk(size_t begin, size_t end);
  void Emit(const BpeSymbol& symbol, size_t end);

  const SpmTokenizer& tokenizer_;
  const Vocabulary& vocabulary_;
  BpeWordCache cache_;
  std::vector<TokenId>& out_;
  std::string buffer_;  ///< All text so far, spaces spelled U+2581.
  std::vector<BpeSymbol> symbols_;
  BpeMerger merger_;

  static constexpr size_t kPairs = 1 << 12;  ///< 64 KiB.
  std::vector<Pair> pairs_;                  ///< Direct-mapped by ids; empty for short texts.
};

void SpmTokenizer::Run::EncodeText(std::string_view text, bool space_prefix) {
  size_t chunk = buffer_.size();
  if (space_prefix) buffer_.append(kSpaceMarkUtf8);
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    buffer_.append(text, at, space - at);
    if (space < text.size()) buffer_.append(kSpaceMarkUtf8);
    at = space + 1;
  }
  const std::string_view all = buffer_;
  uint32_t left = 0;
  for (size_t at = chunk; at < all.size();) {
    const Utf8Char c = ReadUtf8(all.substr(at));
    if (at > chunk && !tokenizer_.MayBridge(left, c.code)) {
      EncodeChunk(chunk, at);
      chunk = at;
    }
    left = c.code;
    at += c.kind == Utf8Char::Kind::kValid ? c.bytes : 1;
  }
  if (chunk < all.size()) EncodeChunk(chunk, all.size());
}

void SpmTokenizer::Run::EncodeChunk(size_t begin, size_t end) {
  cache_.Append(buffer_.data(), begin, end - begin, out_, [&] {
    const std::string_view all = buffer_;
    symbols_.clear();
    for (size_t at = begin; at < end;) {
      const Utf8Char c = ReadUtf8(all.substr(at, end - at));
      const size_t bytes = c.kind == Utf8Char::Kind::kValid ? c.bytes : 1;
      symbols_.push_back({static_cast<uint32_t>(at), vocabulary_.FindText(all.substr(at, bytes))});
      at += bytes;
    }
    merger_.Merge(symbols_, static_cast<uint32_t>(end), Rules{*this});
    for (size_t i = 0; i < symbols_.size(); ++i) {
      Emit(symbols_[i], i + 1 < symbols_.size() ? symbols_[i + 1].begin : end);
    }
  });
}

void SpmTokenizer::Run::Emit(const BpeSymbol& symbol, size_t end) {
  if (symbol.id != kNoToken) {
    out_.push_back(TokenId{symbol.id});
    return;
  }
  // A character that is no entry. A space that the vocabulary does not spell is the byte of a space.
  std::string_view text = std::string_view(buffer_).substr(symbol.begin, end - symbol.begin);
  if (text == kSpaceMarkUtf8) text = " ";
  const bool as_bytes = std::all_of(text.begin(), text.end(), [&](char byte) {
    return vocabulary_.ByteToken(static_cast<uint8_t>(byte)) != kNoToken;
  });
  if (as_bytes) {
    for (const char byte : text) out_.push_back(TokenId{vocabulary_.ByteToken(static_cast<uint8_t>(byte))});
  } else if (vocabulary_.unknown()) {
    out_.push_back(TokenId{*vocabulary_.unknown()});
  }
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> SpmTokenizer::Create(Vocabulary vocabulary) {
  return std::unique_ptr<const Tokenizer>(new SpmTokenizer(std::move(vocabulary)));
}

SpmTokenizer::SpmTokenizer(Vocabulary moved) : TokenizerBase(std::move(moved), true) {
  SetBytes([](std::string_view piece, TokenType) {
    return absl::StrReplaceAll(ToAbsl(piece), {{ToAbsl(kSpaceMarkUtf8), " "}});
  });
  BuildPriorities();
  BuildBridges();
}

void SpmTokenizer::BuildPriorities() {
  std::vector<float> scores;
  for (uint32_t id = 0; id < vocab_size(); ++id) scores.push_back(vocabulary().Score(id));
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), vocabulary().Score(id), std::greater<>());
    priority_.push_back(static_cast<uint32_t>(at - scores.begin()));
  }
}

void SpmTokenizer::BuildBridges() {
  const auto encodable = [&](uint32_t id) {
    return vocabulary().Type(id) == TokenType::kNormal || vocabulary().Type(id) == TokenType::kUnused;
  };
  size_t bytes = 0;
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    if (encodable(id)) bytes += vocabulary().Piece(id).size();
  }
  // About 8 bits a pair keep wrong "may" answers rare; 1 MiB still fits a cache.
  bridges_.assign(std::bit_ceil(std::clamp<size_t>(bytes * 8, 1 << 10, 1 << 23) / 64), 0);
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    if (!encodable(id)) continue;
    const std::string_view piece = vocabulary().Piece(id);
    piece_bytes_max_ = std::max(piece_bytes_max_, piece.size());
    uint32_t left = 0;
    for (size_t at = 0; at < piece.size();) {
      const Utf8Char c = ReadUtf8(piece.substr(at));
      if (at > 0) {
        const uint64_t hash = Mix64(uint64_t{left} << 32 | c.code);
        bridges_[(hash >> 6) & (bridges_.size() - 1)] |= uint64_t{1} << (hash & 63);
      }
      left = c.code;
      at += c.kind == Utf8Char::Kind::kValid ? c.bytes : 1;
    }
  }
}

bool SpmTokenizer::MayBridge(uint32_t left_code, uint32_t right_code) const {
  const uint64_t hash = Mix64(uint64_t{left_code} << 32 | right_code);
  return bridges_[(hash >> 6) & (bridges_.size() - 1)] >> (hash & 63) & 1;
}

void SpmTokenizer::EncodeParts(std::string_view text, std::span<const Part> parts, std::vector<TokenId>& out) const {
  Run run(*this, text.size(), out);
  for (const Part& part : parts) {
    if (part.special != kNoToken) {
      out.push_back(TokenId{part.special});
    } else {
      run.EncodeText(text.substr(part.begin, part.bytes), adds_space_prefix() && part.at_break);
    }
  }
}

}  // namespace kvist
