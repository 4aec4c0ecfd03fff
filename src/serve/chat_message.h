#pragma once

/// @file
/// Messages and tools as chat templates take them, built by the parsers of protocols whose own shapes differ. Pure; any
/// thread. Non-goals: what OpenAI's chat API sends, which already has this shape (request.h).

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "serve/json_input.h"

namespace kvist::serve {

boost::json::object TextMessage(std::string_view role, std::string_view text);

/// Result of a tool, as a message. @param call_id  of the call that it answers; may be "" as may the name
boost::json::object ToolMessage(std::string_view call_id, std::string_view name, std::string_view text);

/// Adds a call to a message of the assistant. `arguments`: an object.
void AddCall(boost::json::object& message, std::string_view id, std::string_view name, boost::json::value arguments);

/// {"type": "function", "function": {...}}. `parameters`: a JSON schema, or null for none.
boost::json::object FunctionTool(std::string_view name, std::string_view description,
                                 const boost::json::value* parameters);

/// A copy with memory of its own: what is parsed dies with its document.
boost::json::value Copied(const boost::json::value& value);

/// The object that a text of JSON is. Errors: InvalidArgument, about the field `key`.
absl::StatusOr<boost::json::value> ParsedArguments(const Fields& fields, std::string_view key);

}  // namespace kvist::serve
