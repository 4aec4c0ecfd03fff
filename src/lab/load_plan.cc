#include "lab/load_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace kvist::lab {

namespace json = boost::json;

namespace {

constexpr uint32_t kAnswerTokensMax = 1u << 20;
constexpr size_t kBytesPerToken = 4;

/// Common enough that most vocabularies have each as one token.
constexpr std::string_view kWords[] = {
    "the", "of",   "and",  "to",    "in",    "is",  "you",  "that",  "it",    "he",   "was",  "for",   "on",
    "are", "as",   "with", "his",   "they",  "at",  "be",   "this",  "have",  "from", "or",   "one",   "had",
    "by",  "word", "but",  "not",   "what",  "all", "were", "we",    "when",  "your", "can",  "said",  "there",
    "use", "an",   "each", "which", "she",   "do",  "how",  "their", "if",    "will", "up",   "other", "about",
    "out", "many", "then", "them",  "these", "so",  "some", "her",   "would", "make", "like", "him"};

absl::Status Bad(size_t entry, std::string_view what) {
  return absl::InvalidArgumentError(Cat("entry ", entry, " of the data set: ", what));
}

/// @param what  it is; from 0 to `max`
absl::Status ReadRatePart(absl::string_view text, std::string_view what, double max, size_t line, double& out) {
  if (absl::SimpleAtod(text, &out) && out >= 0 && out <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("line {}: '{}' is not {} from 0 to {:.0f}", line,
                                                std::string_view(text.data(), text.size()), what, max));
}

std::string WordsOf(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) {
    if (!text.empty()) text += ' ';
    text += kWords[token.value % std::size(kWords)];
  }
  return text;
}

/// The last line of what a user says; of a long one its end.
std::string LastQuestion(std::string_view text) {
  constexpr size_t kBytesMax = 400;
  text = text.substr(text.rfind('\n') + 1);
  if (text.size() > kBytesMax) {
    text.remove_prefix(text.size() - kBytesMax);
    while (!text.empty() && (text.front() & 0xC0) == 0x80) text.remove_prefix(1);  // Not inside a character.
  }
  return text.empty() ? "Go on." : std::string(text);
}

std::vector<TokenId> DrawTokens(uint32_t count, uint64_t seed, uint32_t vocab) {
  Prng prng(Mix64(seed));
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token.value = static_cast<uint32_t>(prng.Below(vocab));
  return tokens;
}

const std::string* TextOf(const json::object& object, std::string_view key, std::string& out) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_string()) return nullptr;
  out = std::string(value->get_string());
  return &out;
}

absl::StatusOr<SampleConversation> ReadInput(const json::object& entry, size_t number) {
  PlannedTurn turn;
  if (TextOf(entry, "input", turn.text) == nullptr) return Bad(number, "\"input\" is no text");
  const json::value* length = entry.if_contains("output_length");
  if (length == nullptr || !length->is_int64()) return Bad(number, "\"output_length\" is no whole number");
  const int64_t tokens = length->get_int64();
  if (tokens < 0 || tokens > kAnswerTokensMax) return Bad(number, "\"output_length\" is out of range");
  turn.max_tokens = std::max<uint32_t>(1, static_cast<uint32_t>(tokens));
  return SampleConversation{{std::move(turn)}};
}

absl::StatusOr<SampleConversation> ReadMessages(const json::array& messages, size_t number) {
  SampleConversation conversation;
  for (const json::value& message : messages) {
    std::string from, value;
    if (!message.is_object() || TextOf(message.get_object(), "from", from) == nullptr ||
        TextOf(message.get_object(), "value", value) == nullptr) {
      return Bad(number, "a message has no \"from\" and \"value\"");
    }
    if (from == "human" || from == "user") {
      conversation.turns.push_back({.text = std::move(value), .max_tokens = 0});
    } else if (!conversation.turns.empty()) {
      conversation.turns.back().max_tokens =
          static_cast<uint32_t>(std::clamp<size_t>(value.size() / kBytesPerToken, 1, kAnswerTokensMax));
    }
  }
  std::erase_if(conversation.turns, [](const PlannedTurn& turn) { return turn.max_tokens == 0 || turn.text.empty(); });
  return conversation;
}

}  // namespace

