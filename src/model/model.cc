#include "model/model.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/arch/arch.h"

namespace kvist::model {

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<const GgufFile> file, GgufFile::Open(path));
  return BuildModel(std::move(file));
}

absl::StatusOr<std::shared_ptr<const Model>> BuildModel(std::unique_ptr<const GgufFile> file) {
  KVIST_ASSIGN_OR_RETURN(std::string_view name, file->GetString("general.architecture"));
  auto row = std::ranges::find(Architectures(), name, &Architecture::name);
  if (row == Architectures().end()) {
    return absl::UnimplementedError(Cat(
        file->label(), ": architecture \"", name, "\" is not supported; supported are ",
        absl::StrJoin(Architectures(), ", ", [](std::string* out, const Architecture& a) { out->append(a.name); })));
  }
  auto model = std::make_shared<Model>();
  KVIST_ASSIGN_OR_RETURN(model->spec, ReadSpec(*file));
  KVIST_ASSIGN_OR_RETURN(model->graph, row->build(*file, model->spec));
  model->file = std::move(file);
  return model;
}

}  // namespace kvist::model
