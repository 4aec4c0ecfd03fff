#include "lab/store_speed.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "base/status.h"
#include "kv/tier/block_store.h"
#include "platform/anonymous_memory.h"
#include "platform/real_disk.h"
#include "platform/temp_folder.h"

namespace kvist::lab {
namespace {

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

kv::ContentId IdOf(uint64_t block) {
  return {Mix64(block), block};
}

kv::BlockStoreOptions StoreOptions(const StoreBenchOptions& options) {
  return {.size_max = 4 * options.bytes + (uint64_t{1} << 30), .section_bytes = options.group_bytes};
}

absl::StatusOr<double> Fill(kv::BlockStore& store, const StoreBenchOptions& options, uint64_t blocks) {
  const RealClock clock;
  DiskMemory memory(options.run_blocks * kv::StorePages(options.block_bytes));
  Prng prng(1);
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t word = prng.Next();
    std::memcpy(memory.data() + i, &word, 8);
  }
  const std::vector<TokenId> tokens(kv::kBlockTokens);
  const TimeNs start = clock.Now();
  for (uint64_t block = 0; block < blocks; block += options.run_blocks) {
    std::vector<kv::BlockWrite> writes;
    for (uint64_t i = block; i < std::min<uint64_t>(block + options.run_blocks, blocks); ++i) {
      std::byte* const payload = memory.data() + (i - block) * kv::StorePages(options.block_bytes);
      std::memcpy(payload, &i, sizeof(i));
      writes.push_back({.id = IdOf(i), .tokens = tokens, .payload = {payload, options.block_bytes}});
    }
    store.Write(writes);
    kv::StoreNews news;
    while (news.writes.empty()) store.Poll(news, true);
    if (!news.writes[0].refused.empty()) return absl::UnavailableError(Cat("not written: ", store.Figures().reason));
  }
  store.Close();
  return static_cast<double>(blocks * options.block_bytes) / Seconds(clock.Now() - start);
}

/// Memory for two runs of blocks, in large pages, as frames are.
absl::StatusOr<AnonymousMemory> MapFrames(const StoreBenchOptions& options) {
  KVIST_ASSIGN_OR_RETURN(AnonymousMemory memory,
                         AnonymousMemory::Map(2 * options.run_blocks * kv::StorePages(options.block_bytes)));
  std::memset(memory.data(), 0, memory.size());
  return memory;
}

/// A way to read files.
struct RawSetting {
  uint64_t request_bytes = 0;
  uint32_t depth = 0;
};

/// Reads all segment files with large requests, many at a time, into memory as large as the store's destinations: what
/// fits a processor's cache would be filled faster.
absl::StatusOr<double> ReadRaw(Disk& disk, const RawSetting& setting, const AnonymousMemory& memory) {
  const auto [request_bytes, depth] = setting;
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List());
  std::vector<DiskFile> files;
  std::vector<DiskRequest> requests;
  uint64_t total = 0;
  for (const std::string& name : names) {
    if (kv::SegmentNumber(name) == 0) continue;
    KVIST_ASSIGN_OR_RETURN(files.emplace_back(), disk.Open(name, DiskOpen::kRead));
    KVIST_ASSIGN_OR_RETURN(const uint64_t bytes, disk.Size(files.back()));
    for (uint64_t at = 0; at + request_bytes <= bytes; at += request_bytes) {
      requests.push_back({.kind = DiskRequest::Kind::kRead, .file = files.back(), .offset = at});
      total += request_bytes;
    }
  }
  std::deque<uint64_t> free;
  for (uint64_t i = 0; (i + 1) * request_bytes <= memory.size(); ++i) free.push_back(i);
  const RealClock clock;
  const TimeNs start = clock.Now();
  absl::Status failed;
  size_t next = 0;
  std::vector<DiskCompletion> done;
  while (next < requests.size() || disk.in_flight() > 0) {
    for (; !free.empty() && disk.in_flight() < depth && next < requests.size(); ++next) {
      const DiskBuffer buffer{memory.data() + free.front() * request_bytes, request_bytes};
      requests[next].buffers = {&buffer, 1};
      requests[next].tag = free.front();
      free.pop_front();
      disk.Submit({&requests[next], 1});
    }
    done.clear();
    disk.Poll(done, true);
    for (const DiskCompletion& completion : done) {
      free.push_back(completion.tag);
      if (!completion.status.ok()) failed = completion.status;
    }
  }
  const double seconds = Seconds(clock.Now() - start);
  for (const DiskFile file : files) disk.Close(file);
  if (!failed.ok()) return failed;
  return static_cast<double>(total) / seconds;
}

/// The fastest setting by the medians of all rounds: the luckiest of many runs says little about a drive that varies.
absl::StatusOr<RawSetting> FastestSetting(Disk& disk, uint32_t rounds, const AnonymousMemory& memory) {
  std::vector<RawSetting> settings;
  for (const uint64_t kib : {512, 1024}) {
    for (const uint32_t depth : {4u, 16u, 64u}) settings.push_back({kib << 10, depth});
  }
  std::vector<std::vector<double>> rates(settings.size());
  for (uint32_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < settings.size(); ++i) {
      KVIST_ASSIGN_OR_RETURN(const double rate, ReadRaw(disk, settings[i], memory));
      rates[i].push_back(rate);
    }
  }
  const auto best = std::ranges::max_element(rates, {}, [](const std::vector<double>& r) { return Median(r); });
  return settings[static_cast<size_t>(best - rates.begin())];
}

struct StoreRead {
  double bytes_per_s = 0, cores = 0, first_group_ms = 0;
};

