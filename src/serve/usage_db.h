#pragma once

/// @file
/// The database of what requests used: one row per request of the engine (a choice of an answer), and of what tenants'
/// blocks took of the tiers below memory: one row per tier, tenant and hour. In SQLite. Written in batches by one
/// process, read by any number beside it (write-ahead log). Threads: one per object. Non-goals: when what is written
/// (metering.h), prices (prices.h). Schema: docs/serving.md, "Usage and cost".

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "serve/prices.h"

namespace kvist::serve {

struct UsageRow {
  int64_t run = 0;      ///< Of the server's process; with `id` it names the row.
  uint64_t id = 0;      ///< Of the request in the engine.
  uint32_t choice = 0;  ///< Prompt and cached tokens of an answer are those of its choice 0.
  std::string request;  ///< Id of the answer, "chatcmpl-...".
  std::string tenant;   ///< "" = nobody's.
  std::string model;
  int64_t opened_s = 0, closed_s = 0;  ///< Wall clock. Of a crash, the moment it was found.
  std::string outcome;  ///< "stop", "length", "abort", "error"; "crash": the process died before its end.
  uint32_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, recomputed_tokens = 0, generated_tokens = 0;
  uint32_t preemptions = 0;
  double kv_hot_byte_s = 0;
  int64_t step_share_ns = 0;
  int64_t queue_ns = -1, first_token_ns = -1, total_ns = -1;  ///< -1 = did not happen.
};

/// What a tenant's blocks took of a tier below memory in one hour of a process.
struct StorageRow {
  int64_t run = 0;
  int64_t hour_s = 0;  ///< Its first second, wall clock.
  std::string tier;    ///< kv::TierFigures::name
  std::string tenant;  ///< "" = nobody's.
  std::string model;   ///< That is served.
  double byte_s = 0;
};

enum class UsageGroup : uint8_t { kTenant, kDay, kModel, kRequest };

struct UsageQuery {
  int64_t from_s = 0, to_s = INT64_MAX;  ///< Opened, or an hour that begins, at or after, and before.
  std::optional<std::string> tenant;     ///< Only this one's.
  std::vector<UsageGroup> group_by;      ///< None = one row of all.
  uint32_t rows_max = 100'000;
};

/// Sums over rows that are alike in what was grouped by; other names are empty, as is the request of storage.
struct UsageSum {
  std::string tenant, day, model, request;  ///< Days are "2026-11-30", UTC.
  UsageTotals totals;
  uint64_t recomputed_tokens = 0, preemptions = 0;
  uint64_t cancelled = 0, failed = 0;  ///< Requests; failed ones include those of a crash.
  double queue_s = 0;
};

class UsageDb {
 public:
  /// For writing; makes it where there is none, readable by its owner only. Errors: those of SQLite and of the file
  /// system, with the path.
  static absl::StatusOr<std::unique_ptr<UsageDb>> Open(const std::string& path);
  /// For reading. Errors: NotFound, too.
  static absl::StatusOr<std::unique_ptr<UsageDb>> OpenToRead(const std::string& path);
  ~UsageDb();

  /// Writes all of the rows or none. Requests that are there already stay as they are, storage is replaced. Committed
  /// rows outlive the process.
  absl::Status Insert(std::span<const UsageRow> rows, std::span<const StorageRow> storage = {});

  /// Names of all that there is a row of, in order; nobody's rows left out.
  absl::StatusOr<std::vector<std::string>> Tenants();

  /// In order of the groups.
  absl::StatusOr<std::vector<UsageSum>> Sum(const UsageQuery& query);

 private:
  struct Impl;
  explicit UsageDb(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvist::serve
