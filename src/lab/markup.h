#pragma once

/// @file
/// Text inside pictures and pages that kvist writes (SVG, HTML). Pure; any thread.

#include <string>
#include <string_view>

namespace kvist::lab {

/// `text` as content or quoted attribute: markup characters as entities, control characters left out, since XML has no
/// place for them.
std::string EscapeMarkup(std::string_view text);

/// The beginning of a page, up to <body>: title, and a style for light and dark (variables --ink, --dim, --line and
/// --ground) before `style`.
std::string HtmlHead(std::string_view title, std::string_view style);

}  // namespace kvist::lab
