#pragma once

/// @file
/// Short forms for passing absl::Status on. Use inside functions that return Status or StatusOr.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace kvist {

/// The same code with `place` before the message: errors name where they happened, outermost place first.
inline absl::Status Annotate(const absl::Status& status, absl::string_view place) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

}  // namespace kvist

/// Returns from the enclosing function when `expr` is an error.
#define KVIST_RETURN_IF_ERROR(expr)                                   \
  do {                                                                \
    if (absl::Status kvist_status = (expr); !kvist_status.ok()) {     \
      return kvist_status;                                            \
    }                                                                 \
  } while (false)

#define KVIST_CONCAT_INNER(a, b) a##b
#define KVIST_CONCAT(a, b) KVIST_CONCAT_INNER(a, b)

/// `KVIST_ASSIGN_OR_RETURN(auto x, MakeX());`
#define KVIST_ASSIGN_OR_RETURN(lhs, expr) KVIST_ASSIGN_OR_RETURN_IMPL(KVIST_CONCAT(kvist_or_, __LINE__), lhs, expr)
#define KVIST_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)
