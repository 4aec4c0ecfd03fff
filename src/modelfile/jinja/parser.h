#pragma once

/// @file
/// Recursive-descent parser of jinja2's grammar as chat templates use it, with the loop controls and the `generation`
/// tag that Hugging Face adds. Threads: any. Non-goals: include, import, extends, block, autoescape, recursive loops:
/// they are errors that name the tag.

#include <string_view>

#include "absl/status/statusor.h"
#include "modelfile/jinja/ast.h"

namespace kvist::jinja {

/// Parses and resolves the variables of a whole template. `depth_max` bounds nesting.
/// Errors: InvalidArgument "line L, column C: ...".
absl::StatusOr<ast::Template> Parse(std::string_view source, uint32_t depth_max);

}  // namespace kvist::jinja
