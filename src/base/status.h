#pragma once

/// @file
/// Short forms for passing absl::Status on. Use inside functions that return Status or StatusOr.

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace kvist {

/// std::string_view as Abseil's: Debian builds Abseil with a string_view of its own, and the two do not convert.
inline absl::string_view ToAbsl(std::string_view text) {
  return {text.data(), text.size()};
}

/// absl::StrCat that also takes std::string_view.
template <class... Args>
std::string Cat(const Args&... args) {
  auto pass = []<class T>(const T& arg) -> decltype(auto) {
    if constexpr (std::is_same_v<T, std::string_view>) {
      return ToAbsl(arg);
    } else {
      return (arg);
    }
  };
  return absl::StrCat(pass(args)...);
}

/// The same code with `place` before the message: errors name where they happened, outermost place first.
inline absl::Status Annotate(const absl::Status& status, absl::string_view place) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

}  // namespace kvist

/// Returns from the enclosing function when `expr` is an error.
#define KVIST_RETURN_IF_ERROR(expr)                               \
  do {                                                            \
    if (absl::Status kvist_status = (expr); !kvist_status.ok()) { \
      return kvist_status;                                        \
    }                                                             \
  } while (false)

#define KVIST_CONCAT_INNER(a, b) a##b
#define KVIST_CONCAT(a, b) KVIST_CONCAT_INNER(a, b)

/// `KVIST_ASSIGN_OR_RETURN(auto x, MakeX());`
#define KVIST_ASSIGN_OR_RETURN(lhs, expr) KVIST_ASSIGN_OR_RETURN_IMPL(KVIST_CONCAT(kvist_or_, __LINE__), lhs, expr)
#define KVIST_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)
