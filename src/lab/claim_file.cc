#include "lab/claim_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <boost/json.hpp>

#include "base/status.h"
#include "lab/claim_expression.h"
#include "serve/json_input.h"
#include "serve/toml_input.h"

namespace kvist::lab {

namespace json = boost::json;
using serve::Fields;

namespace {

constexpr std::string_view kFileFields[] = {"title", "seed", "run", "claim"};
constexpr std::string_view kRunFields[] = {"name", "kvist", "program", "test", "filter", "seconds"};
constexpr std::string_view kClaimFields[] = {"name", "text",   "conditions", "runs",  "measured",
                                             "unit", "accept", "missing",    "supply"};
constexpr double kSecondsMax = 36'000;

absl::Status ReadWords(const Fields& fields, std::string_view key, std::vector<std::string>& out) {
  KVIST_ASSIGN_OR_RETURN(const json::array* words, fields.ReadArray(key));
  if (words == nullptr) return absl::OkStatus();
  for (const json::value& word : *words) {
    if (!word.is_string()) return fields.Bad(key, "must be a list of strings");
    out.emplace_back(word.get_string());
  }
  if (out.empty()) return fields.Bad(key, "is empty");
  return absl::OkStatus();
}

absl::Status ReadName(const Fields& fields, std::string& out) {
  KVIST_RETURN_IF_ERROR(fields.Read("name", out));
  const bool plain = std::ranges::all_of(
      out, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; });
  return out.empty() || !plain ? fields.Bad("name", "must be of a-z, 0-9, '-' and '.'") : absl::OkStatus();
}

absl::StatusOr<ClaimRun> ReadRun(const Fields& fields) {
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kRunFields));
  ClaimRun run;
  KVIST_RETURN_IF_ERROR(ReadName(fields, run.name));
  KVIST_RETURN_IF_ERROR(ReadWords(fields, "kvist", run.kvist));
  KVIST_RETURN_IF_ERROR(ReadWords(fields, "program", run.program));
  KVIST_RETURN_IF_ERROR(fields.Read("test", run.test));
  KVIST_RETURN_IF_ERROR(fields.Read("filter", run.filter));
  KVIST_RETURN_IF_ERROR(fields.Read("seconds", 0, kSecondsMax, run.seconds));
  const int ways = (run.kvist.empty() ? 0 : 1) + (run.program.empty() ? 0 : 1) + (run.test.empty() ? 0 : 1);
  if (ways != 1) return fields.Bad("name", "needs one of 'kvist', 'program' and 'test'");
  if (run.test.empty() != run.filter.empty()) return fields.Bad("filter", "goes with 'test'");
  return run;
}

absl::StatusOr<Claim> ReadClaim(const Fields& fields, const std::vector<ClaimRun>& runs) {
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kClaimFields));
  Claim claim;
  KVIST_RETURN_IF_ERROR(ReadName(fields, claim.name));
  KVIST_RETURN_IF_ERROR(ReadWords(fields, "runs", claim.runs));
  for (const auto& [key, out] :
       {std::pair("text", &claim.text), std::pair("conditions", &claim.conditions),
        std::pair("measured", &claim.measured), std::pair("unit", &claim.unit), std::pair("accept", &claim.accept),
        std::pair("missing", &claim.missing), std::pair("supply", &claim.supply)}) {
    KVIST_RETURN_IF_ERROR(fields.Read(key, *out));
  }
  if (claim.text.empty()) return fields.Bad("text", "is missing");
  if (claim.measured.empty() == claim.missing.empty()) {
    return fields.Bad("measured", "or 'missing' must be given, one of them");
  }
  if (claim.measured.empty()) {
    if (claim.supply.empty()) return fields.Bad("supply", "is missing: what would make it comparable?");
    return claim;
  }
  if (const absl::Status status = CheckClaimExpression(claim.measured); !status.ok()) {
    return fields.Bad("measured", std::string(status.message()));
  }
  if (const auto bound = ParseClaimBound(claim.accept); !bound.ok()) {
    return fields.Bad("accept", std::string(bound.status().message()));
  }
  for (const std::string& name : claim.runs) {
    if (std::ranges::find(runs, name, &ClaimRun::name) == runs.end()) {
      return fields.Bad("runs", Cat("names '", name, "', which no run is called"));
    }
  }
  if (claim.runs.empty()) {
    for (const ClaimRun& run : runs) claim.runs.push_back(run.name);
  }
  if (claim.runs.empty()) return fields.Bad("runs", "is empty, and the file has no run");
  return claim;
}

