#pragma once

/// @file
/// An open model: its file, its numbers and its graph. Immutable. Threads: any. Non-goals: packed weights (executor).

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/graph.h"
#include "model/spec.h"
#include "modelfile/gguf.h"

namespace kvist::model {

struct Model {
  std::unique_ptr<const GgufFile> file;
  ModelSpec spec;
  Graph graph;
};

/// Opens `path` and builds its graph. Errors: those of GgufFile::Open; Unimplemented for an unknown architecture (the
/// message lists the known ones); InvalidArgument naming the key or tensor that does not fit.
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& path);
absl::StatusOr<std::shared_ptr<const Model>> BuildModel(std::unique_ptr<const GgufFile> file);

}  // namespace kvist::model
