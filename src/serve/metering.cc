#include "serve/metering.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/counted.h"
#include "base/status.h"
#include "serve/answer_format.h"

namespace kvist::serve {
namespace {

constexpr uint64_t kMagic = 0x6b76697374757331;  // "kvistus1": changes with Header and Place.
constexpr size_t kNameBytes = 96;
constexpr std::chrono::seconds kRetry{1};
constexpr int64_t kHourS = 3600;

enum : uint32_t { kFree = 0, kOpen = 1, kEnded = 2 };

void CopyName(std::string_view name, char (&out)[kNameBytes]) {
  const size_t bytes = std::min(name.size(), kNameBytes - 1);
  std::memcpy(out, name.data(), bytes);
  std::memset(out + bytes, 0, kNameBytes - bytes);
}

/// A file that somebody changed may lack the name's end.
std::string NameOf(const char (&name)[kNameBytes]) {
  return {name, strnlen(name, kNameBytes)};
}

}  // namespace

struct Metering::Header {
  uint64_t magic;
  uint64_t place_bytes;
  int64_t run;
  uint64_t block_bytes;
  char model[kNameBytes];
};

/// Where a request's meter lies. The engine writes it while it is open, the worker reads it once it has ended.
struct Metering::Place {
  engine::Meter meter;  ///< First: a meter's address is its place's.
  uint32_t state;       ///< Last to be written, so that what it says is there. kFree: the rest means nothing.
  uint32_t choice;
  uint64_t id;
  uint32_t tenant_id;
  int32_t reason;
  int64_t opened_s, closed_s;
  char request[kNameBytes];
  char tenant[kNameBytes];

  void SetState(uint32_t value) { std::atomic_ref(state).store(value, std::memory_order_release); }
};

Metering::Metering(MeteringOptions options, Tenants& tenants) : options_(std::move(options)), tenants_(tenants) {}

absl::StatusOr<std::unique_ptr<Metering>> Metering::Create(MeteringOptions options, Tenants& tenants) {
  std::unique_ptr<Metering> metering(new Metering(std::move(options), tenants));
  KVIST_RETURN_IF_ERROR(metering->Start());
  return metering;
}

absl::Status Metering::Start() {
  static_assert(std::is_trivially_copyable_v<Place> && std::is_standard_layout_v<Place>);
  const size_t bytes = sizeof(Header) + options_.places * sizeof(Place);
  KVIST_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&run_), sizeof run_) == 1);
  run_ = static_cast<int64_t>(static_cast<uint64_t>(run_) >> 1);
  std::byte* data = nullptr;
  if (has_db()) {
    KVIST_ASSIGN_OR_RETURN(memory_, SurvivingMemory::Open(options_.db_path + "-open"));
    KVIST_ASSIGN_OR_RETURN(db_, UsageDb::Open(options_.db_path));
    KVIST_RETURN_IF_ERROR(TakeOver());
    KVIST_RETURN_IF_ERROR(LoadPast());
    KVIST_RETURN_IF_ERROR(memory_->Reset(bytes));
    data = memory_->bytes().data();
  } else {
    own_memory_.resize(bytes);
    data = own_memory_.data();
  }
  auto* header = new (data) Header{.place_bytes = sizeof(Place), .run = run_, .block_bytes = options_.block_bytes};
  CopyName(options_.model, header->model);
  places_ = {reinterpret_cast<Place*>(data + sizeof(Header)), options_.places};
  header->magic = kMagic;
  for (uint32_t i = options_.places; i-- > 0;) free_.push_back(i);
  if (has_db()) worker_ = std::thread([this] { Work(); });
  return absl::OkStatus();
}

/// Rows of a process that did not end as it should. They are written before its memory is given up.
absl::Status Metering::TakeOver() {
  const std::span<std::byte> bytes = memory_->bytes();
  if (bytes.size() < sizeof(Header)) return absl::OkStatus();
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.place_bytes != sizeof(Place)) {
    const bool empty = std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
    if (empty) return absl::OkStatus();  // Killed before it served anybody.
    return absl::FailedPreconditionError(
        Cat(options_.db_path, "-open: is not of this version; start that version once more, or remove the file"));
  }
  const std::string model = NameOf(header.model);
  std::vector<UsageRow> rows;
  for (size_t at = sizeof(Header); at + sizeof(Place) <= bytes.size(); at += sizeof(Place)) {
    Place place;
    std::memcpy(&place, bytes.data() + at, sizeof place);
    if (place.state != kFree) rows.push_back(RowOf(place, header.run, model, header.block_bytes));
  }
  if (rows.empty()) return absl::OkStatus();
  spdlog::warn("usage: {} of a server that was killed {} taken over", Counted(rows.size(), "request"),
               rows.size() == 1 ? "is" : "are");
  return db_->Insert(rows);
}

