#include "modelfile/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/gguf_parse.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {

namespace {

// Unicode's White_Space. PCRE2's own \s with UCP also takes U+180E, which the regex engines of the models do not.
#define KVIST_WS R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

constexpr char kGpt2Words[] = R"('(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^)" KVIST_WS R"(\p{L}\p{N}]+|[)" KVIST_WS
                              R"(]+(?![^)" KVIST_WS R"(])|[)" KVIST_WS R"(]+)";

// Llama 3 and Qwen 2 differ in how many digits stay together.
#define KVIST_LLAMA3(digits)                                                                                    \
  R"('(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits R"(| ?[^)" KVIST_WS \
  R"(\p{L}\p{N}]+[\r\n]*|[)" KVIST_WS R"(]*[\r\n]+|[)" KVIST_WS R"(]+(?![^)" KVIST_WS R"(])|[)" KVIST_WS R"(]+)"
constexpr char kLlama3Words[] = KVIST_LLAMA3(R"(\p{N}{1,3})");
constexpr char kQwen2Words[] = KVIST_LLAMA3(R"(\p{N})");

// Cased letters as DeepSeek LLM lists them (not the same as \p{L&}: some are missing).
constexpr char kDeepseekLetters[] =
    "[" KVIST_WS
    "]?["
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5})"
    R"(\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd})"
    R"(\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15})"
    R"(\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d})"
    R"(\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb})"
    R"(\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d})"
    R"(\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e})"
    R"(\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})"
    R"(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06})"
    R"(\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})"
    R"(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr char kDeepseekPunctuation[] =
    "[" KVIST_WS R"(]?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
// White space at the end of a piece. The look-behind changes no match; it keeps the search from starting anew at every
// space of a long run in the middle, which would be quadratic.
constexpr char kTrailingSpace[] = "(?<![" KVIST_WS "])[" KVIST_WS "]++$";
constexpr char kDeepseekCjk[] = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

enum class Kind { kGpt2, kLlama3, kQwen2, kSmollm, kDeepseekLlm, kDefault };

struct Named {
  std::string_view name;
  Kind kind;
  bool whole_words_first = false;
  bool adds_bos = false;
};

// Names that converters write, by the expressions they stand for.
constexpr Named kNames[] = {
    {"gpt-2", Kind::kGpt2},
    {"gpt2", Kind::kGpt2},
    {"phi-2", Kind::kGpt2},
    {"mpt", Kind::kGpt2},
    {"olmo", Kind::kGpt2},
    {"jais", Kind::kGpt2},
    {"jina-es", Kind::kGpt2},
    {"jina-de", Kind::kGpt2},
    {"jina-v2-es", Kind::kGpt2},
    {"jina-v2-de", Kind::kGpt2},
    {"llama-bpe", Kind::kLlama3, true, true},
    {"llama3", Kind::kLlama3, true, true},
    {"llama-v3", Kind::kLlama3, true, true},
    {"falcon3", Kind::kLlama3, true, true},
    {"pixtral", Kind::kLlama3, true, true},
    {"dbrx", Kind::kLlama3},
    {"smaug-bpe", Kind::kLlama3},
    {"qwen2", Kind::kQwen2},
    {"deepseek-r1-qwen", Kind::kQwen2},
    {"stablelm2", Kind::kQwen2},
    {"smollm", Kind::kSmollm},
    {"starcoder", Kind::kSmollm},
    {"refact", Kind::kSmollm},
    {"command-r", Kind::kSmollm},
    {"codeshell", Kind::kSmollm},
    {"deepseek-llm", Kind::kDeepseekLlm},
    {"default", Kind::kDefault},
};

std::vector<const char*> Expressions(Kind kind) {
  switch (kind) {
    case Kind::kGpt2:
      return {kGpt2Words};
    case Kind::kLlama3:
      return {kLlama3Words};
    case Kind::kQwen2:
      return {kQwen2Words};
    case Kind::kSmollm:
      return {R"(\p{N})", kGpt2Words};
    case Kind::kDeepseekLlm:
      return {R"([\r\n])", kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kDeepseekCjk, R"(\p{N})"};
    case Kind::kDefault:
      return {R"([\p{P}$+<=>^~|]+)", kGpt2Words, R"(\p{N}+)", "[0-9][0-9][0-9]"};
  }
  KVIST_CHECK(false);
}

}  // namespace

void Pretokenizer::FreeCode::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void PretokenizerRun::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}
void PretokenizerRun::Free::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}

absl::StatusOr<Pretokenizer> Pretokenizer::ForName(std::string_view name) {
  const auto* named =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Named& n) { return n.name == name; });
  if (named == std::end(kNames)) {
    return absl::UnimplementedError(
        Cat("tokenizer.ggml.pre: pre-tokeniser ", QuoteForMessage(name), " is not supported"));
  }
  Pretokenizer result;
  result.whole_words_first_ = named->whole_words_first;
  result.adds_bos_ = named->adds_bos;
  for (const char* expression : Expressions(named->kind)) {
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_DOLLAR_ENDONLY, &error, &at, nullptr);
    KVIST_CHECK(code != nullptr);
    // Without executable memory there is no JIT; the interpreter gives the same matches.
    const bool jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    result.stages_.push_back({std::unique_ptr<pcre2_code, FreeCode>(code), jit});
  }
  return result;
}

PretokenizerRun::PretokenizerRun(const Pretokenizer& pretokenizer)
    : pretokenizer_(pretokenizer),
      match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  KVIST_CHECK(match_ != nullptr && context_ != nullptr);
  // The expressions are linear; the default limits would only cut off long runs of one kind.
  pcre2_set_match_limit(context_.get(), UINT32_MAX);
  pcre2_set_heap_limit(context_.get(), UINT32_MAX);
}

void PretokenizerRun::Split(std::string_view text, Emit emit) {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid > 0) SplitStage(0, text.substr(0, valid), emit);
    text.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Char c = ReadUtf8(text.substr(invalid));
      if (c.kind == Utf8Char::Kind::kValid) break;
      invalid += c.bytes;
    }
    if (invalid > 0) emit(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

void PretokenizerRun::SplitStage(size_t stage, std::string_view text, Emit emit) {
  if (stage == pretokenizer_.stages_.size()) return emit(text);
  const Pretokenizer::Stage& s = pretokenizer_.stages_[stage];
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  while (done < text.size()) {
    const int found =
        s.jit ? pcre2_jit_match(s.code.get(), subject, text.size(), done, 0, match_.get(), context_.get())
              : pcre2_match(s.code.get(), subject, text.size(), done, PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
    if (found < 0) break;  // No further match: the rest is a gap.
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_.get());
    const size_t begin = ends[0], end = ends[1];
    KVIST_CHECK(begin >= done && end > begin && end <= text.size());
    if (begin > done) SplitStage(stage + 1, text.substr(done, begin - done), emit);
    SplitStage(stage + 1, text.substr(begin, end - begin), emit);
    done = end;
  }
  if (done < text.size()) SplitStage(stage + 1, text.substr(done), emit);
}

}  // namespace kvist