absl::StatusOr<std::vector<SampleConversation>> ParseDataset(std::string_view json_text) {
  boost::system::error_code error;
  const json::value value = json::parse({json_text.data(), json_text.size()}, error);
  if (error) return absl::InvalidArgumentError(Cat("the data set is not JSON: ", error.message()));
  if (!value.is_array()) return absl::InvalidArgumentError("the data set is no JSON array");
  std::vector<SampleConversation> samples;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& entry = value.get_array()[i];
    if (!entry.is_object()) return Bad(i, "is no object");
    const json::value* messages = entry.get_object().if_contains("conversations");
    if (messages != nullptr && !messages->is_array()) return Bad(i, "\"conversations\" is no array");
    KVIST_ASSIGN_OR_RETURN(SampleConversation sample, messages != nullptr ? ReadMessages(messages->get_array(), i)
                                                                          : ReadInput(entry.get_object(), i));
    if (!sample.turns.empty()) samples.push_back(std::move(sample));
  }
  if (samples.empty()) return absl::InvalidArgumentError("the data set has no conversation with an answer");
  return samples;
}

double DrawGap(Prng& prng, double rate, double shape) {
  // Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 26(3), 2000; below shape 1 with
  // their factor u^(1/shape).
  const double boost = shape < 1 ? std::pow(1 - prng.Uniform(), 1 / shape) : 1;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * prng.Uniform());
    const double v = std::pow(1 + c * normal, 3);
    if (v <= 0) continue;
    if (std::log(1 - prng.Uniform()) < 0.5 * normal * normal + d - d * v + d * std::log(v)) {
      return boost * d * v / (shape * rate);
    }
  }
}

absl::StatusOr<std::vector<RateStep>> ParseRates(std::string_view text) {
  std::vector<RateStep> rates;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(ToAbsl(text), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ',');
    RateStep step;
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(Cat("line ", number, ": two numbers are wanted, 'seconds,rate'"));
    }
    KVIST_RETURN_IF_ERROR(ReadRatePart(parts[0], "a time in seconds", 1e9, number, step.at_s));
    KVIST_RETURN_IF_ERROR(ReadRatePart(parts[1], "a rate per second", 1e6, number, step.rate));
    if (!rates.empty() && step.at_s <= rates.back().at_s) {
      return absl::InvalidArgumentError(Cat("line ", number, ": times must increase"));
    }
    rates.push_back(step);
  }
  if (std::ranges::all_of(rates, [](const RateStep& step) { return step.rate == 0; })) {
    return absl::InvalidArgumentError("there is no rate above 0");
  }
  return rates;
}

std::string WordText(uint32_t count, uint64_t seed) {
  return WordsOf(DrawTokens(count, seed, std::size(kWords)));
}

LoadPlan::LoadPlan(LoadPlanOptions options) : options_(std::move(options)) {
  if (options_.shared_prefix_tokens > 0) system_ = WordText(options_.shared_prefix_tokens, Mix64(options_.seed) ^ 1);
  const bool by_tenant = std::ranges::any_of(options_.tenants, [](const LoadTenant& t) { return t.rate > 0; });
  open_loop_ = options_.rate > 0 || by_tenant || !options_.rates.empty() || !options_.trace.requests.empty();
  if (!open_loop_ || !options_.trace.requests.empty()) return;
  for (uint32_t i = 0; i < options_.tenants.size(); ++i) {
    const double share = (options_.rates.empty() ? options_.rate : 1) / static_cast<double>(options_.tenants.size());
    const double rate = options_.tenants[i].rate > 0 ? options_.tenants[i].rate : share;
    arrivals_.push_back({Prng(Mix64(options_.seed) + i + 2), rate, 0});
    if (rate > 0) arrivals_.back().next = DrawGap(arrivals_.back().prng, rate, options_.burstiness);
  }
}

absl::StatusOr<LoadPlan> LoadPlan::Make(LoadPlanOptions options) {
  const bool by_tenant = std::ranges::any_of(options.tenants, [](const LoadTenant& t) { return t.rate > 0; });
  if (!options.trace.requests.empty() && (options.rate > 0 || by_tenant)) {
    return absl::InvalidArgumentError("arrivals come from a trace or from a rate, not from both");
  }
  if (!options.rates.empty() && (options.rate > 0 || by_tenant || !options.trace.requests.empty())) {
    return absl::InvalidArgumentError("rates that change go with neither a rate nor a trace");
  }
  if (by_tenant && options.rate <= 0 &&
      std::ranges::any_of(options.tenants, [](const LoadTenant& t) { return t.rate <= 0; })) {
    return absl::InvalidArgumentError("some tenants have a rate and others none: give --rate for these");
  }
  if (options.token_vocab > 0 && (!options.dataset.empty() || options.turns > 1 || options.shared_prefix_tokens > 0)) {
    return absl::InvalidArgumentError("token ids go with one turn of words or of a trace, without a shared prefix");
  }
  return LoadPlan(std::move(options));
}

