#pragma once

/// @file
/// Macros as values: code plus the variables around it. Threads: that of the rendering.

#include <memory>
#include <vector>

#include "modelfile/jinja/ast.h"
#include "modelfile/jinja/value.h"

namespace kvist::jinja {

/// The variables of one running function; kept by the macros defined in it. No cycle: macros belong to the rendering.
struct Activation {
  std::vector<Value> slots;  ///< [function's slots_count]; undefined without a reason = not assigned.
  std::shared_ptr<Activation> outer;
};

struct Macro {
  const ast::Function* function;
  std::shared_ptr<Activation> closure;
};

}  // namespace kvist::jinja
