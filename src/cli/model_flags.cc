#include "cli/model_flags.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "platform/text_file.h"

namespace kvist::cli {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;  // What Tokenizer::Encode takes.
constexpr int kExitInterrupted = 130;              // As shells report SIGINT.

void Advise(const runtime::Runtime& runtime, const ModelFlags& flags) {
  if (runtime.cpu == nullptr) return;  // Nobody takes an emulated device's answers for a fault.
  const auto say = [&](std::string_view kind, const std::string& text) {
    flags.advise ? flags.advise(kind, text) : fmt::print(stderr, "{}: {}\n", kind, text);
  };
  // That of a device is another one, which only takes its time.
  if (IsShippedModel(*runtime.model->file) && runtime.device == nullptr) {
    say("note",
        fmt::format("{} is the small model that comes with kvist. It tells little stories and answers questions "
                    "about the text it is given; it knows nothing else. For a chat model: kvist pull {}",
                    runtime.model_id, kDefaultModel));
  }
  const exec::Weights& weights = runtime.cpu->weights();
  if (weights.report().source == exec::WeightSource::kModel && !weights.report().cache_path.empty()) {
    say("note", fmt::format("{} of packed weights go to {} in the background, for the next start (--packed-cache off: "
                            "never)",
                            FormatByteSize(weights.packed_bytes()), weights.report().cache_path));
  }
  const uint32_t trained = runtime.model->spec.context_length;
  if (flags.runtime.context_tokens_max > trained) {
    say("warning", fmt::format("--context {} is beyond the {} tokens that this model was trained for; expect worse "
                               "answers to longer texts",
                               flags.runtime.context_tokens_max, trained));
  }
}

void ReportCache(const std::string& /*path*/, const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return;
  fmt::print(stderr, "note: packed weights are not kept: {}\n", std::string(status.message()));
}

}  // namespace

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  command.add_option("-t,--threads", flags.runtime.threads, "Threads that compute; 0 = one per core")
      ->transform(WholeNumber(0, 1024));
  command.add_option("--isa", flags.runtime.isa, "Instruction set: reference, avx2, avx512 or amx; else the fastest")
      ->check(CLI::IsMember({"reference", "avx2", "avx512", "amx"}));
  command.add_option("--kv-memory", flags.kv_memory, "Memory for keys and values, e.g. 4GiB; else by what is free")
      ->check(ByteSize(1));
  command.add_option("--kv-type", flags.kv_type, "How keys and values are kept: f16, or q8 in half the memory")
      ->check(CLI::IsMember({std::string(KvTypeName(KvType::kF16)), std::string(KvTypeName(KvType::kQ8))}))
      ->capture_default_str();
  command.add_option("--packed-cache", flags.packed_cache,
                     Cat("Folder that keeps weights packed for the next start, or off (default ",
                         runtime::DefaultPackedCache(), ", up to ", FormatByteSize(exec::kPackedFolderBytesMax), ")"));
}

absl::StatusOr<runtime::RuntimeOptions> ResolveOptions(const ModelFlags& flags) {
  runtime::RuntimeOptions options = flags.runtime;
  if (!flags.kv_memory.empty()) {
    KVIST_ASSIGN_OR_RETURN(options.kv_memory_bytes, ParseByteSize(flags.kv_memory));
  }
  options.kv_type = FindKvType(flags.kv_type).value();
  options.packed_cache = flags.packed_cache.empty() ? runtime::DefaultPackedCache() : flags.packed_cache;
  if (flags.packed_cache == "off") options.packed_cache.clear();
  if (!options.cache_notice) options.cache_notice = ReportCache;
  KVIST_ASSIGN_OR_RETURN(options.model_path, ResolveModel(flags.model));
  if (!options.progress) options.progress = LoadingProgress();
  return options;
}

absl::StatusOr<std::unique_ptr<runtime::Runtime>> StartRuntime(const ModelFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const runtime::RuntimeOptions options, ResolveOptions(flags));
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Runtime> runtime, runtime::Start(options));
  Advise(*runtime, flags);
  return runtime;
}

std::string_view DescribeSource(exec::WeightSource source) {
  switch (source) {
    case exec::WeightSource::kModel:
      return "packed from the model file";
    case exec::WeightSource::kCache:
      return "from the packed cache";
    case exec::WeightSource::kMapped:
      return "used where they lie in the packed cache";
  }
  return "";
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  return ReadTextFile(path == "-" ? "/dev/stdin" : path, kTextBytesMax);
}

absl::Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::DataLossError("standard output cannot be written");
}

int Report(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "kvist %s: %s\n", command, std::string(status.message()).c_str());
  return absl::IsCancelled(status) ? kExitInterrupted : 1;
}

}  // namespace kvist::cli
