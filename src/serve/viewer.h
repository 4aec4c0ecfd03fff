#pragma once

/// @file
/// Whose requests, capsules and figures somebody may see. Plain data; any thread.

#include "base/units.h"

namespace kvist::serve {

struct Viewer {
  TenantId tenant{};
  bool all = false;  ///< An admin's key, or a server that needs none.

  bool Sees(TenantId owner) const { return all || owner == tenant; }
};

}  // namespace kvist::serve
