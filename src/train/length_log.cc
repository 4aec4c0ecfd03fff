// Logged traffic as examples: what was asked, and how long the answer was.

#include <boost/json.hpp>

#include "base/status.h"
#include "train/length_training.h"

namespace kvist::train {
namespace {

namespace json = boost::json;

constexpr size_t kBytesPerToken = 4;  // Of English, about; conversations say nothing about tokens.
constexpr int64_t kTokensMax = 1 << 24;

const json::string* StringIn(const json::object& entry, std::string_view key) {
  const json::value* value = entry.if_contains(key);
  return value == nullptr ? nullptr : value->if_string();
}

void AddConversation(const json::array& turns, std::vector<LengthExample>& examples) {
  const json::string* asked = nullptr;
  for (const json::value& turn : turns) {
    const json::object* message = turn.if_object();
    const json::string* from = message != nullptr ? StringIn(*message, "from") : nullptr;
    const json::string* text = message != nullptr ? StringIn(*message, "value") : nullptr;
    if (from == nullptr || text == nullptr) continue;
    if (*from == "human" || *from == "user") {
      asked = text;
    } else if (asked != nullptr) {
      if (!text->empty()) {
        examples.push_back(
            {.prompt = std::string(*asked), .output_tokens = static_cast<uint32_t>(text->size() / kBytesPerToken + 1)});
      }
      asked = nullptr;
    }
  }
}

absl::Status AddEntry(const json::value& value, std::string_view place, std::vector<LengthExample>& examples) {
  const json::object* entry = value.if_object();
  if (entry == nullptr) return absl::InvalidArgumentError(Cat(place, " is not an object"));
  if (const json::value* turns = entry->if_contains("conversations"); turns != nullptr) {
    if (!turns->is_array()) return absl::InvalidArgumentError(Cat(place, ": \"conversations\" is not a list"));
    AddConversation(turns->get_array(), examples);
    return absl::OkStatus();
  }
  const json::string* prompt = StringIn(*entry, "prompt");
  if (prompt == nullptr) prompt = StringIn(*entry, "input");
  const json::value* tokens = entry->if_contains("output_tokens");
  if (tokens == nullptr) tokens = entry->if_contains("output_length");
  if (prompt == nullptr || tokens == nullptr) {
    return absl::InvalidArgumentError(
        Cat(place, " has neither \"prompt\" and \"output_tokens\" nor \"conversations\""));
  }
  boost::system::error_code error;
  const auto count = tokens->to_number<int64_t>(error);
  if (error.failed() || count < 0 || count > kTokensMax) {
    return absl::InvalidArgumentError(Cat(place, ": the output's tokens are no number from 0 to ", kTokensMax));
  }
  if (count > 0) examples.push_back({std::string(*prompt), static_cast<uint32_t>(count)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LengthExample>> ReadLengthLog(std::string_view text) {
  std::vector<LengthExample> examples;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  boost::system::error_code error;
  if (begin != std::string_view::npos && text[begin] == '[') {
    const json::value all = json::parse(text, error);
    if (error.failed()) return absl::InvalidArgumentError(Cat("the log is not JSON: ", error.message()));
    for (size_t i = 0; i < all.get_array().size(); ++i) {
      KVIST_RETURN_IF_ERROR(AddEntry(all.get_array()[i], Cat("entry ", i), examples));
    }
    return examples;
  }
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const json::value entry = json::parse(line, error);
    if (error.failed()) {
      return absl::InvalidArgumentError(Cat("line ", line_number, " is not JSON: ", error.message()));
    }
    KVIST_RETURN_IF_ERROR(AddEntry(entry, Cat("line ", line_number), examples));
  }
  return examples;
}

}  // namespace kvist::train
