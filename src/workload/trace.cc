#include "workload/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>

#include <boost/json.hpp>

#include "base/prng.h"
#include "base/status.h"
#include "platform/mapped_file.h"

namespace kvist::workload {

namespace json = boost::json;

namespace {

constexpr uint32_t kTokensMax = 1u << 28;  ///< Of one request; more is a fault of the file.
constexpr uint32_t kMooncakeBlock = 512;

absl::Status Bad(std::string_view place, const std::string& what) {
  return absl::InvalidArgumentError(Cat(place, ": ", what));
}

absl::StatusOr<json::value> ParseJson(std::string_view text, std::string_view place) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  if (error) return Bad(place, Cat("is not JSON: ", error.message()));
  return value;
}

absl::StatusOr<double> Number(const json::object& object, std::string_view key, std::string_view place) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_number()) return Bad(place, Cat("\"", key, "\" is missing or no number"));
  boost::system::error_code error;
  const double number = value->to_number<double>(error);
  if (error || !std::isfinite(number) || number < 0) return Bad(place, Cat("\"", key, "\" is out of range"));
  return number;
}

absl::StatusOr<uint32_t> Tokens(const json::object& object, std::string_view key, std::string_view place) {
  KVIST_ASSIGN_OR_RETURN(const double number, Number(object, key, place));
  if (number > kTokensMax) return Bad(place, Cat("\"", key, "\" is above ", kTokensMax));
  return static_cast<uint32_t>(number);
}

/// @param salt  makes ids of one session differ from those of another; 0 = ids are global.
absl::Status ReadHashes(const json::object& object, uint64_t salt, std::string_view place, TraceRequest& request) {
  const json::value* ids = object.if_contains("hash_ids");
  if (ids == nullptr || !ids->is_array()) return Bad(place, "\"hash_ids\" is missing or no array");
  for (const json::value& id : ids->get_array()) {
    if (!id.is_int64() && !id.is_uint64()) return Bad(place, "\"hash_ids\" holds what is no integer");
    const uint64_t number = id.is_int64() ? static_cast<uint64_t>(id.get_int64()) : id.get_uint64();
    request.block_hashes.push_back(Mix64(Mix64(salt) ^ number));
  }
  return absl::OkStatus();
}

/// Whole blocks only: what a block's hash says about tokens past the prompt's end is nothing.
void KeepWholeBlocks(uint32_t block_tokens, TraceRequest& request) {
  request.block_hashes.resize(std::min<size_t>(request.block_hashes.size(), request.input_tokens / block_tokens));
}

absl::StatusOr<TraceRequest> ReadMooncakeLine(std::string_view line, std::string_view place) {
  KVIST_ASSIGN_OR_RETURN(const json::value value, ParseJson(line, place));
  if (!value.is_object()) return Bad(place, "is no object");
  const json::object& object = value.get_object();
  TraceRequest request;
  KVIST_ASSIGN_OR_RETURN(const double at_ms, Number(object, "timestamp", place));
  request.at_s = at_ms / 1000;
  KVIST_ASSIGN_OR_RETURN(request.input_tokens, Tokens(object, "input_length", place));
  KVIST_ASSIGN_OR_RETURN(request.output_tokens, Tokens(object, "output_length", place));
  KVIST_RETURN_IF_ERROR(ReadHashes(object, 0, place, request));
  KeepWholeBlocks(kMooncakeBlock, request);
  return request;
}

/// Calls with each line that is not empty and its number.
template <class Visit>
absl::Status ForEachLine(std::string_view text, const Visit& visit) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) KVIST_RETURN_IF_ERROR(visit(line, number));
  }
  return absl::OkStatus();
}

absl::StatusOr<Trace> ParseMooncake(std::string_view text) {
  Trace trace{.block_tokens = kMooncakeBlock, .requests = {}};
  KVIST_RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, size_t number) -> absl::Status {
    KVIST_ASSIGN_OR_RETURN(TraceRequest request, ReadMooncakeLine(line, Cat("line ", number)));
    trace.requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  return trace;
}

