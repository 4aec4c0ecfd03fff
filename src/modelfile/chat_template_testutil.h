#pragma once

/// @file
/// Templates with their variables, as tests and fuzz inputs have them.

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "modelfile/chat_template.h"

namespace kvist {

/// A template with its variables. `now` among them is the time for strftime_now.
struct TemplateCase {
  std::string name;
  std::string source;
  boost::json::object inputs;
};

/// Parses and renders.
absl::StatusOr<std::string> RenderCase(const TemplateCase& test, ChatTemplateLimits limits = {});

/// Runs one fuzz input under small limits: the template's source, and after a NUL the variables as JSON (without: a
/// small conversation). Aborts when a promise of chat_template.h does not hold.
void RunTemplateFuzzInput(std::string_view bytes);

}  // namespace kvist
