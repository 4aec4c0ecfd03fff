#include "serve/usage_db.h"

#include <filesystem>
#include <utility>

#include <sqlite3.h>

#include "base/status.h"
#include "kv/cold_blocks.h"
#include "platform/private_file.h"

namespace kvist::serve {
namespace {

constexpr int kBusyMs = 5000;
/// What errors say was not possible.
constexpr char kSettingUp[] = "it cannot be written to", kWritingRows[] = "rows cannot be written";
constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS requests (
  run INTEGER NOT NULL, id INTEGER NOT NULL, choice INTEGER NOT NULL, request TEXT NOT NULL, tenant TEXT NOT NULL,
  model TEXT NOT NULL, opened_s INTEGER NOT NULL, closed_s INTEGER NOT NULL, outcome TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, computed_tokens INTEGER NOT NULL,
  recomputed_tokens INTEGER NOT NULL, generated_tokens INTEGER NOT NULL, preemptions INTEGER NOT NULL,
  kv_hot_byte_s REAL NOT NULL, step_share_ns INTEGER NOT NULL, queue_ns INTEGER, first_token_ns INTEGER,
  total_ns INTEGER, PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_tenant ON requests (tenant, opened_s);
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (opened_s);
CREATE TABLE IF NOT EXISTS storage (
  run INTEGER NOT NULL, hour_s INTEGER NOT NULL, tier TEXT NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL,
  byte_s REAL NOT NULL, PRIMARY KEY (run, hour_s, tier, tenant)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS storage_by_tenant ON storage (tenant, hour_s);
CREATE INDEX IF NOT EXISTS storage_by_time ON storage (hour_s);
)";
constexpr char kInsert[] = "INSERT OR IGNORE INTO requests VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr char kInsertStorage[] = "INSERT OR REPLACE INTO storage VALUES (?,?,?,?,?,?)";
/// What is summed, of either table. Storage is of no request.
constexpr char kRequestColumns[] =
    "tenant, model, request, opened_s AS at_s, choice, outcome, prompt_tokens, cached_tokens, computed_tokens, "
    "generated_tokens, recomputed_tokens, preemptions, kv_hot_byte_s, 0 AS kv_cold_byte_s, 0 AS kv_drive_byte_s, "
    "step_share_ns, queue_ns FROM requests WHERE opened_s >= ?1 AND opened_s < ?2";
constexpr char kStorageColumns[] =
    "tenant, model, '', hour_s, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, IIF(tier = ?3, byte_s, 0), IIF(tier = ?4, byte_s, 0), "
    "0, NULL FROM storage WHERE hour_s >= ?1 AND hour_s < ?2";

struct CloseDb {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

struct GroupColumn {
  UsageGroup group;
  const char* expression;
  std::string UsageSum::*field;
};
constexpr GroupColumn kGroups[] = {
    {UsageGroup::kTenant, "tenant", &UsageSum::tenant},
    {UsageGroup::kDay, "date(at_s, 'unixepoch')", &UsageSum::day},
    {UsageGroup::kModel, "model", &UsageSum::model},
    {UsageGroup::kRequest, "request", &UsageSum::request},
};

/// Values of a row, in order of its columns.
class Binder {
 public:
  explicit Binder(sqlite3_stmt* statement) : statement_(statement) {}
  void Whole(auto value) { sqlite3_bind_int64(statement_, ++column_, static_cast<int64_t>(value)); }
  void Real(double value) { sqlite3_bind_double(statement_, ++column_, value); }
  void Text(std::string_view value) {  // It outlives the step.
    sqlite3_bind_text(statement_, ++column_, value.data(), static_cast<int>(value.size()), SQLITE_STATIC);
  }
  /// Nothing for what did not happen.
  void Time(int64_t ns) {
    if (ns >= 0) return Whole(ns);
    sqlite3_bind_null(statement_, ++column_);
  }

 private:
  sqlite3_stmt* statement_;
  int column_ = 0;
};

std::string TextOf(sqlite3_stmt* statement, int column) {
  const unsigned char* text = sqlite3_column_text(statement, column);
  return text == nullptr ? "" : std::string(reinterpret_cast<const char*>(text));
}

}  // namespace

struct UsageDb::Impl {
  using Statement = std::unique_ptr<sqlite3_stmt, CloseStatement>;

  std::string path;
  std::unique_ptr<sqlite3, CloseDb> db;
  Statement insert, insert_storage;
  bool has_storage = true;

  absl::Status ErrorNow(const char* what) const {
    const int code = sqlite3_errcode(db.get());
    const std::string message = Cat(path, ": ", what, ": ", sqlite3_errmsg(db.get()));
    if (code == SQLITE_FULL) return absl::ResourceExhaustedError(message);
    if (code == SQLITE_NOTADB) return NoUsageDb();
    if (code == SQLITE_CORRUPT) return absl::InvalidArgumentError(message);
    return absl::UnavailableError(message);
  }
  absl::Status NoUsageDb() const { return absl::InvalidArgumentError(Cat(path, ": this is no usage database")); }
  absl::Status Run(const char* sql, const char* what) {
    return sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : ErrorNow(what);
  }
  absl::StatusOr<Statement> Prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) return ErrorNow("query");
    return Statement(statement);
  }
  absl::StatusOr<bool> HasTable(const char* name) {
    KVIST_ASSIGN_OR_RETURN(const Statement known,
                           Prepare(Cat("SELECT 1 FROM sqlite_master WHERE name = '", name, "'")));
    return sqlite3_step(known.get()) == SQLITE_ROW;
  }
  absl::Status Step(sqlite3_stmt* statement) {
    const bool done = sqlite3_step(statement) == SQLITE_DONE;
    const absl::Status status = done ? absl::OkStatus() : ErrorNow(kWritingRows);
    sqlite3_reset(statement);
    return status;
  }
  absl::Status InsertRow(const UsageRow& row) {
    Binder bind(insert.get());
    bind.Whole(row.run);
    bind.Whole(row.id);
    bind.Whole(row.choice);
    bind.Text(row.request);
    bind.Text(row.tenant);
    bind.Text(row.model);
    bind.Whole(row.opened_s);
    bind.Whole(row.closed_s);
    bind.Text(row.outcome);
    for (const uint32_t count : {row.prompt_tokens, row.cached_tokens, row.computed_tokens, row.recomputed_tokens,
                                 row.generated_tokens, row.preemptions}) {
      bind.Whole(count);
    }
    bind.Real(row.kv_hot_byte_s);
    bind.Whole(row.step_share_ns);
    bind.Time(row.queue_ns);
    bind.Time(row.first_token_ns);
    bind.Time(row.total_ns);
    return Step(insert.get());
  }
  absl::Status InsertRow(const StorageRow& row) {
    Binder bind(insert_storage.get());
    bind.Whole(row.run);
    bind.Whole(row.hour_s);
    bind.Text(row.tier);
    bind.Text(row.tenant);
    bind.Text(row.model);
    bind.Real(row.byte_s);
    return Step(insert_storage.get());
  }
  absl::Status Connect(int flags) {
    if (!std::filesystem::is_regular_file(path)) return NoUsageDb();
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    db.reset(handle);
    if (code != SQLITE_OK) return ErrorNow("cannot be opened");
    sqlite3_busy_timeout(handle, kBusyMs);
    return absl::OkStatus();
  }
};

UsageDb::UsageDb(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UsageDb::~UsageDb() = default;

absl::StatusOr<std::unique_ptr<UsageDb>> UsageDb::Open(const std::string& path) {
  KVIST_RETURN_IF_ERROR(MakePrivateFile(path));  // The log's files get its permissions.
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  KVIST_RETURN_IF_ERROR(impl->Connect(SQLITE_OPEN_READWRITE));
  // A commit is in the file system's hands then: it outlives the process, and all but the last ones a power cut.
  KVIST_RETURN_IF_ERROR(impl->Run("PRAGMA journal_mode=WAL", kSettingUp));
  KVIST_RETURN_IF_ERROR(impl->Run("PRAGMA synchronous=NORMAL", kSettingUp));
  KVIST_RETURN_IF_ERROR(impl->Run(kSchema, kSettingUp));
  KVIST_ASSIGN_OR_RETURN(impl->insert, impl->Prepare(kInsert));
  KVIST_ASSIGN_OR_RETURN(impl->insert_storage, impl->Prepare(kInsertStorage));
  return std::unique_ptr<UsageDb>(new UsageDb(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<UsageDb>> UsageDb::OpenToRead(const std::string& path) {
  if (!std::filesystem::exists(path)) return absl::NotFoundError(Cat(path, ": there is no such file"));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  KVIST_RETURN_IF_ERROR(impl->Connect(SQLITE_OPEN_READONLY));
  // Files of before storage was counted have no such table until a server writes to them.
  KVIST_ASSIGN_OR_RETURN(const bool has_requests, impl->HasTable("requests"));
  if (!has_requests) return impl->NoUsageDb();
  KVIST_ASSIGN_OR_RETURN(impl->has_storage, impl->HasTable("storage"));
  return std::unique_ptr<UsageDb>(new UsageDb(std::move(impl)));
}

absl::Status UsageDb::Insert(std::span<const UsageRow> rows, std::span<const StorageRow> storage) {
  KVIST_RETURN_IF_ERROR(impl_->Run("BEGIN IMMEDIATE", kWritingRows));
  absl::Status status;
  for (size_t i = 0; i < rows.size() && status.ok(); ++i) status = impl_->InsertRow(rows[i]);
  for (size_t i = 0; i < storage.size() && status.ok(); ++i) status = impl_->InsertRow(storage[i]);
  if (status.ok()) status = impl_->Run("COMMIT", kWritingRows);
  if (!status.ok()) impl_->Run("ROLLBACK", kWritingRows).IgnoreError();  // What went wrong first is what matters.
  return status;
}

absl::StatusOr<std::vector<std::string>> UsageDb::Tenants() {
  const std::string storage = impl_->has_storage ? " UNION SELECT tenant FROM storage" : "";
  KVIST_ASSIGN_OR_RETURN(const Impl::Statement rows,
                         impl_->Prepare(Cat("SELECT DISTINCT tenant FROM requests", storage, " ORDER BY 1")));
  std::vector<std::string> names;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(rows.get())) == SQLITE_ROW) {
    std::string name = TextOf(rows.get(), 0);
    if (!name.empty()) names.push_back(std::move(name));
  }
  if (code != SQLITE_DONE) return impl_->ErrorNow("query");
  return names;
}

absl::StatusOr<std::vector<UsageSum>> UsageDb::Sum(const UsageQuery& query) {
  std::string groups, sql = "SELECT ";
  std::vector<std::string UsageSum::*> fields;
  for (const UsageGroup group : query.group_by) {
    for (const GroupColumn& column : kGroups) {
      if (column.group != group) continue;
      fields.push_back(column.field);
      sql += Cat(column.expression, ", ");
      groups += Cat(groups.empty() ? " GROUP BY " : ", ", fields.size());
    }
  }
  sql +=
      "COUNT(*) FILTER (WHERE choice = 0), SUM(CASE choice WHEN 0 THEN prompt_tokens ELSE 0 END), "
      "SUM(CASE choice WHEN 0 THEN cached_tokens ELSE 0 END), SUM(computed_tokens), SUM(generated_tokens), "
      "SUM(kv_hot_byte_s), SUM(kv_cold_byte_s), SUM(kv_drive_byte_s), SUM(step_share_ns), SUM(recomputed_tokens), "
      "SUM(preemptions), "
      "COUNT(*) FILTER (WHERE choice = 0 AND outcome = 'abort'), "
      "COUNT(*) FILTER (WHERE choice = 0 AND outcome IN ('error', 'crash')), SUM(queue_ns) "
      "FROM (SELECT ";
  const char* of_tenant = query.tenant ? " AND tenant = ?5" : "";
  sql += Cat(kRequestColumns, of_tenant);
  if (impl_->has_storage) sql += Cat(" UNION ALL SELECT ", kStorageColumns, of_tenant);
  sql += Cat(")", groups);
  if (!groups.empty()) sql += Cat(" ORDER BY", groups.substr(std::string_view(" GROUP BY").size()));
  sql += Cat(" LIMIT ", query.rows_max);
  KVIST_ASSIGN_OR_RETURN(const Impl::Statement statement, impl_->Prepare(sql));
  sqlite3_stmt* rows = statement.get();
  sqlite3_bind_int64(rows, 1, query.from_s);
  sqlite3_bind_int64(rows, 2, query.to_s);
  const auto bind = [&](int parameter, std::string_view text) {
    sqlite3_bind_text(rows, parameter, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  };
  bind(3, kv::kColdMemoryTier);  // Out of range, and harmless, where there is no such table.
  bind(4, kv::kDriveTier);
  if (query.tenant) bind(5, *query.tenant);
  std::vector<UsageSum> sums;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
    UsageSum& sum = sums.emplace_back();
    int column = 0;
    for (const auto field : fields) sum.*field = TextOf(rows, column++);
    const auto count = [&] { return static_cast<uint64_t>(sqlite3_column_int64(rows, column++)); };
    UsageTotals& totals = sum.totals;
    for (uint64_t* total : {&totals.requests, &totals.prompt_tokens, &totals.cached_tokens, &totals.computed_tokens,
                            &totals.generated_tokens}) {
      *total = count();
    }
    for (double* held : {&totals.kv_hot_byte_s, &totals.kv_cold_byte_s, &totals.kv_drive_byte_s}) {
      *held = sqlite3_column_double(rows, column++);
    }
    totals.step_share_s = static_cast<double>(count()) * 1e-9;
    for (uint64_t* total : {&sum.recomputed_tokens, &sum.preemptions, &sum.cancelled, &sum.failed}) *total = count();
    sum.queue_s = static_cast<double>(count()) * 1e-9;
  }
  if (code != SQLITE_DONE) return impl_->ErrorNow("query");
  return sums;
}

}  // namespace kvist::serve
