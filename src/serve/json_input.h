#pragma once

/// @file
/// JSON from outside, most of it of clients: parsed within bounds, read with strict types. Errors name the field and
/// say what was found. Pure; any thread. Non-goals: what the fields mean (request.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"

namespace kvist::serve {

struct JsonLimits {
  std::string_view called = "the request body";  ///< In errors.
  size_t depth_max = 64;                         ///< Nested objects and arrays.
  size_t memory_bytes_max = 256u << 20;          ///< Of the parsed tree, which may be many times the text.
  bool names_repeat = false;  ///< Of equal names in an object the last counts; else they are refused.
};

/// One parsed text. The tree lives in `memory`; copy out what must outlive this.
class JsonDocument {
 public:
  /// Strict RFC 8259 and UTF-8. Errors: InvalidArgument, with the byte offset or the name where there is one.
  static absl::StatusOr<JsonDocument> Parse(std::string_view text, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) = delete;
  ~JsonDocument();

  const boost::json::value& root() const { return *root_; }

 private:
  class BoundedMemory;
  explicit JsonDocument(std::unique_ptr<BoundedMemory> memory);

  std::unique_ptr<BoundedMemory> memory_;
  std::unique_ptr<boost::json::value> root_;  ///< Gone before memory_.
};

/// "an array", "a string", "null": for messages.
std::string_view JsonKindName(const boost::json::value& value);

/// The fields of one object. A field that is absent or null is "not given". Cheap to copy; the object must outlive it.
class Fields {
 public:
  /// @param place  of the object, "" for the whole body; fields are named "place.key" in errors.
  Fields(const boost::json::object& object, std::string place) : object_(&object), place_(std::move(place)) {}

  /// nullptr when not given.
  const boost::json::value* Find(std::string_view key) const;
  /// The name errors use.
  std::string NameOf(std::string_view key) const;
  absl::Status Bad(std::string_view key, std::string_view message) const;

  /// Each leaves `out` as it is when the field is not given. Errors: InvalidArgument for another type or out of bounds.
  absl::Status Read(std::string_view key, bool& out) const;
  absl::Status Read(std::string_view key, std::string& out) const;
  absl::Status Read(std::string_view key, double min, double max, float& out) const;
  absl::Status Read(std::string_view key, double min, double max, double& out) const;
  /// An integer (1.0 is none).
  absl::Status Read(std::string_view key, int64_t min, int64_t max, int64_t& out) const;

  /// nullptr when not given.
  absl::StatusOr<const boost::json::array*> ReadArray(std::string_view key) const;
  absl::StatusOr<const boost::json::object*> ReadObject(std::string_view key) const;

  /// Errors: InvalidArgument for a member that is not one of `known`, naming it and them.
  absl::Status RefuseUnknown(std::span<const std::string_view> known) const;

 private:
  absl::Status WrongKind(std::string_view key, std::string_view wanted, const boost::json::value& found) const;

  const boost::json::object* object_;
  std::string place_;
};

/// The fields of `value`, which stands at `place`. Errors: InvalidArgument where it is no object.
absl::StatusOr<Fields> FieldsOf(const boost::json::value& value, std::string place);

/// Integer in [min, max]; `name` for errors, which tell what is too large from what is no integer.
absl::StatusOr<int64_t> IntegerOf(const boost::json::value& value, std::string_view name, int64_t min, int64_t max);

/// Finite number in [min, max].
absl::StatusOr<double> NumberOf(const boost::json::value& value, std::string_view name, double min, double max);

/// What a request may say about its own text in an error: shortened and without control characters.
std::string Shortened(std::string_view text);

}  // namespace kvist::serve
