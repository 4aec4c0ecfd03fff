#include "lab/recall_drop.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace kvist::lab {
namespace {

/// Words that say nothing about what a sentence is about.
constexpr std::string_view kCommon[] = {
    "a",    "an",   "and",  "are",   "at",    "by",   "did",   "do",    "does", "for",  "from", "give", "has",
    "have", "he",   "her",  "his",   "i",     "in",   "is",    "it",    "me",   "my",   "now",  "of",   "on",
    "or",   "says", "she",  "so",    "tell",  "that", "the",   "their", "them", "they", "to",   "up",   "was",
    "were", "what", "when", "where", "which", "who",  "whose", "with",  "you",  "your"};

std::set<std::string> WordsOf(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  const auto add = [&] {
    if (!word.empty() && std::ranges::find(kCommon, word) == std::end(kCommon)) words.insert(word);
    word.clear();
  };
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      word += absl::ascii_tolower(static_cast<unsigned char>(c));
    } else {
      add();
    }
  }
  add();
  return words;
}

/// Sentences and lines, each with the white space before it, as tokens have it.
std::vector<TextPart> SentencesOf(std::string_view text) {
  std::vector<TextPart> sentences;
  size_t begin = 0;
  bool blank = true;  // Nothing but white space since `begin`.
  for (size_t i = 0; i < text.size(); ++i) {
    const bool stop = text[i] == ' ' && i > 0 && std::string_view(".!?\"").find(text[i - 1]) != std::string_view::npos;
    if ((text[i] == '\n' || stop) && !blank) {
      sentences.push_back({begin, i});
      begin = i;
      blank = true;
    }
    if (!absl::ascii_isspace(static_cast<unsigned char>(text[i]))) blank = false;
  }
  if (!blank) {
    sentences.push_back({begin, text.size()});
  } else if (!sentences.empty()) {
    sentences.back().end = text.size();
  }
  return sentences;
}

/// Tokens of `range` and the byte of `content` at which each begins; one more for the end.
absl::StatusOr<std::vector<size_t>> TokenBegins(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                                std::string_view content) {
  std::string spelled;
  std::vector<size_t> begins;
  for (const TokenId token : tokens) {
    begins.push_back(spelled.size());
    spelled += tokenizer.TokenBytes(token, /*render_control=*/false);
  }
  begins.push_back(spelled.size());
  size_t added = 0, at = content.find(spelled);
  if (at == std::string_view::npos && spelled.starts_with(' ')) at = content.find(spelled.substr(added = 1));
  if (at == std::string_view::npos) return absl::InvalidArgumentError("tokens do not spell the message");
  for (size_t& begin : begins) begin = at + std::max(begin, added) - added;
  return begins;
}

/// One message's content in the prompt.
struct Content {
  std::string_view text;
  uint32_t first_token = 0;
  std::vector<size_t> begins;  ///< Of its tokens, in the text; one more for the end.

  /// Tokens that lie in a part.
  kv::TokenRange TokensOf(const TextPart& part) const {
    const auto index = [&](size_t byte) {
      return first_token + static_cast<uint32_t>(std::ranges::lower_bound(begins, byte) - begins.begin());
    };
    uint32_t end = index(part.end);
    if (end > first_token && (end - first_token >= begins.size() || begins[end - first_token] > part.end)) --end;
    return {index(part.begin), std::max(index(part.begin), end)};
  }
};

}  // namespace

std::vector<TextPart> UnrelatedParts(std::string_view text, std::string_view wanted) {
  const std::vector<TextPart> sentences = SentencesOf(text);
  const std::set<std::string> words = WordsOf(wanted);
  std::vector<bool> kept(sentences.size());
  for (size_t i = 0; i < sentences.size(); ++i) {
    const std::set<std::string> own = WordsOf(text.substr(sentences[i].begin, sentences[i].end - sentences[i].begin));
    if (std::ranges::none_of(own, [&](const std::string& word) { return words.contains(word); })) continue;
    for (size_t j = i - std::min(i, kMarginSentences); j <= i + kMarginSentences && j < kept.size(); ++j)
      kept[j] = true;
  }
  std::vector<TextPart> parts;
  for (size_t i = 0; i < sentences.size();) {
    size_t end = i;
    while (end < sentences.size() && !kept[end]) ++end;
    if (end - i >= kRunSentences) parts.push_back({sentences[i].begin, sentences[end - 1].end});
    i = std::max(end, i + 1);
  }
  return parts;
}

size_t QuestionBegin(std::string_view text) {
  const std::vector<TextPart> sentences = SentencesOf(text);
  return sentences.empty() ? 0 : sentences.back().begin;
}

std::vector<TokenId> DroppablePrompt::Shortened() const {
  std::vector<TokenId> out;
  auto op = ops.begin();
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    while (op != ops.end() && op->end <= i) ++op;
    if (op == ops.end() || i < op->begin) out.push_back(tokens[i]);
  }
  return out;
}

absl::StatusOr<DroppablePrompt> PlanDrop(const Tokenizer& tokenizer, const ChatEncoder& encoder, const RecallCase& one,
                                         double share_max) {
  std::vector<uint32_t> marked;
  for (uint32_t i = 0; i < one.messages.size(); ++i) {
    if (one.messages[i].at("role").as_string() != "system") marked.push_back(i);
  }
  KVIST_ASSIGN_OR_RETURN(MarkedPrompt prompt, encoder.EncodeMarked({.messages = one.messages}, marked));
  std::vector<Content> contents;
  for (size_t i = 0; i < marked.size(); ++i) {
    const auto& [begin, end] = prompt.ranges[i];
    Content content{.text = one.messages[marked[i]].at("content").as_string(), .first_token = begin, .begins = {}};
    KVIST_ASSIGN_OR_RETURN(content.begins,
                           TokenBegins(tokenizer, std::span(prompt.tokens).subspan(begin, end - begin), content.text));
    contents.push_back(std::move(content));
  }
  if (contents.empty()) return absl::InvalidArgumentError("there is nothing but a system prompt");
  const size_t question = QuestionBegin(contents.back().text);
  const std::string wanted = Cat(contents.back().text.substr(question), " ", one.answer);
  std::vector<kv::TokenRange> ranges;
  for (const Content& content : contents) {
    const bool last = &content == &contents.back();
    for (const TextPart& part : UnrelatedParts(content.text.substr(0, last ? question : content.text.size()), wanted)) {
      ranges.push_back(content.TokensOf(part));
    }
  }
  const uint32_t at = contents.back().TokensOf({question, contents.back().text.size()}).begin;
  std::ranges::stable_sort(ranges, std::greater(), [](const kv::TokenRange& r) { return r.end - r.begin; });
  DroppablePrompt plan{.tokens = std::move(prompt.tokens), .ops = {}};
  const double most = share_max * static_cast<double>(plan.tokens.size());
  for (const kv::TokenRange& range : ranges) {
    if (range.begin == range.end || plan.dropped + (range.end - range.begin) > most) continue;
    plan.dropped += range.end - range.begin;
    plan.ops.push_back({.at = at, .begin = range.begin, .end = range.end});
  }
  std::ranges::sort(plan.ops, {}, &kv::CacheOp::begin);
  return plan;
}

}  // namespace kvist::lab
