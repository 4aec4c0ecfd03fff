#include <algorithm>
#include <cmath>
#include <numeric>

#include <boost/json.hpp>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

void AppendEscapedUnit(uint32_t unit, std::string& out) {
  absl::StrAppendFormat(&out, "\\u%04x", unit);
}

/// A code point as json.dumps writes it inside quotes.
void AppendJsonChar(std::string_view bytes, char32_t c, bool ensure_ascii, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
    AppendEscapedUnit(c, out);
  } else if (ensure_ascii && c >= 0x10000) {
    AppendEscapedUnit(0xD800 + ((c - 0x10000) >> 10), out);
    AppendEscapedUnit(0xDC00 + ((c - 0x10000) & 0x3FF), out);
  } else {
    out += bytes;
  }
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string& out) {
  out.push_back('"');
  size_t plain = 0;  // Start of the run not yet copied.
  for (size_t pos = 0; pos < text.size();) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && (!ensure_ascii || byte < 0x7F)) {
      ++pos;
      continue;
    }
    const CodePoint c = DecodeAt(text, pos);
    out += text.substr(plain, pos - plain);
    AppendJsonChar(text.substr(pos, c.bytes), c.value, ensure_ascii, out);
    pos += c.bytes;
    plain = pos;
  }
  out += text.substr(plain);
  out.push_back('"');
}

std::string JsonNumber(const Value& value) {
  if (value.Is(Kind::kBool)) return value.boolean() ? "true" : "false";
  if (value.Is(Kind::kInt)) return IntText(value.integer());
  const double d = value.number();
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return FloatText(d);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  absl::Status Write(const Value& value, size_t level) {
    KVIST_RETURN_IF_ERROR(runtime_.Spend(1));
    switch (value.kind()) {
      case Kind::kNone:
        return Put("null");
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        return Put(JsonNumber(value));
      case Kind::kText:
        return PutString(value.str());
      case Kind::kSequence:
        return WriteList(value.sequence().items, level);
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      default:
        return Fail("tojson: a ", TypeName(value), " has no JSON form");
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::Status Put(std::string_view text) {
    KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(text.size(), out_.size() + text.size()));
    out_ += text;
    return absl::OkStatus();
  }

  absl::Status PutString(std::string_view text) {
    KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(text.size(), out_.size() + text.size()));
    AppendJsonString(text, style_.ensure_ascii, out_);
    return absl::OkStatus();
  }

  absl::Status NewLine(size_t level) {
    if (!style_.multiline) return absl::OkStatus();
    KVIST_RETURN_IF_ERROR(Put("\n"));
    for (size_t i = 0; i < level; ++i) KVIST_RETURN_IF_ERROR(Put(style_.indent));
    return absl::OkStatus();
  }

  absl::Status WriteList(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return Put("[]");
    KVIST_RETURN_IF_ERROR(Put("["));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) KVIST_RETURN_IF_ERROR(Put(style_.item_separator));
      KVIST_RETURN_IF_ERROR(NewLine(level + 1));
      KVIST_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    KVIST_RETURN_IF_ERROR(NewLine(level));
    return Put("]");
  }

  absl::Status WriteKey(const Value& key) {
    if (key.IsText()) return PutString(key.str());
    if (key.IsNone()) return PutString("null");
    if (key.IsNumber()) return PutString(JsonNumber(key));
    return Fail("tojson: a ", TypeName(key), " cannot be a key in JSON");
  }

  absl::Status WriteDict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) return Put("{}");
    std::vector<size_t> order(dict.entries.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : dict.entries) keys.push_back(entry.first);
      KVIST_ASSIGN_OR_RETURN(order, SortedOrder(runtime_, keys, /*reverse=*/false));
    }
    KVIST_RETURN_IF_ERROR(Put("{"));
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries[order[i]];
      if (i > 0) KVIST_RETURN_IF_ERROR(Put(style_.item_separator));
      KVIST_RETURN_IF_ERROR(NewLine(level + 1));
      KVIST_RETURN_IF_ERROR(WriteKey(key));
      KVIST_RETURN_IF_ERROR(Put(style_.key_separator));
      KVIST_RETURN_IF_ERROR(Write(value, level + 1));
    }
    KVIST_RETURN_IF_ERROR(NewLine(level));
    return Put("}");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};

absl::StatusOr<Value> FromJsonAt(Runtime& runtime, const boost::json::value& json, uint32_t level) {
  if (level > runtime.limits().depth_max) {
    return absl::ResourceExhaustedError(Cat("the input is nested deeper than ", runtime.limits().depth_max, " levels"));
  }
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::None();
    case boost::json::kind::bool_:
      return Value::Bool(json.get_bool());
    case boost::json::kind::int64:
      return Value::Integer(json.get_int64());
    case boost::json::kind::uint64:
      return Value::Integer(json.get_uint64());
    case boost::json::kind::double_:
      return Value::Float(json.get_double());
    case boost::json::kind::string:
      return Value::String(std::string(json.get_string()));  // Outside the budget: the caller holds it already.
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const boost::json::value& item : json.get_array()) {
        KVIST_ASSIGN_OR_RETURN(Value value, FromJsonAt(runtime, item, level + 1));
        items.push_back(std::move(value));
      }
      return runtime.NewList(std::move(items));
    }
    case boost::json::kind::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& member : json.get_object()) {
        KVIST_ASSIGN_OR_RETURN(Value value, FromJsonAt(runtime, member.value(), level + 1));
        std::string key(member.key());
        const uint64_t hash = HashText(key);
        dict->Append(Value::String(std::move(key)), std::move(value), hash);
      }
      return runtime.Finish(std::move(dict));
    }
  }
  return Value::None();
}

}  // namespace

absl::StatusOr<std::string> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  KVIST_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

absl::StatusOr<Value> FromJson(Runtime& runtime, const boost::json::value& json) {
  return FromJsonAt(runtime, json, 1);
}

}  // namespace kvist::jinja
