#include "serve/json_input.h"

#include <algorithm>

#include <cmath>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/api_error.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr size_t kUtf8BytesMax = 4;  // Of one character.

/// Past the string that begins at `at`. REQUIRES: valid JSON.
size_t StringEnd(std::string_view text, size_t at) {
  while (true) {
    const size_t end = text.find('"', at + 1);
    size_t slashes = 0;
    while (text[end - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return end + 1;
    at = end;
  }
}

/// Names with their values in a text. REQUIRES: valid JSON.
size_t MembersIn(std::string_view text) {
  size_t members = 0;
  for (size_t at = 0; at < text.size();) {
    members += text[at] == ':' ? 1 : 0;
    at = text[at] == '"' ? StringEnd(text, at) : at + 1;
  }
  return members;
}

/// The same that a tree has kept.
size_t MembersOf(const json::value& value) {
  size_t members = 0;
  if (const json::array* list = value.if_array()) {
    for (const json::value& one : *list) {
      if (one.is_structured()) members += MembersOf(one);
    }
  } else if (const json::object* object = value.if_object()) {
    members = object->size();
    for (const auto& member : *object) {
      if (member.value().is_structured()) members += MembersOf(member.value());
    }
  }
  return members;
}

/// The first name that its object had already. REQUIRES: valid JSON that has one.
std::string RepeatedName(std::string_view text) {
  std::vector<std::set<std::string>> names;  // Of the objects and arrays that are open.
  for (size_t at = 0; (at = text.find_first_of("\"{}[]", at)) != text.npos;) {
    if (text[at] == '{' || text[at] == '[') names.emplace_back();
    if (text[at] == '}' || text[at] == ']') names.pop_back();
    if (text[at] != '"') {
      ++at;
      continue;
    }
    const size_t end = StringEnd(text, at);
    const size_t next = text.find_first_not_of(" \t\r\n", end);
    if (next != text.npos && text[next] == ':') {
      std::string name(json::parse(text.substr(at, end - at)).get_string());  // One name has many spellings.
      if (!names.back().insert(name).second) return name;
    }
    at = end;
  }
  KVIST_CHECK(false);
}

}  // namespace

/// Hands out at most so many bytes; then parsing fails instead of the machine.
class JsonDocument::BoundedMemory final : public json::memory_resource {
 public:
  explicit BoundedMemory(size_t bytes_max) : left_(bytes_max) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    // Alignments differ between allocating and freeing a key (Boost 1.81), but never go beyond the usual one.
    KVIST_CHECK(alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (bytes > left_) throw std::bad_alloc();  // Boost.JSON's interface; caught in Parse.
    void* memory = ::operator new(bytes);
    left_ -= bytes;
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    ::operator delete(memory);
    left_ += bytes;
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override { return this == &other; }

  size_t left_;
};

JsonDocument::JsonDocument(std::unique_ptr<BoundedMemory> memory) : memory_(std::move(memory)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

absl::StatusOr<JsonDocument> JsonDocument::Parse(std::string_view text, const JsonLimits& limits) {
  JsonDocument document(std::make_unique<BoundedMemory>(limits.memory_bytes_max));
  json::storage_ptr storage(document.memory_.get());
  try {
    json::parse_options options;
    options.max_depth = limits.depth_max;
    json::stream_parser parser(storage, options);  // Its stack of unfinished arrays counts too.
    parser.reset(storage);
    json::error_code error;
    const size_t read = parser.write_some(text.data(), text.size(), error);
    if (!error && read == text.size()) parser.finish(error);
    if (error == json::error::too_deep) {
      return absl::InvalidArgumentError(Cat(limits.called, " is nested more than ", limits.depth_max, " levels deep"));
    }
    if (error == json::error::incomplete) {
      return absl::InvalidArgumentError(
          Cat(limits.called, text.empty() ? " is empty; a JSON object is wanted" : " ends inside its JSON"));
    }
    // What stops the parser at such a byte is not the JSON.
    if (const size_t valid = ValidUtf8Prefix(text); error && valid < text.size() && valid <= read + kUtf8BytesMax) {
      return absl::InvalidArgumentError(Cat(limits.called, " is not valid UTF-8 at byte ", valid));
    }
    if (error || read != text.size()) {
      return absl::InvalidArgumentError(Cat(limits.called, " is not valid JSON at byte ", read,
                                            error ? ": " + error.message() : ": text after the end"));
    }
    document.root_ = std::make_unique<json::value>(parser.release());
    if (!limits.names_repeat && MembersOf(*document.root_) != MembersIn(text)) {
      return absl::InvalidArgumentError(
          Cat(limits.called, " has the field '", Shortened(RepeatedName(text)), "' twice in one object"));
    }
  } catch (const std::bad_alloc&) {
    return absl::InvalidArgumentError(Cat(limits.called, " has too many parts"));
  }
  return document;
}

std::string_view JsonKindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "something else";
}

const json::value* Fields::Find(std::string_view key) const {
  const json::value* value = object_->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Fields::NameOf(std::string_view key) const {
  return place_.empty() ? std::string(key) : Cat(place_, ".", key);
}

absl::Status Fields::Bad(std::string_view key, std::string_view message) const {
  const std::string name = NameOf(key);
  return BadParam(name, Cat("'", name, "' ", message));
}

absl::Status Fields::WrongKind(std::string_view key, std::string_view wanted, const json::value& found) const {
  return Bad(key, Cat("must be ", wanted, ", not ", JsonKindName(found)));
}

absl::Status Fields::Read(std::string_view key, bool& out) const {
  const json::value* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_bool()) return WrongKind(key, "true or false", *value);
  out = value->get_bool();
  return absl::OkStatus();
}

absl::Status Fields::Read(std::string_view key, std::string& out) const {
  const json::value* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return WrongKind(key, "a string", *value);
  out.assign(value->get_string().begin(), value->get_string().end());
  return absl::OkStatus();
}

absl::Status Fields::Read(std::string_view key, double min, double max, double& out) const {
  const json::value* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(out, NumberOf(*value, NameOf(key), min, max));
  return absl::OkStatus();
}

absl::Status Fields::Read(std::string_view key, double min, double max, float& out) const {
  double number = static_cast<double>(out);
  KVIST_RETURN_IF_ERROR(Read(key, min, max, number));
  out = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status Fields::Read(std::string_view key, int64_t min, int64_t max, int64_t& out) const {
  const json::value* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(out, IntegerOf(*value, NameOf(key), min, max));
  return absl::OkStatus();
}

absl::Status Fields::RefuseUnknown(std::span<const std::string_view> known) const {
  for (const auto& member : *object_) {
    if (std::ranges::find(known, std::string_view(member.key())) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += Cat(names.empty() ? "'" : ", '", name, "'");
    return Bad(Shortened(member.key()), Cat("is not known; known are ", names));
  }
  return absl::OkStatus();
}

absl::StatusOr<const json::array*> Fields::ReadArray(std::string_view key) const {
  const json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return WrongKind(key, "an array", *value);
  return &value->get_array();
}

absl::StatusOr<const json::object*> Fields::ReadObject(std::string_view key) const {
  const json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return WrongKind(key, "an object", *value);
  return &value->get_object();
}

absl::StatusOr<Fields> FieldsOf(const json::value& value, std::string place) {
  if (!value.is_object()) return BadParam(place, Cat("'", place, "' must be an object, not ", JsonKindName(value)));
  return Fields(value.get_object(), std::move(place));
}

absl::StatusOr<int64_t> IntegerOf(const json::value& value, std::string_view name, int64_t min, int64_t max) {
  // What is a uint64 here lies beyond int64, and so does an integer that was read as a double.
  const bool huge = value.is_uint64() || (value.is_double() && std::abs(value.get_double()) >= 0x1p63);
  if (!value.is_int64() && !huge) {
    return BadParam(name, Cat("'", name, "' must be an integer, not ",
                              value.is_double() ? "a number with a fraction or an exponent" : JsonKindName(value)));
  }
  if (value.is_int64() && value.get_int64() >= min && value.get_int64() <= max) return value.get_int64();
  const bool below = value.is_int64() ? value.get_int64() < min : value.to_number<double>() < 0;
  return BadParam(
      name, Cat("'", name, "' is too ", below ? "small" : "large", ": it must be an integer from ", min, " to ", max));
}

absl::StatusOr<double> NumberOf(const json::value& value, std::string_view name, double min, double max) {
  if (!value.is_number()) return BadParam(name, Cat("'", name, "' must be a number, not ", JsonKindName(value)));
  const double number = value.to_number<double>();
  if (number >= min && number <= max) return number;  // Excludes NaN and infinity too.
  return BadParam(name, fmt::format("'{}' must be a number from {} to {}", name, min, max));
}

std::string Shortened(std::string_view text) {
  constexpr size_t kBytesShown = 80;
  std::string out;
  for (const char c : text.substr(0, kBytesShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  if (text.size() <= kBytesShown) return out;
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
  if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();  // May have lost its end.
  return out + "...";
}

}  // namespace kvist::serve
