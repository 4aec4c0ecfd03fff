#pragma once

/// @file
/// Cases for chat templates: as files beside jinja2's results, as the output of jinja2 itself, and as fuzz inputs.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// What Python's jinja2 gives for each case, by tools/render_template_oracle.py: the text, or nullopt where it raises.
/// Empty when python3 (or $KVIST_PYTHON) cannot import jinja2. `scratch` is a file name to use and leave behind.
std::vector<std::optional<std::string>> RenderWithJinja2(const std::vector<TemplateCase>& cases,
                                                         const std::string& scratch);
bool HaveJinja2();

/// Runs one fuzz input under small limits: the template's source, and after a NUL the variables as JSON (without: a
/// small conversation). Aborts when a promise of chat_template.h does not hold.
void RunTemplateFuzzInput(std::string_view bytes);

}  // namespace kvist