/// Reads each table of an array of tables; names may not repeat.
template <class Item, class Read>
absl::Status ReadTables(const Fields& fields, std::string_view key, const Read& read, std::vector<Item>& out) {
  KVIST_ASSIGN_OR_RETURN(const json::array* tables, fields.ReadArray(key));
  if (tables == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < tables->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields table, serve::FieldsOf((*tables)[i], Cat(key, "[", i, "]")));
    KVIST_ASSIGN_OR_RETURN(Item item, read(table));
    if (std::ranges::find(out, item.name, &Item::name) != out.end()) return table.Bad("name", "is used twice");
    out.push_back(std::move(item));
  }
  return absl::OkStatus();
}

absl::Status ReadInto(const json::object& root, ClaimFile& file) {
  const Fields fields(root, "");
  KVIST_RETURN_IF_ERROR(fields.RefuseUnknown(kFileFields));
  KVIST_RETURN_IF_ERROR(fields.Read("title", file.title));
  if (file.title.empty()) return fields.Bad("title", "is missing");
  int64_t seed = 1;
  KVIST_RETURN_IF_ERROR(fields.Read("seed", 0, INT64_MAX, seed));
  file.seed = static_cast<uint64_t>(seed);
  KVIST_RETURN_IF_ERROR(ReadTables(fields, "run", ReadRun, file.runs));
  const auto read_claim = [&](const Fields& table) { return ReadClaim(table, file.runs); };
  KVIST_RETURN_IF_ERROR(ReadTables(fields, "claim", read_claim, file.claims));
  return file.claims.empty() ? fields.Bad("claim", "is missing") : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClaimBound> ParseClaimBound(std::string_view text) {
  ClaimBound bound;
  const bool least = text.starts_with(">="), most = text.starts_with("<=");
  std::string_view number = least || most ? text.substr(2) : text;
  while (number.starts_with(' ')) number.remove_prefix(1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bound.value);
  if ((!least && !most) || error != std::errc() || end != number.data() + number.size()) {
    return absl::InvalidArgumentError("must be '>= NUMBER' or '<= NUMBER'");
  }
  bound.at_least = least;
  return bound;
}

absl::StatusOr<ClaimFile> ReadClaimFile(const std::string& folder) {
  const std::filesystem::path path(folder);
  ClaimFile file{.id = path.filename().string(), .folder = folder};
  const std::string name = (path / "claim.toml").string();
  KVIST_ASSIGN_OR_RETURN(const json::object root, serve::ReadTomlFile(name));
  if (const absl::Status status = ReadInto(root, file); !status.ok()) {
    return absl::Status(status.code(), Cat(name, ": ", status.message()));
  }
  return file;
}

absl::StatusOr<ClaimFiles> ReadClaims(const std::string& root) {
  std::error_code error;
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    if (std::filesystem::exists(entry.path() / "claim.toml", error)) folders.push_back(entry.path().string());
  }
  if (folders.empty()) return absl::NotFoundError(Cat(root, ": no folder with a claim.toml"));
  std::ranges::sort(folders);
  ClaimFiles claims;
  for (const std::string& folder : folders) {
    if (absl::StatusOr<ClaimFile> file = ReadClaimFile(folder); file.ok()) {
      claims.files.push_back(*std::move(file));
    } else {
      claims.bad.emplace_back(std::filesystem::path(folder).filename().string(), file.status());
    }
  }
  return claims;
}

}  // namespace kvist::lab