/// What tenants have used of their day and month before this process.
absl::Status Metering::LoadPast() {
  const int64_t now = options_.unix_now_s();
  for (const TenantPtr& tenant : tenants_.All()) {
    UsageTotals past[2];
    const int64_t begins[2] = {DayBegin(now), MonthBegin(now)};
    for (int i = 0; i < 2; ++i) {
      KVIST_ASSIGN_OR_RETURN(const auto sums, db_->Sum({.from_s = begins[i], .tenant = tenant->config.name}));
      past[i] = sums.at(0).totals;
    }
    tenant->limits->SetPast(past[0], past[1], now);
  }
  return absl::OkStatus();
}

Metering::~Metering() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  if (worker_.joinable()) worker_.join();
}

engine::Meter* Metering::Open(RequestId id, const engine::GenerationRequest& request) {
  const std::string tenant = tenants_.NameOf(request.tenant);
  std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  Place& place = places_[free_.back()];
  free_.pop_back();
  place.meter = {};
  place.choice = request.choice;
  place.id = id.value;
  place.tenant_id = request.tenant.value;
  place.reason = 0;
  place.opened_s = options_.unix_now_s();
  place.closed_s = 0;
  CopyName(request.name, place.request);
  CopyName(tenant, place.tenant);
  place.SetState(kOpen);
  return &place.meter;
}

void Metering::Close(engine::Meter* meter, engine::FinishReason reason) {
  auto* place = reinterpret_cast<Place*>(meter);
  const auto index = static_cast<uint32_t>(place - places_.data());
  place->reason = static_cast<int32_t>(reason);
  place->closed_s = options_.unix_now_s();
  place->SetState(kEnded);
  const TenantId id{place->tenant_id};
  const bool first = place->choice == 0;
  const UsageTotals used{
      .requests = first ? 1u : 0u,
      .prompt_tokens = first ? meter->prompt_tokens : 0,
      .cached_tokens = first ? meter->cached_tokens : 0,
      .computed_tokens = meter->computed_tokens,
      .generated_tokens = meter->generated_tokens,
      .kv_hot_byte_s = meter->kv_hot_block_ns * 1e-9 * static_cast<double>(options_.block_bytes),
      .step_share_s = Seconds(meter->step_share_ns),
  };
  if (const TenantPtr tenant = tenants_.Find(id)) tenant->limits->Charge(tenant->config, used, place->closed_s);
  std::lock_guard lock(mutex_);
  TenantTotals& totals = TotalsOf(NameOf(place->tenant));
  totals.totals += used;
  if (first && reason == engine::FinishReason::kCancelled) ++totals.cancelled;
  if (first && reason == engine::FinishReason::kError) ++totals.failed;
  if (!has_db()) {
    place->SetState(kFree);
    free_.push_back(index);
    return;
  }
  ended_.push_back(index);
  ++rows_ended_;
  work_.notify_one();
}

TenantTotals& Metering::TotalsOf(const std::string& tenant) {
  TenantTotals& totals = totals_[tenant];
  totals.tenant = tenant;
  return totals;
}

void Metering::TakeHoldings(std::span<const kv::TierHolding> holdings) {
  std::map<HoldingKey, double> now;
  for (const kv::TierHolding& holding : holdings) {
    now[{std::string(holding.tier), tenants_.NameOfKey(holding.owner.value)}] += holding.byte_ns * 1e-9;
  }
  const int64_t now_s = options_.unix_now_s();
  std::vector<std::pair<std::string, UsageTotals>> charges;
  bool storage_changed = false;
  {
    std::lock_guard lock(mutex_);
    hour_s_ = std::max(hour_s_, now_s - now_s % kHourS);  // A clock that goes back changes nothing.
    for (const auto& [key, byte_s] : now) {
      const double more = byte_s - std::exchange(held_byte_s_[key], byte_s);
      if (more <= 0) continue;
      UsageTotals used;
      (key.first == kv::kDriveTier ? used.kv_drive_byte_s : used.kv_cold_byte_s) = more;
      TotalsOf(key.second).totals += used;
      charges.emplace_back(key.second, used);
      if (!has_db()) continue;
      storage_[{hour_s_, key}] += more;
      storage_changed = true;
    }
    if (storage_changed) ++storage_told_;
  }
  if (storage_changed) work_.notify_one();
  for (const auto& [name, used] : charges) {
    if (const TenantPtr tenant = tenants_.Named(name)) tenant->limits->Charge(tenant->config, used, now_s);
  }
}

