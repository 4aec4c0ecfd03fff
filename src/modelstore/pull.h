#pragma once

/// @file
/// Fetches models into the store, or anywhere: downloads, checks and puts each in its place at once. One thread a call;
/// several processes may pull the same model at the same time.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "modelstore/http_download.h"
#include "modelstore/known_models.h"

namespace kvist::modelstore {

struct PullOptions {
  std::string folder;              ///< The store.
  std::string output;              ///< Path of the file instead of its place in the store; empty = the store.
  std::string sha256;              ///< That the file must have; empty = what the table or the server says.
  std::string hub;                 ///< Base URL for hf: names.
  std::string hub_token;           ///< Sent to the hub only; empty = none.
  std::string python = "python3";  ///< With pip, for known models.
  bool pip_talks = false;          ///< pip tells on standard error how far it is.
  HttpOptions http;
  /// `stage` is what goes on ("fetching", "unpacking", "checking", "waiting"); total 0 = unknown. False interrupts.
  std::function<bool(std::string_view stage, uint64_t done_bytes, uint64_t total_bytes)> progress;
  std::function<void(std::string_view text)> notice;
};

struct Pulled {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;  ///< As checked or computed; empty when the file was there already and nothing had to be checked.
  bool fetched = false;  ///< False: it was there.
};

/// Makes sure that the model of this name is there. Errors: those of ParseSource and Download; DataLoss when the
/// file is not the expected one (it is removed), with both checksums; those of the file system, with the path.
absl::StatusOr<Pulled> Pull(std::string_view name, const PullOptions& options);

/// The same for a row that need not be in the table.
absl::StatusOr<Pulled> PullKnown(const KnownModel& model, const PullOptions& options);

/// The names of all parts when `name` ends like the first part of a split model (-00001-of-00003.gguf), else only
/// `name`.
std::vector<std::string> PartNames(std::string_view name);

}  // namespace kvist::modelstore
