// What is counted of a prompt to guess the length of its answer.

#include <algorithm>
#include <array>
#include <cmath>

#include "sched/length_predictor.h"

namespace kvist::sched {
namespace {

enum Feature : size_t {
  kLogBytes,
  kLogWords,
  kWordLength,
  kSentences,
  kQuestionMarks,
  kEndsAsQuestion,
  kLines,
  kCodeFences,
  kCodeSigns,
  kDigits,
  kCapitals,
  kListItems,
  kWantsList,
  kWantsReasons,
  kWantsText,
  kWantsBrevity,
  kWantsRewrite,
  kAsksAFact,
  kLogLastLine
};
static_assert(kLogLastLine + 1 == kLengthFeatures);

/// Words that tell what kind of answer is wanted.
struct Cue {
  std::string_view word;
  Feature feature;
};
constexpr Cue kCues[] = {
    {"analyze", kWantsReasons},  {"answer", kWantsBrevity},   {"article", kWantsText},     {"brief", kWantsBrevity},
    {"briefly", kWantsBrevity},  {"bullet", kWantsList},      {"code", kWantsText},        {"compare", kWantsReasons},
    {"compose", kWantsText},     {"concise", kWantsBrevity},  {"continue", kWantsRewrite}, {"convert", kWantsRewrite},
    {"correct", kWantsRewrite},  {"create", kWantsText},      {"describe", kWantsReasons}, {"detail", kWantsReasons},
    {"detailed", kWantsReasons}, {"discuss", kWantsReasons},  {"draft", kWantsText},       {"edit", kWantsRewrite},
    {"email", kWantsText},       {"essay", kWantsText},       {"examples", kWantsList},    {"explain", kWantsReasons},
    {"fix", kWantsRewrite},      {"function", kWantsText},    {"generate", kWantsText},    {"how", kWantsReasons},
    {"ideas", kWantsList},       {"implement", kWantsText},   {"improve", kWantsRewrite},  {"just", kWantsBrevity},
    {"list", kWantsList},        {"name", kWantsBrevity},     {"only", kWantsBrevity},     {"outline", kWantsList},
    {"plan", kWantsList},        {"poem", kWantsText},        {"rephrase", kWantsRewrite}, {"rewrite", kWantsRewrite},
    {"script", kWantsText},      {"sentence", kWantsBrevity}, {"short", kWantsBrevity},    {"single", kWantsBrevity},
    {"step", kWantsList},        {"steps", kWantsList},       {"story", kWantsText},       {"summarize", kWantsBrevity},
    {"summary", kWantsBrevity},  {"table", kWantsList},       {"tips", kWantsList},        {"translate", kWantsRewrite},
    {"ways", kWantsList},        {"what", kAsksAFact},        {"when", kAsksAFact},        {"where", kAsksAFact},
    {"which", kAsksAFact},       {"who", kAsksAFact},         {"why", kWantsReasons},      {"write", kWantsText},
    {"yes", kWantsBrevity},
};
static_assert(std::ranges::is_sorted(kCues, {}, &Cue::word));
constexpr size_t kCueBytesMax = 9;

/// Kinds of bytes, as bits.
enum Byte : uint8_t { kLetter = 1, kCapital = 2, kDigit = 4, kSentenceEnd = 8, kCodeSign = 16, kVisible = 32 };

constexpr std::array<uint8_t, 256> kBytes = [] {
  std::array<uint8_t, 256> bytes{};
  for (unsigned c = 0; c < 256; ++c) {
    if (c > ' ') bytes[c] |= kVisible;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
      bytes[c] |= kLetter;  // Other scripts have words.
    if (c >= 'A' && c <= 'Z') bytes[c] |= kCapital;
    if (c >= '0' && c <= '9') bytes[c] |= kDigit;
    if (c == '.' || c == '!' || c == '?') bytes[c] |= kSentenceEnd;
    if (std::string_view("{}[]();=<>|&/\\_").find(static_cast<char>(c)) != std::string_view::npos)
      bytes[c] |= kCodeSign;
  }
  return bytes;
}();

/// [first letter, as its low five bits][length]: is there a cue like that? Most words are none.
constexpr auto kMayBeCue = [] {
  std::array<std::array<bool, kCueBytesMax + 1>, 32> may{};
  for (const Cue& cue : kCues) may[cue.word[0] & 31][cue.word.size()] = true;
  return may;
}();

void CountWord(std::string_view word, LengthFeatures& features) {
  if (word.size() > kCueBytesMax || !kMayBeCue[word[0] & 31][word.size()]) return;
  char lower[kCueBytesMax];
  for (size_t i = 0; i < word.size(); ++i) lower[i] = static_cast<char>(word[i] | 0x20);
  const std::string_view key(lower, word.size());
  const Cue* cue = std::ranges::lower_bound(kCues, key, {}, &Cue::word);
  if (cue != std::end(kCues) && cue->word == key) ++features[cue->feature];
}

/// Does a line begin as an entry of a list: a dash, a star, or a number and a dot?
bool IsListItem(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return false;
  line.remove_prefix(begin);
  if (line.size() > 1 && (line[0] == '-' || line[0] == '*') && line[1] == ' ') return true;
  const size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
  return digits > 0 && digits < line.size() && (line[digits] == '.' || line[digits] == ')');
}

void CountLines(std::string_view text, LengthFeatures& features) {
  size_t last_line_bytes = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    ++features[kLines];
    if (IsListItem(line)) ++features[kListItems];
    if (line.find("```") != std::string_view::npos) ++features[kCodeFences];
    if (!line.empty()) last_line_bytes = line.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  features[kLogLastLine] = std::log1p(static_cast<float>(last_line_bytes));
}

}  // namespace

LengthFeatures LengthFeaturesOf(std::string_view text) {
  LengthFeatures features{};
  features[kLogBytes] = std::log1p(static_cast<float>(text.size()));
  if (text.size() > kLengthTextBytes) text = text.substr(text.size() - kLengthTextBytes);
  size_t words = 0, word_begin = 0, letters = 0, capitals = 0, digits = 0, ends = 0, questions = 0, code = 0;
  char last = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : '\0';
    const uint8_t byte = kBytes[static_cast<unsigned char>(c)];
    if ((byte & kVisible) != 0) last = c;
    if ((byte & kLetter) != 0) {
      ++letters;
      capitals += (byte & kCapital) != 0;
      continue;
    }
    if (i > word_begin) {
      ++words;
      CountWord(text.substr(word_begin, i - word_begin), features);
    }
    word_begin = i + 1;
    digits += (byte & kDigit) != 0;
    ends += (byte & kSentenceEnd) != 0;
    code += (byte & kCodeSign) != 0;
    questions += c == '?';
  }
  const float bytes = static_cast<float>(std::max<size_t>(text.size(), 1));
  features[kLogWords] = std::log1p(static_cast<float>(words));
  features[kWordLength] = static_cast<float>(letters) / static_cast<float>(std::max<size_t>(words, 1));
  features[kEndsAsQuestion] = last == '?' ? 1.0f : 0.0f;
  features[kSentences] = static_cast<float>(ends);
  features[kQuestionMarks] = static_cast<float>(questions);
  features[kCodeSigns] = static_cast<float>(code) / bytes;
  features[kDigits] = static_cast<float>(digits) / bytes;
  features[kCapitals] = static_cast<float>(capitals) / bytes;
  CountLines(text, features);
  return features;
}

}  // namespace kvist::sched
