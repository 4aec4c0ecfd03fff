#pragma once

/// @file
/// JSON for people too: numbers as they are usually written (177.46, not Boost.JSON's 1.7746E2). Pure; any thread.

#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace kvist::serve {

/// Compact text of `value`; numbers that are not finite become null. REQUIRES: strings are UTF-8.
std::string JsonText(const boost::json::value& value);

/// `text` (UTF-8) as a JSON string with its quotes.
void AppendJsonString(std::string_view text, std::string& out);

}  // namespace kvist::serve
