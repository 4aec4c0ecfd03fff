#include "modelfile/tokenizer_testutil.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "modelfile/gguf_writer.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {

void VocabularySpec::Add(std::string token, int32_t type, float score) {
  tokens->push_back(std::move(token));
  if (types) types->push_back(type);
  if (scores) scores->push_back(score);
}

std::string VocabularySpec::Image() const {
  GgufWriter writer;
  if (name) writer.SetString("general.name", *name);
  if (model) writer.SetString("tokenizer.ggml.model", *model);
  if (pre) writer.SetString("tokenizer.ggml.pre", *pre);
  if (tokens) writer.SetStrings("tokenizer.ggml.tokens", *tokens);
  if (types) writer.SetI32s("tokenizer.ggml.token_type", *types);
  if (scores) writer.SetF32s("tokenizer.ggml.scores", *scores);
  if (merges) writer.SetStrings("tokenizer.ggml.merges", *merges);
  const auto id = [&](const char* key, std::optional<uint32_t> value) {
    if (value) writer.SetU32(key, *value);
  };
  id("tokenizer.ggml.bos_token_id", bos);
  id("tokenizer.ggml.eos_token_id", eos);
  id("tokenizer.ggml.eot_token_id", eot);
  id("tokenizer.ggml.eom_token_id", eom);
  id("tokenizer.ggml.unknown_token_id", unknown);
  id("tokenizer.ggml.padding_token_id", padding);
  const auto flag = [&](const char* key, std::optional<bool> value) {
    if (value) writer.SetBool(key, *value);
  };
  flag("tokenizer.ggml.add_bos_token", add_bos);
  flag("tokenizer.ggml.add_eos_token", add_eos);
  flag("tokenizer.ggml.add_space_prefix", add_space_prefix);
  const auto images = writer.WriteImages();
  KVIST_CHECK(images.ok() && images->size() == 1);
  const std::vector<std::byte>& image = images->front();
  return std::string(reinterpret_cast<const char*>(image.data()), image.size());
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> VocabularySpec::Load() const {
  const std::string image = Image();
  auto file = GgufFile::Parse(std::as_bytes(std::span(image.data(), image.size())), "spec");
  if (!file.ok()) return file.status();
  return Tokenizer::FromGguf(**file);
}

VocabularySpec SmallSpm() {
  VocabularySpec v;
  v.model = "llama";
  v.tokens.emplace();
  v.types.emplace();
  v.scores.emplace();
  v.Add("<unk>", 2);
  v.Add("<s>", 3);
  v.Add("</s>", 3);
  v.Add("<|user|>", 3);
  v.Add("<|end|>", 3);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) v.Add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 6);
  // Merges in the order of their scores. "th" before "he" and "▁t", so that "the" comes from "th"; "▁the" from "▁" and
  // "the".
  float score = 0;
  for (const char* word :
       {"th",    "in",   "er",  "an",     "▁a", "the", "▁s",  "at", "▁the", "and",      "▁c",     "▁and", "▁▁",
        "ing",   "▁cat", "▁in", "▁▁▁▁",   "▁w", "or",  "▁or", "ld", "orld", "▁w",       "▁world", "ll",   "he",
        "hello", "lo",   "hel", "▁hello", "ab", "bc",  "abc", "aa", "aaaa", "aaaaaaaa", "éé",     "世界", "12"}) {
    v.Add(word, 1, score -= 1);
  }
  v.Add("▁", 1, -1000);
  for (char c = 0x21; c < 0x7F; ++c) v.Add(std::string(1, c), 1, -1001 - c);
  v.Add("é", 1, -2000);
  v.Add("世", 1, -2001);
  v.Add("界", 1, -2002);
  v.Add("<tool>", 4);
  v.Add("\n\n", 4);
  v.Add("\n\n\n\n", 4);
  v.bos = 1;
  v.eos = 2;
  v.unknown = 0;
  return v;
}

