#include "lab/load_answer.h"

#include <algorithm>
#include <limits>

#include <boost/json.hpp>

#include "base/status.h"

namespace kvist::lab {

namespace json = boost::json;

namespace {

constexpr size_t kMessageBytesMax = 300;

std::optional<uint32_t> CountOf(const json::value* value) {
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  const int64_t count = value->get_int64();
  if (count < 0 || count > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(count);
}

const json::value* At(const json::value& value, const char* pointer) {
  boost::system::error_code error;
  const json::value* found = value.find_pointer(pointer, error);
  return error ? nullptr : found;
}

std::string_view StringAt(const json::value& value, const char* pointer) {
  const json::value* found = At(value, pointer);
  if (found == nullptr || !found->is_string()) return {};
  return {found->get_string().data(), found->get_string().size()};
}

std::string MessageOf(const json::value& value) {
  std::string_view message = StringAt(value, "/error/message");
  if (message.empty()) message = StringAt(value, "/error");
  if (message.empty()) message = StringAt(value, "/message");
  if (message.empty()) message = StringAt(value, "/detail");
  return std::string(message.substr(0, kMessageBytesMax));
}

void TakeCounts(const json::value& value, AnswerReader& reader) {
  if (const auto count = CountOf(At(value, "/usage/prompt_tokens"))) reader.prompt_tokens = count;
  if (const auto count = CountOf(At(value, "/usage/completion_tokens"))) reader.output_tokens = count;
  auto cached = CountOf(At(value, "/usage/prompt_tokens_details/cached_tokens"));
  if (!cached) cached = CountOf(At(value, "/timings/cache_n"));  // llama.cpp's server.
  if (cached) reader.cached_tokens = *cached;
}

absl::StatusOr<json::value> ParseObject(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  if (error || !value.is_object()) {
    return absl::InvalidArgumentError(Cat("this is no answer: ", text.substr(0, kMessageBytesMax)));
  }
  if (value.get_object().contains("error") && !value.get_object().at("error").is_null()) {
    const std::string message = MessageOf(value);
    return absl::AbortedError(message.empty() ? "the server sent an error without a message" : message);
  }
  return value;
}

}  // namespace

absl::StatusOr<bool> AnswerReader::TakeEvent(std::string_view name, std::string_view data) {
  if (data == "[DONE]") {
    done_ = has_choice_;
    return false;
  }
  if (name == "error") {
    const std::string message = ErrorMessageOf(data);
    return absl::AbortedError(message.empty() ? "the server sent an error event" : message);
  }
  KVIST_ASSIGN_OR_RETURN(const json::value value, ParseObject(data));
  TakeCounts(value, *this);
  if (At(value, "/choices/0") != nullptr) has_choice_ = true;
  if (!StringAt(value, "/choices/0/finish_reason").empty()) done_ = true;
  const std::string_view content = StringAt(value, "/choices/0/delta/content");
  const std::string_view text = content.empty() ? StringAt(value, "/choices/0/text") : content;
  text_.append(text);
  return !text.empty() || !StringAt(value, "/choices/0/delta/reasoning_content").empty() ||
         At(value, "/choices/0/delta/tool_calls/0") != nullptr;
}

absl::Status AnswerReader::TakeWhole(std::string_view body) {
  KVIST_ASSIGN_OR_RETURN(const json::value value, ParseObject(body));
  if (At(value, "/choices/0") == nullptr) return absl::InvalidArgumentError("the answer has no choices");
  TakeCounts(value, *this);
  const std::string_view content = StringAt(value, "/choices/0/message/content");
  text_ = content.empty() ? StringAt(value, "/choices/0/text") : content;
  done_ = true;
  return absl::OkStatus();
}

std::string ErrorMessageOf(std::string_view body) {
  boost::system::error_code error;
  const json::value value = json::parse({body.data(), body.size()}, error);
  if (!error) return MessageOf(value);
  if (body.starts_with('<')) return {};  // A page.
  return std::string(body.substr(0, std::min(body.find_first_of("\r\n"), kMessageBytesMax)));
}

}  // namespace kvist::lab