PlannedTurn LoadPlan::Words(uint32_t count, uint64_t salt) const {
  const uint64_t seed = Mix64(options_.seed) ^ Mix64(salt);
  PlannedTurn turn{.max_tokens = options_.output_tokens};
  if (options_.token_vocab > 0) {
    turn.tokens = DrawTokens(count, seed, options_.token_vocab);
  } else {
    turn.text = WordText(count, seed);
  }
  return turn;
}

PlannedConversation LoadPlan::Texts(uint32_t index) {
  PlannedConversation out{.index = index, .system = system_};
  if (!options_.dataset.empty()) {
    const auto& samples = options_.dataset;
    const auto sample = (index + Mix64(options_.seed) % samples.size()) % samples.size();
    out.turns = samples[sample].turns;
    if (out.turns.size() > options_.turns) out.turns.resize(options_.turns);
    const bool lone = samples[sample].turns.size() == 1;
    while (lone && out.turns.size() < options_.turns) {
      const PlannedTurn& other = samples[(sample + out.turns.size()) % samples.size()].turns.front();
      out.turns.push_back({.text = LastQuestion(other.text), .max_tokens = other.max_tokens});
    }
  } else if (!options_.trace.requests.empty()) {
    workload::TraceRequest request = options_.trace.requests[index];
    const auto scaled = [this](uint32_t tokens) {
      return std::max<uint32_t>(1, static_cast<uint32_t>(std::lround(tokens * options_.length_scale)));
    };
    request.input_tokens = scaled(request.input_tokens);
    const uint32_t block = options_.trace.block_tokens == 0 ? 1 : scaled(options_.trace.block_tokens);
    request.block_hashes.resize(std::min<size_t>(request.block_hashes.size(), request.input_tokens / block));
    const uint32_t vocab = options_.token_vocab > 0 ? options_.token_vocab : static_cast<uint32_t>(std::size(kWords));
    PlannedTurn turn{.max_tokens = scaled(request.output_tokens)};
    turn.tokens = workload::PromptTokens(request, block, vocab, index);
    if (options_.token_vocab == 0) {
      turn.text = WordsOf(turn.tokens);
      turn.tokens.clear();
    }
    out.turns.push_back(std::move(turn));
  } else {
    for (uint32_t turn = 0; turn < options_.turns; ++turn) {
      out.turns.push_back(Words(options_.input_tokens, uint64_t{index} * options_.turns + turn + 1));
    }
  }
  if (options_.max_tokens > 0) {
    for (PlannedTurn& turn : out.turns) turn.max_tokens = options_.max_tokens;
  }
  return out;
}

/// Where rates change, arrivals are drawn as if one came each second, and time runs at the rate. Infinity = never.
double LoadPlan::TimeOf(double place) const {
  const std::vector<RateStep>& rates = options_.rates;
  if (rates.empty()) return place;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double end_s = i + 1 < rates.size() ? rates[i + 1].at_s : std::numeric_limits<double>::infinity();
    const double here = rates[i].rate == 0 ? 0 : rates[i].rate * (end_s - rates[i].at_s);
    if (place < here) return rates[i].at_s + place / rates[i].rate;
    place -= here;
  }
  return std::numeric_limits<double>::infinity();
}

std::optional<PlannedConversation> LoadPlan::Next() {
  const bool traced = !options_.trace.requests.empty();
  if (given_ >= options_.conversations || (traced && given_ >= options_.trace.requests.size())) return std::nullopt;
  const uint32_t index = given_;
  std::optional<double> at_s;
  auto tenant = static_cast<uint32_t>(index % options_.tenants.size());
  if (traced) {
    at_s = options_.trace.requests[index].at_s / options_.speed;
  } else if (open_loop_) {
    const auto next = std::ranges::min_element(arrivals_, {}, &Arrivals::next);
    tenant = static_cast<uint32_t>(next - arrivals_.begin());
    at_s = TimeOf(next->next);
    next->next += DrawGap(next->prng, next->rate, options_.burstiness);
  }
  if (at_s && std::isinf(*at_s)) return std::nullopt;
  if (at_s && options_.seconds > 0 && *at_s >= options_.seconds) return std::nullopt;
  ++given_;
  PlannedConversation out = Texts(index);
  out.at_s = at_s;
  out.tenant = tenant;
  return out;
}

}  // namespace kvist::lab