namespace {

/// The letter that spells a byte in the gpt2 alphabet.
std::string Letter(uint32_t byte) {
  const auto printable = [](uint32_t b) { return (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD); };
  std::string out;
  if (printable(byte)) {
    AppendUtf8(byte, out);
  } else {
    uint32_t before = 0;
    for (uint32_t b = 0; b < byte; ++b) before += printable(b) ? 0 : 1;
    AppendUtf8(0x100 + before, out);
  }
  return out;
}

}  // namespace

VocabularySpec SmallGpt2(std::string pre) {
  VocabularySpec v;
  v.model = "gpt2";
  v.pre = std::move(pre);
  v.tokens.emplace();
  v.types.emplace();
  v.merges.emplace();
  for (uint32_t b = 0; b < 256; ++b) v.Add(Letter(b));
  // "Ġ" is a space, "Ċ" a newline, "Ã ©" the two bytes of é.
  for (const char* merge :
       {"t h",   "i n",       "e r", "a n", "th e",  "Ġ t",    "Ġ the", "a t", "Ġ c",  "Ġc at", "an d",    "Ġ and",
        "Ġ Ġ",   "ĠĠ ĠĠ",     "h e", "l l", "he ll", "hell o", "Ġ w",   "o r", "l d",  "or ld", "Ġw orld", "a a",
        "aa aa", "aaaa aaaa", "a b", "b c", "ab c",  "Ã ©",    "Ċ Ċ",   "1 2", "12 3", "# #",   "' s",     "a ĠĠ"}) {
    v.merges->push_back(merge);
    std::string merged(merge);
    merged.erase(merged.find(' '), 1);
    v.Add(merged);
  }
  v.Add("xyz");  // No merge makes it.
  v.Add("<|endoftext|>", 3);
  v.Add("<|im_end|>", 3);
  v.Add("<tool>", 4);
  v.bos = v.eos = static_cast<uint32_t>(v.tokens->size()) - 3;
  return v;
}

std::vector<std::string> Pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.emplace_back(tokenizer.Piece(id));
  return pieces;
}