UsageRow Metering::RowOf(const Place& place, int64_t run, std::string_view model, uint64_t block_bytes) const {
  const engine::Meter& meter = place.meter;
  const bool crashed = place.state != kEnded;
  const auto reason = static_cast<engine::FinishReason>(place.reason);
  return {.run = run,
          .id = place.id,
          .choice = place.choice,
          .request = NameOf(place.request),
          .tenant = NameOf(place.tenant),
          .model = std::string(model),
          .opened_s = place.opened_s,
          .closed_s = crashed ? options_.unix_now_s() : place.closed_s,
          .outcome = crashed ? "crash" : std::string(FinishReasonName(reason)),
          .prompt_tokens = meter.prompt_tokens,
          .cached_tokens = meter.cached_tokens,
          .computed_tokens = meter.computed_tokens,
          .recomputed_tokens = meter.recomputed_tokens,
          .generated_tokens = meter.generated_tokens,
          .preemptions = meter.preemptions,
          .kv_hot_byte_s = meter.kv_hot_block_ns * 1e-9 * static_cast<double>(block_bytes),
          .step_share_ns = meter.step_share_ns,
          .queue_ns = meter.queue_ns,
          .first_token_ns = meter.first_token_ns,
          .total_ns = meter.total_ns};
}

void Metering::Work() {
  std::vector<uint32_t> batch;
  std::vector<StorageRow> storage;
  uint64_t told_now = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !ended_.empty() || storage_told_ > storage_written_; });
      if (ended_.empty() && storage_told_ == storage_written_) return;
      batch.swap(ended_);
      told_now = storage_told_;
      storage = TakeStorage();
    }
    bool told = false;
    while (!Write(batch, storage)) {
      if (!std::exchange(told, true)) spdlog::error("usage: trying again every {} s", kRetry.count());
      std::unique_lock lock(mutex_);
      if (work_.wait_for(lock, kRetry, [this] { return stopping_; })) return;  // The next process takes them over.
    }
    std::lock_guard lock(mutex_);
    for (const uint32_t index : batch) places_[index].SetState(kFree);
    free_.insert(free_.end(), batch.begin(), batch.end());
    rows_written_ += batch.size();
    storage_written_ = told_now;
    batch.clear();
    written_.notify_all();
  }
}

/// What is not written yet as it is; the rows of the running hour will be replaced by larger ones.
std::vector<StorageRow> Metering::TakeStorage() {
  std::vector<StorageRow> rows;
  if (storage_told_ == storage_written_) return rows;
  for (const auto& [at, byte_s] : storage_) {
    const auto& [hour_s, key] = at;
    rows.push_back({.run = run_,
                    .hour_s = hour_s,
                    .tier = key.first,
                    .tenant = key.second,
                    .model = options_.model,
                    .byte_s = byte_s});
  }
  std::erase_if(storage_, [this](const auto& entry) { return entry.first.first < hour_s_; });
  return rows;
}

bool Metering::Write(const std::vector<uint32_t>& ended, std::span<const StorageRow> storage) {
  std::vector<UsageRow> rows;
  rows.reserve(ended.size());
  for (const uint32_t index : ended) {
    rows.push_back(RowOf(places_[index], run_, options_.model, options_.block_bytes));
  }
  const absl::Status status = db_->Insert(rows, storage);
  if (!status.ok()) {
    spdlog::error("usage: {} rows are not written: {}", rows.size() + storage.size(), std::string(status.message()));
  }
  return status.ok();
}

bool Metering::Flush(double limit_s) {
  std::unique_lock lock(mutex_);
  const uint64_t wanted = rows_ended_, told = storage_told_;
  return written_.wait_for(lock, std::chrono::duration<double>(limit_s),
                           [&] { return rows_written_ >= wanted && storage_written_ >= told; });
}

std::vector<TenantTotals> Metering::Totals() const {
  std::lock_guard lock(mutex_);
  std::vector<TenantTotals> list;
  for (const auto& [name, totals] : totals_) list.push_back(totals);
  std::ranges::sort(list, {}, &TenantTotals::tenant);
  return list;
}

uint64_t Metering::rows_written() const {
  std::lock_guard lock(mutex_);
  return rows_written_;
}

uint64_t Metering::rows_waiting() const {
  std::lock_guard lock(mutex_);
  return rows_ended_ - rows_written_;
}

}  // namespace kvist::serve
