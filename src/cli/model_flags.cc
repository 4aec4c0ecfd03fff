#include "cli/model_flags.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/model_path.h"
#include "cli/progress.h"

namespace kvist::cli {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;  // What Tokenizer::Encode takes.
constexpr int kExitInterrupted = 130;              // As shells report SIGINT.

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

}  // namespace

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  command.add_option("--threads", flags.runtime.threads, "Threads that compute; 0 = one per core")
      ->check(CLI::Range(0, 1024));
  command.add_option("--isa", flags.runtime.isa, "Instruction set: reference, avx2 or avx512; else the fastest");
  command.add_option("--kv-memory", flags.kv_memory, "Memory for keys and values, e.g. 4GiB; else by what is free");
}

absl::StatusOr<std::unique_ptr<runtime::Runtime>> StartRuntime(const ModelFlags& flags) {
  runtime::RuntimeOptions options = flags.runtime;
  if (!flags.kv_memory.empty()) {
    KVIST_ASSIGN_OR_RETURN(options.kv_memory_bytes, ParseByteSize(flags.kv_memory));
    if (options.kv_memory_bytes == 0) return absl::InvalidArgumentError("--kv-memory must be more than 0");
  }
  KVIST_ASSIGN_OR_RETURN(options.model_path, ResolveModel(flags.model));
  options.progress = LoadingProgress();
  return runtime::Start(options);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, bytes);
    if (text.size() >= kTextBytesMax) return absl::InvalidArgumentError(Cat(path, ": more than 1 GiB of text"));
  }
  if (std::ferror(file.get()) != 0) return absl::ErrnoToStatus(errno, path);
  return text;
}

int Report(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "kvist %s: %s\n", command, std::string(status.message()).c_str());
  return absl::IsCancelled(status) ? kExitInterrupted : 1;
}

}  // namespace kvist::cli