std::vector<std::string> SlowMerge(const VocabularySpec& spec, const std::string& word) {
  std::map<std::pair<std::string, std::string>, double> merge_rank;
  std::map<std::string, double> piece_rank;
  for (size_t i = 0; spec.merges && i < spec.merges->size(); ++i) {
    const std::string& merge = (*spec.merges)[i];
    const size_t space = merge.find(' ', 1);
    merge_rank.try_emplace({merge.substr(0, space), merge.substr(space + 1)}, static_cast<double>(i));
  }
  for (size_t i = 0; !spec.merges && i < spec.tokens->size(); ++i) {
    if ((*spec.types)[i] == 1) piece_rank[(*spec.tokens)[i]] = -static_cast<double>((*spec.scores)[i]);
  }
  const auto rank = [&](const std::string& left, const std::string& right) -> std::optional<double> {
    if (spec.merges) {
      const auto at = merge_rank.find({left, right});
      return at == merge_rank.end() ? std::nullopt : std::optional(at->second);
    }
    const auto at = piece_rank.find(left + right);
    return at == piece_rank.end() ? std::nullopt : std::optional(at->second);
  };
  std::vector<std::string> parts;
  for (std::string_view rest = word; !rest.empty(); rest.remove_prefix(parts.back().size())) {
    const Utf8Char c = ReadUtf8(rest);
    parts.emplace_back(rest.substr(0, c.kind == Utf8Char::Kind::kValid ? c.bytes : 1));
  }
  while (true) {
    std::optional<double> best;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto r = rank(parts[i], parts[i + 1]);
      if (r && (!best || *r < *best)) {
        best = r;
        best_at = i;
      }
    }
    if (!best) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

namespace {

/// Reads choices out of fuzz input; gives zeros when it is used up.
class Choices {
 public:
  explicit Choices(std::string_view data) : data_(data) {}
  uint8_t Byte() {
    if (data_.empty()) return 0;
    const auto b = static_cast<uint8_t>(data_.front());
    data_.remove_prefix(1);
    return b;
  }
  uint32_t Below(uint32_t bound) { return Byte() % bound; }
  uint32_t U32() { return uint32_t{Byte()} << 24 | uint32_t{Byte()} << 16 | uint32_t{Byte()} << 8 | Byte(); }
  std::string Bytes(size_t count) {
    std::string out(data_.substr(0, count));
    data_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() const { return data_; }

 private:
  std::string_view data_;
};

std::string AsText(std::string_view bytes) {
  std::string pending(bytes), out;
  TakeCharacters(pending, true, out);
  return out;
}

/// Everything that holds for any vocabulary and text. Returns what Decode makes of the ids.
std::string CheckAny(const Tokenizer& t, std::string_view text, bool parse_special) {
  const std::vector<TokenId> ids = t.Encode(text, {.add_special = false, .parse_special = parse_special});
  for (const TokenId id : ids) {
    KVIST_CHECK(id.value < t.vocab_size());
    if (id == t.unknown()) continue;
    KVIST_CHECK(parse_special || !t.IsControl(id));
    KVIST_CHECK(!t.Piece(id).empty());
  }
  std::vector<TokenId> special = t.Encode(text, {.add_special = true, .parse_special = parse_special});
  KVIST_CHECK(special.size() == ids.size() + (t.adds_bos() ? 1 : 0) + (t.adds_eos() ? 1 : 0));
  if (t.adds_bos()) KVIST_CHECK(special.front() == *t.bos());
  if (t.adds_eos()) KVIST_CHECK(special.back() == *t.eos());
  for (const bool render : {false, true}) {
    Detokenizer stream(t, render, true);
    std::string streamed;
    for (const TokenId id : special) {
      const std::string piece = stream.Push(id);
      KVIST_CHECK(ValidUtf8Prefix(piece) == piece.size());
      streamed += piece;
    }
    streamed += stream.Finish();
    KVIST_CHECK(streamed == AsText(t.Decode(special, render)));
  }
  return t.Decode(ids, true);
}

void FuzzText(Choices choices) {
  static const std::vector<std::unique_ptr<const Tokenizer>> tokenizers = [] {
    std::vector<std::unique_ptr<const Tokenizer>> all;
    all.push_back(*SmallSpm().Load());
    for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "default"}) {
      all.push_back(*SmallGpt2(pre).Load());
    }
    return all;
  }();
  const Tokenizer& t = *tokenizers[choices.Below(static_cast<uint32_t>(tokenizers.size()))];
  const bool parse_special = choices.Below(2) == 1;
  const std::string text(choices.rest());
  std::string expected = text;
  if (&t == tokenizers.front().get()) {
    for (size_t at = 0; (at = expected.find(kSpaceMarkUtf8, at)) != std::string::npos;) expected.replace(at, 3, " ");
  }
  KVIST_CHECK(CheckAny(t, text, parse_special) == expected);
}

std::string FuzzPiece(Choices& choices, const std::vector<std::string>& before) {
  static constexpr std::string_view kWords[] = {
      "<0x41>", "<0x-1>", "<0xZZ>", "<0xff>",  "▁",  "▁▁", "a",     "aa", "ab",    "b", "Ġ",          "Ċ",
      "Ã",      "©",      "</s>",   "<|end|>", "世", "\n", "<unk>", " ",  "[PAD]", "",  "<|eot_id|>", "aab"};
  switch (choices.Below(4)) {
    case 0:
      return std::string(kWords[choices.Below(std::size(kWords))]);
    case 1: {
      if (before.size() < 2) return "x";
      return before[choices.Byte() % before.size()] + before[choices.Byte() % before.size()];
    }
    case 2:
      return Letter(choices.Byte());
    default:
      return choices.Bytes(choices.Below(9));
  }
}

VocabularySpec FuzzSpec(Choices& choices) {
  VocabularySpec v;
  const uint32_t shape = choices.Byte();
  v.model = shape % 16 == 15 ? "bert" : shape % 2 == 0 ? "llama" : "gpt2";
  static constexpr const char* kPre[] = {"gpt-2",        "llama-bpe", "qwen2",   "smollm",
                                         "deepseek-llm", "default",   "nonesuch"};
  if (shape & 16) v.pre = kPre[choices.Below(std::size(kPre))];
  if (shape & 32) v.name = "Phi-3 mini";
  v.tokens.emplace();
  if ((shape & 64) == 0) v.types.emplace();
  v.scores.emplace();
  const uint32_t count = choices.Below(48);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t kind = choices.Byte();
    const int32_t type = kind < 128 ? 1 : static_cast<int32_t>(kind % 8);
    const float score = kind & 1 ? std::bit_cast<float>(choices.U32()) : -static_cast<float>(kind % 8);
    v.Add(FuzzPiece(choices, *v.tokens), type, score);
  }
  v.merges.emplace();
  for (uint32_t i = choices.Below(32); i > 0 && !v.tokens->empty(); --i) {
    const std::string& left = (*v.tokens)[choices.Byte() % v.tokens->size()];
    const std::string& right = (*v.tokens)[choices.Byte() % v.tokens->size()];
    v.merges->push_back(choices.Below(16) == 15 ? FuzzPiece(choices, *v.tokens) : left + " " + right);
  }
  const uint32_t ids = choices.Byte();
  std::optional<uint32_t>* slots[] = {&v.bos, &v.eos, &v.eot, &v.eom, &v.unknown, &v.padding};
  for (size_t i = 0; i < std::size(slots); ++i) {
    if (ids >> i & 1) *slots[i] = choices.Below(count + (ids & 128 ? 2 : 0) + 1);
  }
  const uint32_t flags = choices.Byte();
  if (flags & 1) v.add_bos = (flags & 2) != 0;
  if (flags & 4) v.add_eos = (flags & 8) != 0;
  if (flags & 16) v.add_space_prefix = (flags & 32) != 0;
  if (flags & 64) v.scores->resize(choices.Below(50));
  if (flags & 128 && v.types) v.types->resize(choices.Below(50));
  return v;
}

