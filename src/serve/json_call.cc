#include "serve/json_call.h"

#include <boost/json.hpp>

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

constexpr size_t kDepthMax = 64;
constexpr size_t kNameBytesMax = 256;

bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace

JsonSpan::Step JsonSpan::Read(char byte) {
  if (!begun_) {
    begun_ = true;
    first_ = byte;
  }
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
      return open_.empty() ? Step::kLast : Step::kInside;
    }
    return Step::kInside;
  }
  switch (byte) {
    case '"':
      in_string_ = true;
      break;
    case '{':
    case '[':
      if (open_.size() == kDepthMax) return Step::kFault;
      open_ += byte;
      break;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != (byte == '}' ? '{' : '[')) return Step::kFault;
      open_.pop_back();
      return open_.empty() ? Step::kLast : Step::kInside;
    default:
      break;
  }
  return Step::kInside;
}

bool JsonSpan::EndsBefore(char byte) const {
  return begun_ && open_.empty() && !in_string_ && (IsSpace(byte) || byte == ',' || byte == '}' || byte == ']');
}

std::optional<std::string> DecodeJsonString(std::string_view quoted) {
  boost::system::error_code error;
  const json::value value = json::parse(quoted, error);
  if (error || !value.is_string()) return std::nullopt;
  return std::string(value.get_string());
}

JsonCall::Step JsonCall::Read(char byte, PartList& parts) {
  switch (at_) {
    case At::kBefore:
      if (IsSpace(byte)) return Step::kMore;
      at_ = At::kKeyOrEnd;
      return byte == '{' ? Step::kMore : Step::kFault;
    case At::kKeyOrEnd:
      if (IsSpace(byte)) return Step::kMore;
      if (byte == '}') return EndCall(parts);
      if (byte != '"') return Step::kFault;
      key_ = byte;
      span_ = {};
      span_.Read(byte);
      at_ = At::kKey;
      return Step::kMore;
    case At::kKey: {
      key_ += byte;
      if (key_.size() > kNameBytesMax) return Step::kFault;
      if (span_.Read(byte) != JsonSpan::Step::kLast) return Step::kMore;
      const std::optional<std::string> key = DecodeJsonString(key_);
      if (!key) return Step::kFault;
      key_ = *key;
      at_ = At::kColon;
      return Step::kMore;
    }
    case At::kColon:
      if (IsSpace(byte)) return Step::kMore;
      if (byte != ':') return Step::kFault;
      span_ = {};
      value_.clear();
      at_ = At::kValue;
      return Step::kMore;
    case At::kValue: {
      if (!span_.begun() && IsSpace(byte)) return Step::kMore;
      if (span_.EndsBefore(byte)) {
        const Step ended = EndValue();
        return ended == Step::kMore ? Read(byte, parts) : ended;
      }
      if (!span_.begun() && byte == '{' && IsArguments() && !name_.empty() && !streaming_) {
        parts.BeginCall(name_);
        streaming_ = true;
      }
      const JsonSpan::Step step = span_.Read(byte);
      if (step == JsonSpan::Step::kFault) return Step::kFault;
      if (streaming_ && IsArguments()) {
        parts.Arguments(std::string_view(&byte, 1));
      } else {
        value_ += byte;
      }
      return step == JsonSpan::Step::kLast ? EndValue() : Step::kMore;
    }
    case At::kAfterValue:
      if (IsSpace(byte)) return Step::kMore;
      if (byte == '}') return EndCall(parts);
      at_ = At::kKeyOrEnd;
      return byte == ',' ? Step::kMore : Step::kFault;
  }
  return Step::kFault;
}

bool JsonCall::KeepsName() {
  const std::optional<std::string> name = DecodeJsonString(value_);
  if (!name || name->empty() || name->size() > kNameBytesMax) return false;
  name_ = *name;
  return !only_known_names_ || syntax_.types.contains(name_);
}

JsonCall::Step JsonCall::EndValue() {
  at_ = At::kAfterValue;
  if (streaming_) return Step::kMore;
  if (key_ == "name") return KeepsName() ? Step::kMore : Step::kFault;
  if (!IsArguments()) return Step::kMore;
  if (span_.is_object()) {
    arguments_ = value_;
  } else if (span_.is_string()) {  // Some models write the object's text, as the API does.
    const std::optional<std::string> text = DecodeJsonString(value_);
    if (!text || text->empty() || text->front() != '{') return Step::kFault;
    arguments_ = *text;
  } else if (value_ != "null") {
    return Step::kFault;
  }
  return Step::kMore;
}

JsonCall::Step JsonCall::EndCall(PartList& parts) {
  if (name_.empty()) return Step::kFault;
  if (!streaming_) {
    parts.BeginCall(name_);
    parts.Arguments(arguments_.empty() ? "{}" : std::string_view(arguments_));
  }
  parts.EndCall();
  return Step::kDone;
}

}  // namespace kvist::serve::internal