absl::StatusOr<Trace> ParseAgentSession(std::string_view text, uint32_t session) {
  KVIST_ASSIGN_OR_RETURN(const json::value value, ParseJson(text, "the session"));
  if (!value.is_object()) return Bad("the session", "is no object");
  const json::object& object = value.get_object();
  Trace trace;
  KVIST_ASSIGN_OR_RETURN(trace.block_tokens, Tokens(object, "block_size", "the session"));
  if (trace.block_tokens == 0) return Bad("the session", "\"block_size\" is 0");
  const json::value* scope = object.if_contains("hash_id_scope");
  const bool local = scope != nullptr && scope->is_string() && scope->get_string() == "local";
  const json::value* requests = object.if_contains("requests");
  if (requests == nullptr || !requests->is_array()) return Bad("the session", "\"requests\" is missing or no array");
  for (size_t i = 0; i < requests->get_array().size(); ++i) {
    const std::string place = Cat("requests[", i, "]");
    const json::value& entry = requests->get_array()[i];
    if (!entry.is_object()) return Bad(place, "is no object");
    TraceRequest request{.session = session, .block_hashes = {}};
    KVIST_ASSIGN_OR_RETURN(request.at_s, Number(entry.get_object(), "t", place));
    KVIST_ASSIGN_OR_RETURN(request.input_tokens, Tokens(entry.get_object(), "in", place));
    KVIST_ASSIGN_OR_RETURN(request.output_tokens, Tokens(entry.get_object(), "out", place));
    KVIST_RETURN_IF_ERROR(ReadHashes(entry.get_object(), local ? session + 1 : 0, place, request));
    KeepWholeBlocks(trace.block_tokens, request);
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

/// "2023-11-16 18:17:03.9799600" to seconds of some origin.
absl::StatusOr<double> ParseTime(std::string_view text, std::string_view place) {
  const auto number = [&](size_t at, size_t count, double& out) {
    if (at + count > text.size()) return false;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + count, out);
    return error == std::errc() && end == text.data() + at + count;
  };
  double year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool shaped = text.size() >= 19 && text[4] == '-' && text[7] == '-' && text[13] == ':' && text[16] == ':';
  if (!shaped || !number(0, 4, year) || !number(5, 2, month) || !number(8, 2, day) || !number(11, 2, hour) ||
      !number(14, 2, minute) || !number(17, text.size() - 17, second)) {
    return Bad(place, "the time is not of the form 2023-11-16 18:17:03.97");
  }
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(year)),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok() || hour >= 24 || minute >= 60 || !(second >= 0 && second < 61)) {
    return Bad(place, "there is no such time");
  }
  constexpr std::chrono::sys_days kOrigin(std::chrono::year(2023) / 1 /
                                          1);  // Near, so that fractions keep their digits.
  const auto days = static_cast<double>((std::chrono::sys_days(date) - kOrigin).count());
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

absl::StatusOr<uint32_t> ParseCount(std::string_view text, std::string_view place) {
  uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count > kTokensMax) {
    return Bad(place, Cat("'", text.substr(0, 40), "' is no number of tokens"));
  }
  return count;
}

absl::StatusOr<Trace> ParseAzure(std::string_view text) {
  Trace trace;
  double first = std::numeric_limits<double>::infinity();
  KVIST_RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, size_t number) -> absl::Status {
    if (number == 1) return absl::OkStatus();
    const std::string place = Cat("line ", number);
    const size_t a = line.find(','), b = a == line.npos ? a : line.find(',', a + 1);
    if (b == line.npos) return Bad(place, "does not have three columns");
    TraceRequest request;
    KVIST_ASSIGN_OR_RETURN(request.at_s, ParseTime(line.substr(0, a), place));
    KVIST_ASSIGN_OR_RETURN(request.input_tokens, ParseCount(line.substr(a + 1, b - a - 1), place));
    KVIST_ASSIGN_OR_RETURN(request.output_tokens, ParseCount(line.substr(b + 1), place));
    first = std::min(first, request.at_s);
    trace.requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  for (TraceRequest& request : trace.requests) request.at_s -= first;
  return trace;
}

}  // namespace

absl::StatusOr<Trace> ParseTrace(std::string_view text, uint32_t session) {
  if (text.starts_with("TIMESTAMP,")) return ParseAzure(text);
  const std::string_view first_line = text.substr(0, text.find('\n'));
  if (first_line.find("\"timestamp\"") != first_line.npos) return ParseMooncake(text);
  if (text.find("\"requests\"") != text.npos) return ParseAgentSession(text, session);
  return absl::InvalidArgumentError(
      "not a trace: neither Mooncake's JSON lines, nor an agent session, nor Azure's CSV");
}

absl::StatusOr<Trace> LoadTraces(const std::vector<std::string>& paths) {
  Trace all;
  for (uint32_t i = 0; i < paths.size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(paths[i]));
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    absl::StatusOr<Trace> trace = ParseTrace(text, i);
    if (!trace.ok()) return Annotate(trace.status(), paths[i]);
    if (i == 0) all.block_tokens = trace->block_tokens;
    if (trace->block_tokens != all.block_tokens) {
      return Bad(paths[i], Cat("blocks of ", trace->block_tokens, " tokens beside blocks of ", all.block_tokens));
    }
    std::ranges::move(trace->requests, std::back_inserter(all.requests));
  }
  std::ranges::stable_sort(all.requests, {}, &TraceRequest::at_s);
  return all;
}

std::vector<TokenId> PromptTokens(const TraceRequest& request, uint32_t block_tokens, uint32_t vocab_size,
                                  uint64_t request_index) {
  std::vector<TokenId> tokens;
  tokens.reserve(request.input_tokens);
  for (const uint64_t hash : request.block_hashes) {
    Prng prng(hash);
    for (uint32_t i = 0; i < block_tokens; ++i)
      tokens.push_back(TokenId{static_cast<uint32_t>(prng.Below(vocab_size))});
  }
  Prng rest(Mix64(~request_index));
  while (tokens.size() < request.input_tokens) tokens.push_back(TokenId{static_cast<uint32_t>(rest.Below(vocab_size))});
  return tokens;
}

}  // namespace kvist::workload
