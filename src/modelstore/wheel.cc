#include "modelstore/wheel.h"

#include <memory>
#include <vector>

#include <zip.h>

#include "base/status.h"

namespace kvist::modelstore {
namespace {

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

std::string ErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

}  // namespace

absl::Status ExtractMember(const std::string& archive, std::string_view member, uint64_t bytes_max, PartialFile& out,
                           const std::function<bool(uint64_t, uint64_t)>& progress) {
  const std::string name(member);
  int code = 0;
  const std::unique_ptr<zip_t, CloseArchive> zip(zip_open(archive.c_str(), ZIP_RDONLY, &code));
  if (zip == nullptr) return absl::InvalidArgumentError(Cat(archive, ": ", ErrorText(code)));
  zip_stat_t info;
  if (zip_stat(zip.get(), name.c_str(), 0, &info) != 0 || (info.valid & ZIP_STAT_SIZE) == 0) {
    return absl::NotFoundError(Cat(archive, ": has no ", name));
  }
  if (info.size > bytes_max) {
    return absl::ResourceExhaustedError(Cat(archive, ": ", name, " has ", info.size, " bytes, at most ", bytes_max));
  }
  const std::unique_ptr<zip_file_t, CloseMember> file(zip_fopen_index(zip.get(), info.index, 0));
  if (file == nullptr) return absl::DataLossError(Cat(archive, ": ", name, ": ", zip_strerror(zip.get())));
  std::vector<char> buffer(1u << 20);
  uint64_t done = 0;
  while (true) {
    const zip_int64_t bytes = zip_fread(file.get(), buffer.data(), buffer.size());
    if (bytes < 0) return absl::DataLossError(Cat(archive, ": ", name, ": ", zip_file_strerror(file.get())));
    if (bytes == 0) break;
    done += static_cast<uint64_t>(bytes);
    if (done > info.size) return absl::DataLossError(Cat(archive, ": ", name, ": longer than it says"));
    KVIST_RETURN_IF_ERROR(out.Append({buffer.data(), static_cast<size_t>(bytes)}));
    if (progress && !progress(done, info.size)) return absl::CancelledError("interrupted");
  }
  if (done != info.size) return absl::DataLossError(Cat(archive, ": ", name, ": ends after ", done, " bytes"));
  return absl::OkStatus();
}

}  // namespace kvist::modelstore