void FuzzVocabulary(const absl::StatusOr<std::unique_ptr<const Tokenizer>>& tokenizer, std::string_view text) {
  if (!tokenizer.ok()) {
    // A malformed vocabulary is never an internal error, and the message says which file.
    const absl::Status& status = tokenizer.status();
    KVIST_CHECK(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) || absl::IsNotFound(status));
    KVIST_CHECK(!status.message().empty());
    return;
  }
  const Tokenizer& t = **tokenizer;
  for (uint32_t id = 0; id < t.vocab_size(); ++id) {
    const auto found = t.Find(t.Piece(TokenId{id}));
    KVIST_CHECK(found ? t.Piece(*found) == t.Piece(TokenId{id}) : t.Piece(TokenId{id}).empty());
    (void)t.IsEndOfGeneration(TokenId{id});
    (void)t.TokenBytes(TokenId{id});
  }
  for (const bool parse_special : {false, true}) (void)CheckAny(t, text, parse_special);
}

}  // namespace

void FuzzTokenizer(std::string_view data) {
  Choices choices(data);
  switch (choices.Below(4)) {
    case 0: {
      // The rest is a model file.
      const std::string_view image = choices.rest();
      const auto file = GgufFile::Parse(std::as_bytes(std::span(image.data(), image.size())), "fuzz");
      if (file.ok()) FuzzVocabulary(Tokenizer::FromGguf(**file), image.substr(0, 200));
      return;
    }
    case 1: {
      const VocabularySpec spec = FuzzSpec(choices);
      FuzzVocabulary(spec.Load(), choices.rest());
      return;
    }
    default:
      return FuzzText(choices);
  }
}

}  // namespace kvist