absl::StatusOr<StoreRead> ReadStore(kv::BlockStore& store, const StoreBenchOptions& options, uint64_t blocks,
                                    uint64_t group_bytes, const AnonymousMemory& memory) {
  const RealClock clock;
  std::vector<double> first_ms;
  const TimeNs start = clock.Now();
  const double processor = ProcessorSeconds();
  struct Run {
    TimeNs begun{0};
    uint64_t ticket = 0;
    bool first = false;
  };
  Run runs[2];
  uint64_t next = 0, left = (blocks + options.run_blocks - 1) / options.run_blocks;
  const auto begin = [&](size_t slot) {
    std::vector<kv::BlockRead> reads;
    for (uint64_t i = next; i < std::min<uint64_t>(next + options.run_blocks, blocks); ++i) {
      std::byte* const into =
          memory.data() + (slot * options.run_blocks + (i - next)) * kv::StorePages(options.block_bytes);
      reads.push_back({.id = IdOf(i), .into = {into, options.block_bytes}});
    }
    next += reads.size();
    const TimeNs now = clock.Now();
    runs[slot] = {.begun = now, .ticket = store.Read(reads, group_bytes).value};
  };
  // Two runs under way, as when one request is restored while the next one begins; group by group one, as the time
  // of its first group is of interest.
  for (size_t slot = 0; slot < (group_bytes == 0 ? 2 : 1) && next < blocks; ++slot) begin(slot);
  while (left > 0) {
    kv::StoreNews news;
    store.Poll(news, true);
    for (const kv::ReadNews& read : news.reads) {
      const size_t slot = runs[0].ticket == read.ticket.value ? 0 : 1;
      if (!runs[slot].first) first_ms.push_back(Seconds(clock.Now() - runs[slot].begun) * 1e3);
      runs[slot].first = true;
      if (!read.done) continue;
      if (!read.missing.empty()) return absl::DataLossError(Cat(read.missing.size(), " blocks of a run are missing"));
      --left;
      if (next < blocks) begin(slot);
    }
  }
  const double seconds = Seconds(clock.Now() - start);
  return StoreRead{.bytes_per_s = static_cast<double>(blocks * options.block_bytes) / seconds,
                   .cores = (ProcessorSeconds() - processor) / seconds,
                   .first_group_ms = Median(first_ms)};
}

}  // namespace

absl::StatusOr<StoreBenchResult> BenchStore(const std::string& folder, const StoreBenchOptions& options) {
  KVIST_ASSIGN_OR_RETURN(const TempFolder temp, TempFolder::Create(folder));
  const std::string path = options.keep ? folder + "/bench" : temp.path();
  const uint64_t blocks = std::max<uint64_t>(options.bytes / options.block_bytes, 1);
  StoreBenchResult result;
  {
    KVIST_ASSIGN_OR_RETURN(std::unique_ptr<Disk> disk, OpenRealDisk(path, {.create = true}));
    KVIST_ASSIGN_OR_RETURN(const auto store, kv::BlockStore::Open(std::move(disk), StoreOptions(options)));
    KVIST_RETURN_IF_ERROR(store->Purge({}).status());  // Of a run before.
    KVIST_ASSIGN_OR_RETURN(result.write_bytes_per_s, Fill(*store, options, blocks));
  }
  const RealClock clock;
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<Disk> disk, OpenRealDisk(path));
  const TimeNs opening = clock.Now();
  KVIST_ASSIGN_OR_RETURN(const auto store, kv::BlockStore::Open(std::move(disk), StoreOptions(options)));
  result.open_ms = Seconds(clock.Now() - opening) * 1e3;
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<Disk> raw, OpenRealDisk(path));
  KVIST_ASSIGN_OR_RETURN(const AnonymousMemory memory, MapFrames(options));
  const uint32_t rounds = std::max(options.rounds, 1u);
  KVIST_ASSIGN_OR_RETURN(const RawSetting setting, FastestSetting(*raw, rounds, memory));
  std::vector<double> drive, whole, grouped, cores, first, shares;
  for (uint32_t round = 0; round < rounds; ++round) {
    // The drive before and after: its speed changes from second to second.
    KVIST_ASSIGN_OR_RETURN(const double before, ReadRaw(*raw, setting, memory));
    KVIST_ASSIGN_OR_RETURN(const StoreRead at_once, ReadStore(*store, options, blocks, 0, memory));
    KVIST_ASSIGN_OR_RETURN(const double after, ReadRaw(*raw, setting, memory));
    drive.push_back((before + after) / 2);
    whole.push_back(at_once.bytes_per_s);
    shares.push_back(at_once.bytes_per_s / drive.back());
    cores.push_back(at_once.cores);
    KVIST_ASSIGN_OR_RETURN(const StoreRead in_groups, ReadStore(*store, options, blocks, options.group_bytes, memory));
    grouped.push_back(in_groups.bytes_per_s);
    first.push_back(in_groups.first_group_ms);
  }
  const kv::StoreFigures figures = store->Figures();
  result.engine = figures.disk.engine;
  result.direct = figures.disk.direct;
  result.drive_read_bytes_per_s = Median(drive);
  result.store_read_bytes_per_s = Median(whole);
  result.share = Median(shares);
  result.drive_request_bytes = setting.request_bytes;
  result.drive_depth = setting.depth;
  result.cores = Median(cores);
  result.grouped_read_bytes_per_s = Median(grouped);
  result.first_group_ms = Median(first);
  result.blocks = figures.blocks;
  result.stored_bytes = figures.record_bytes;
  result.index_bytes = figures.index_bytes;
  return result;
}

}  // namespace kvist::lab
