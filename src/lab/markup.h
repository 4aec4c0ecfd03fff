#pragma once

/// @file
/// Text inside pictures and pages that kvist writes (SVG, HTML). Pure; any thread.

#include <string>
#include <string_view>

namespace kvist::lab {

/// `text` as content or quoted attribute: markup characters as entities, control characters left out, since XML has no
/// place for them.
std::string EscapeMarkup(std::string_view text);

}  // namespace kvist::lab
