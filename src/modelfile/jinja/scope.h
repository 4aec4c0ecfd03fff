#pragma once

/// @file
/// Gives every variable of a template a slot, by jinja2's rules of scope: loops, macros, call, filter, set and with
/// blocks are scopes of their own, `if` is not; a name that a scope assigns to is the scope's own throughout, and
/// starts as the outer variable of that name or, when it is assigned under an `if`, as the render input. Threads: any.

#include "absl/status/status.h"
#include "modelfile/jinja/ast.h"

namespace kvist::jinja {

/// Fills in all slots and scopes of a freshly parsed template. Errors: InvalidArgument with the position, for
/// assignments to `loop` inside a loop and filters or tests that do not exist (outside of an `if`, where jinja2
/// lets them pass until they are reached).
absl::Status ResolveScopes(ast::Template& tree);

}  // namespace kvist::jinja
