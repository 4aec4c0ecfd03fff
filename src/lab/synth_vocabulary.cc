#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "lab/synth.h"

namespace kvist::lab {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

struct Entries {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;

  uint32_t Add(std::string token, TokenType type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(type == kNormal ? -static_cast<float>(tokens.size()) : 0.0f);
    return static_cast<uint32_t>(tokens.size() - 1);
  }
};

/// UTF-8 of a code point below 0x800.
std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

/// The character that spells a byte in byte-level vocabularies: itself when printable, else one from U+0100 on.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2 (its published
/// encoder).
std::array<std::string, 256> ByteLetters() {
  std::array<std::string, 256> letters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    letters[byte] = Utf8(printable ? byte : next++);
  }
  return letters;
}

/// Pairs that are merged: enough for a merge table that is one.
constexpr std::array<std::array<std::string_view, 2>, 6> kMerges{
    {{"t", "h"}, {"th", "e"}, {"i", "n"}, {"a", "n"}, {"an", "d"}, {"e", "r"}}};

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void AddFillers(uint32_t vocab_size, Entries& entries) {
  KVIST_CHECK(entries.tokens.size() <= vocab_size);
  while (entries.tokens.size() < vocab_size) entries.Add(Cat("filler", entries.tokens.size()), kNormal);
}

}  // namespace

void AddSynthVocabulary(const SynthShape& shape, uint32_t vocab_size, GgufWriter& writer) {
  static_assert(kSynthVocabMin >= 3 + 256 + 6 + 95 + 2);
  Entries entries;
  const bool sentencepiece = shape.pre.empty();
  if (sentencepiece) {
    entries.Add("<unk>", kUnknown);
    writer.SetU32("tokenizer.ggml.unknown_token_id", 0);
  }
  const uint32_t bos = entries.Add("<s>", kControl), eos = entries.Add("</s>", kControl);
  entries.Add("<|im_start|>", kControl);
  const uint32_t end_of_turn = entries.Add("<|im_end|>", kControl);
  if (sentencepiece) {
    constexpr char kHex[] = "0123456789ABCDEF";
    for (uint32_t byte = 0; byte < 256; ++byte)
      entries.Add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", kByte);
    for (const auto& [left, right] : kMerges) entries.Add(Cat(left, right), kNormal);
    entries.Add("\u2581", kNormal);  // A space.
    for (char c = '!'; c <= '~'; ++c) entries.Add(std::string(1, c), kNormal);
  } else {
    for (const std::string& letter : ByteLetters()) entries.Add(letter, kNormal);
    std::vector<std::string> merges;
    for (const auto& [left, right] : kMerges) {
      entries.Add(Cat(left, right), kNormal);
      merges.push_back(Cat(left, " ", right));
    }
    writer.SetStrings("tokenizer.ggml.merges", merges);
    writer.SetString("tokenizer.ggml.pre", shape.pre);
  }
  AddFillers(vocab_size, entries);
  writer.SetString("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
  writer.SetStrings("tokenizer.ggml.tokens", entries.tokens);
  writer.SetI32s("tokenizer.ggml.token_type", entries.types);
  if (sentencepiece) writer.SetF32s("tokenizer.ggml.scores", entries.scores);
  writer.SetU32("tokenizer.ggml.bos_token_id", bos);
  writer.SetU32("tokenizer.ggml.eos_token_id", eos);
  writer.SetU32("tokenizer.ggml.eot_token_id", end_of_turn);
  writer.SetBool("tokenizer.ggml.add_bos_token", false);
  writer.SetString("tokenizer.chat_template", kChatTemplate);
}

}  // namespace kvist::lab
