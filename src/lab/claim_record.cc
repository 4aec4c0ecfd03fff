#include "lab/claim_record.h"

#include <algorithm>
#include <filesystem>

#include <boost/json.hpp>

#include "base/status.h"
#include "platform/partial_file.h"
#include "platform/text_file.h"
#include "serve/json_input.h"

namespace kvist::lab {

namespace json = boost::json;
using serve::Fields;

namespace {

constexpr size_t kRecordBytesMax = size_t{16} << 20;
constexpr ClaimState kStates[] = {ClaimState::kMet, ClaimState::kShort, ClaimState::kNotComparable,
                                  ClaimState::kNotRun};

bool IsOf(const ClaimResult& result, std::string_view id, std::string_view name) {
  return result.id == id && result.name == name;
}

const ClaimRecord* Find(const std::vector<ClaimRecord>& records, std::string_view id, std::string_view name) {
  const auto it = std::ranges::find_if(records, [&](const ClaimRecord& r) { return IsOf(r.result, id, name); });
  return it == records.end() ? nullptr : &*it;
}

absl::StatusOr<ClaimRecord> ReadRecord(std::string_view line) {
  KVIST_ASSIGN_OR_RETURN(const serve::JsonDocument document, serve::JsonDocument::Parse(line, {.called = "the line"}));
  KVIST_ASSIGN_OR_RETURN(const Fields fields, serve::FieldsOf(document.root(), ""));
  ClaimRecord record;
  ClaimResult& result = record.result;
  std::string state;
  for (const auto& [key, out] :
       {std::pair("id", &result.id), std::pair("name", &result.name), std::pair("claim", &result.text),
        std::pair("conditions", &result.conditions), std::pair("unit", &result.unit),
        std::pair("accept", &result.accept), std::pair("why", &result.why), std::pair("commit", &record.commit),
        std::pair("state", &state)}) {
    KVIST_RETURN_IF_ERROR(fields.Read(key, *out));
  }
  KVIST_RETURN_IF_ERROR(fields.Read("measured", -1e300, 1e300, result.measured));
  int64_t seed = 0;
  KVIST_RETURN_IF_ERROR(fields.Read("seed", 0, INT64_MAX, seed));
  record.seed = static_cast<uint64_t>(seed);
  const auto known = std::ranges::find(kStates, state, ClaimStateName);
  if (known == std::end(kStates)) return fields.Bad("state", "is not a state of claims");
  result.state = *known;
  return record;
}

}  // namespace

std::string ClaimJson(const ClaimRecord& record) {
  const ClaimResult& result = record.result;
  json::object out = {{"id", result.id},     {"name", result.name},     {"claim", result.text},
                      {"unit", result.unit}, {"accept", result.accept}, {"state", ClaimStateName(result.state)},
                      {"why", result.why},   {"seed", record.seed},     {"commit", record.commit}};
  out["measured"] = result.IsMeasured() ? json::value(result.measured) : json::value(nullptr);
  out["conditions"] = result.conditions;
  return json::serialize(out);
}

absl::StatusOr<std::vector<ClaimRecord>> ReadClaimRecords(const std::string& path) {
  std::vector<ClaimRecord> records;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return records;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kRecordBytesMax));
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    absl::StatusOr<ClaimRecord> record = ReadRecord(line);
    if (!record.ok()) return absl::InvalidArgumentError(Cat(path, ":", number, ": ", record.status().message()));
    records.push_back(*std::move(record));
  }
  return records;
}

std::vector<ClaimRecord> MergeClaimRecords(const std::vector<ClaimFile>& files, const std::vector<ClaimRecord>& before,
                                           const std::vector<ClaimRecord>& now) {
  std::vector<ClaimRecord> merged;
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      const ClaimRecord* last = Find(before, file.id, claim.name);
      const ClaimRecord* fresh = Find(now, file.id, claim.name);
      const bool keep = last != nullptr && (fresh == nullptr || fresh->result.state == ClaimState::kNotRun);
      if (const ClaimRecord* record = keep ? last : fresh; record != nullptr) merged.push_back(*record);
    }
  }
  return merged;
}

absl::Status WriteClaimRecords(const std::string& path, const std::vector<ClaimRecord>& records) {
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(path, [] { return false; }));
  KVIST_RETURN_IF_ERROR(file.Truncate(0));
  for (const ClaimRecord& record : records) KVIST_RETURN_IF_ERROR(file.Append(ClaimJson(record) + "\n"));
  return file.Publish();
}

std::vector<ClaimResult> BrokenClaims(const std::vector<ClaimRecord>& before, const std::vector<ClaimResult>& now) {
  std::vector<ClaimResult> broken;
  for (const ClaimResult& result : now) {
    const ClaimRecord* record = Find(before, result.id, result.name);
    if (record != nullptr && record->result.state == ClaimState::kMet && result.state == ClaimState::kShort) {
      broken.push_back(result);
    }
  }
  return broken;
}

}  // namespace kvist::lab
