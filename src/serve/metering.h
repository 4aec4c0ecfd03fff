#pragma once

/// @file
/// Every request metered exactly: keeps the engine's meters in memory that outlives the process, writes those of ended
/// requests into the usage database on a thread of its own, and tells tenants' limits what was used. Threads: Open and
/// Close the engine's, the rest any. Non-goals: what is counted how (engine/metering.h), questions (usage_view.h).
///
/// Exactness. A token is counted before its client is told, in memory that the next process finds after a kill; a
/// meter's place is free again only once its row is committed. So after a crash the database has every request that
/// came to the engine, and each token that a client received. Only the time between the last token of a request and a
/// kill, and up to a second of its memory, are missing. After a power cut the last rows may be missing, too.
///
/// What tenants' blocks take of the tiers below memory is nobody's request's: it is told by the engine as integrals,
/// charged as it comes, and written by the hour, the row of the running hour again and again. A kill loses what was not
/// told yet (ten seconds).
///
/// Back-pressure. There are so many places; while none is free (the disk is full, say) requests are refused.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/metering.h"
#include "platform/surviving_memory.h"
#include "serve/tenants.h"
#include "serve/usage_db.h"

namespace kvist::serve {

struct MeteringOptions {
  std::string db_path;  ///< "" = only limits and totals since the start.
  std::string model;
  uint64_t block_bytes = 0;  ///< Of KV memory.
  uint32_t places = 4096;    ///< Requests that run, wait, or have ended and are not written yet.
  std::function<int64_t()> unix_now_s;
};

/// Totals of a tenant since the start, and of these the requests that were cancelled or failed.
struct TenantTotals {
  std::string tenant;
  UsageTotals totals;
  uint64_t cancelled = 0, failed = 0;
};

class Metering final : public engine::MeterBook {
 public:
  /// Takes over what a process that died has left. `tenants` outlives this. Errors: those of the database; another
  /// process that writes to it.
  static absl::StatusOr<std::unique_ptr<Metering>> Create(MeteringOptions options, Tenants& tenants);
  /// Writes what has ended. REQUIRES: the engine is stopped.
  ~Metering() override;

  engine::Meter* Open(RequestId id, const engine::GenerationRequest& request) override;
  void Close(engine::Meter* meter, engine::FinishReason reason) override;
  void TakeHoldings(std::span<const kv::TierHolding> holdings) override;

  /// Waits until what has ended by now is in the database. @return false when that takes longer than `limit_s`
  bool Flush(double limit_s);

  bool has_db() const { return !options_.db_path.empty(); }
  const MeteringOptions& options() const { return options_; }
  std::vector<TenantTotals> Totals() const;
  uint64_t rows_written() const;
  uint64_t rows_waiting() const;

 private:
  struct Header;
  struct Place;

  Metering(MeteringOptions options, Tenants& tenants);
  absl::Status Start();
  absl::Status TakeOver();
  absl::Status LoadPast();
  UsageRow RowOf(const Place& place, int64_t run, std::string_view model, uint64_t block_bytes) const;
  TenantTotals& TotalsOf(const std::string& tenant);
  std::vector<StorageRow> TakeStorage();
  void Work();
  bool Write(const std::vector<uint32_t>& ended, std::span<const StorageRow> storage);
  /// Of the tier, and of whom.
  using HoldingKey = std::pair<std::string, std::string>;

  const MeteringOptions options_;
  Tenants& tenants_;
  std::unique_ptr<SurvivingMemory> memory_;  ///< Of header and places, where there is a database.
  std::vector<std::byte> own_memory_;        ///< Otherwise.
  std::span<Place> places_;
  int64_t run_ = 0;
  std::unique_ptr<UsageDb> db_;  ///< The worker's.

  mutable std::mutex mutex_;  ///< Guards the rest; nothing waits for a disk while it is held.
  std::condition_variable work_, written_;
  std::vector<uint32_t> free_, ended_;
  absl::flat_hash_map<std::string, TenantTotals> totals_;     ///< [name]
  absl::flat_hash_map<HoldingKey, double> held_byte_s_;       ///< As told last.
  int64_t hour_s_ = 0;                                        ///< The latest there was.
  std::map<std::pair<int64_t, HoldingKey>, double> storage_;  ///< [hour] byte seconds; of hours that may yet change.
  uint64_t storage_told_ = 0, storage_written_ = 0;           ///< Times that it changed.
  uint64_t rows_ended_ = 0, rows_written_ = 0;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace kvist::serve
