/// @file
/// `kvist store ls|stats|verify|gc|purge|bench DIR`: the KV blocks that a server keeps on a drive.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/counted.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/near_word.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "kv/tier/block_store.h"
#include "lab/store_speed.h"
#include "platform/disk_calibration.h"
#include "platform/partial_file.h"
#include "platform/real_disk.h"
#include "serve/json_output.h"
#include "serve/tenant_config.h"
#include "serve/tenants.h"
#include "serve/usage_db.h"

namespace kvist::cli {
namespace {

namespace json = boost::json;

struct StoreFlags {
  std::string folder;
  bool json = false;
  std::string size;                                  ///< gc
  std::string tenants, usage_db;                     ///< ls, stats, purge: where tenants' names are found.
  std::string tenant, cache_namespace, fingerprint;  ///< purge
  bool all = false;                                  ///< purge
  std::string bytes = "2GiB", block = "512KiB";      ///< bench
  bool keep = false;                                 ///< bench
};

/// Larger than any drive: upkeep by hand gives nothing up by itself.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

absl::StatusOr<std::unique_ptr<kv::BlockStore>> OpenStore(const StoreFlags& flags, bool read_only,
                                                          uint64_t size_max = kNoLimit) {
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<Disk> disk, OpenRealDisk(flags.folder));
  // To look first: nobody makes a store by a slip of the pen.
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<kv::BlockStore> store,
                         kv::BlockStore::Open(std::move(disk), {.size_max = size_max, .read_only = true}));
  if (read_only) return store;
  store.reset();
  KVIST_ASSIGN_OR_RETURN(disk, OpenRealDisk(flags.folder));
  absl::StatusOr<std::unique_ptr<kv::BlockStore>> writing =
      kv::BlockStore::Open(std::move(disk), {.size_max = size_max, .free_bytes_min = 0});
  if (absl::IsUnavailable(writing.status())) {
    return absl::UnavailableError(Cat(flags.folder, ": a running server writes to this store; stop it first"));
  }
  return writing;
}

/// Names of tenants by what blocks say whose they are by.
using TenantNames = std::map<uint32_t, std::string>;

/// Of all that the files know. Errors: those of the files.
absl::StatusOr<TenantNames> NamesFrom(const StoreFlags& flags) {
  TenantNames names;
  const auto add = [&](const std::string& name) { names[serve::TenantKey(name)] = name; };
  add(std::string(serve::kDefaultTenant));
  if (!flags.tenants.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<serve::TenantConfig> tenants, serve::ReadTenantsFile(flags.tenants));
    for (const serve::TenantConfig& tenant : tenants) add(tenant.name);
  }
  if (!flags.usage_db.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<serve::UsageDb> db, serve::UsageDb::OpenToRead(flags.usage_db));
    KVIST_ASSIGN_OR_RETURN(const std::vector<std::string> tenants, db->Tenants());
    for (const std::string& tenant : tenants) add(tenant);
  }
  return names;
}

/// The name, else the number.
std::string TenantText(const TenantNames& names, uint32_t key) {
  const auto it = names.find(key);
  return it == names.end() ? std::to_string(key) : it->second;
}

void AddTenant(const TenantNames& names, uint32_t key, json::object& out) {
  out["tenant"] = key;
  if (const auto it = names.find(key); it != names.end()) out["tenant_name"] = it->second;
}

std::string IdText(const kv::ContentId& id) {
  return fmt::format("{:016x}{:016x}", id.high, id.low);
}

json::object BlockJson(const kv::BlockStore::Listed& block, const TenantNames& names) {
  const kv::BlockFacts& facts = block.facts;
  json::object out = {{"id", IdText(facts.id)},
                      {"parent", IdText(facts.parent)},
                      {"namespace", fmt::format("{:016x}", facts.origin.cache_namespace)},
                      {"fingerprint", fmt::format("{:016x}", facts.origin.fingerprint)},
                      {"codec", std::string(KvTypeName(facts.origin.codec))},
                      {"tokens", facts.tokens},
                      {"bytes", facts.payload_bytes},
                      {"generation", facts.generation},
                      {"segment", block.at.segment.value},
                      {"offset", block.at.offset}};
  AddTenant(names, facts.origin.tenant.value, out);
  return out;
}

absl::Status List(const StoreFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const TenantNames names, NamesFrom(flags));
  KVIST_ASSIGN_OR_RETURN(const auto store, OpenStore(flags, true));
  for (const kv::BlockStore::Listed& block : store->List()) {
    const kv::BlockFacts& facts = block.facts;
    if (flags.json) {
      fmt::print("{}\n", serve::JsonText(BlockJson(block, names)));
    } else {
      fmt::print("{} tenant {} model {:016x} {:>2} tokens {:>10} bytes  {} at {}\n", IdText(facts.id),
                 TenantText(names, facts.origin.tenant.value), facts.origin.fingerprint, facts.tokens,
                 facts.payload_bytes, kv::SegmentName(block.at.segment.value), block.at.offset);
    }
  }
  return FlushOutput();
}

absl::Status Stats(const StoreFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const TenantNames names, NamesFrom(flags));
  KVIST_ASSIGN_OR_RETURN(const auto store, OpenStore(flags, true));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<Disk> disk, OpenRealDisk(flags.folder));
  const kv::StoreFigures figures = store->Figures();
  struct Part {
    uint64_t blocks = 0, bytes = 0;
  };
  std::map<std::pair<uint64_t, uint32_t>, Part> parts;  // By model and tenant.
  for (const kv::BlockStore::Listed& block : store->List()) {
    Part& part = parts[{block.facts.origin.fingerprint, block.facts.origin.tenant.value}];
    ++part.blocks;
    part.bytes += block.facts.payload_bytes;
  }
  const bool in_use = disk->IsLocked("lock");
  if (flags.json) {
    json::array list;
    for (const auto& [key, part] : parts) {
      json::object one = {
          {"fingerprint", fmt::format("{:016x}", key.first)}, {"blocks", part.blocks}, {"bytes", part.bytes}};
      AddTenant(names, key.second, one);
      list.push_back(std::move(one));
    }
    const json::object out = {{"blocks", figures.blocks},
                              {"payload_bytes", figures.payload_bytes},
                              {"record_bytes", figures.record_bytes},
                              {"file_bytes", figures.used_bytes},
                              {"segments", figures.segments},
                              {"segment_bytes", figures.segment_bytes},
                              {"unsealed_segments", figures.totals.unsealed_segments},
                              {"damaged_pages", figures.totals.damaged_pages},
                              {"index_bytes", figures.index_bytes},
                              {"in_use", in_use},
                              {"engine", figures.disk.engine},
                              {"direct", figures.disk.direct},
                              {"parts", list}};
    fmt::print("{}\n", serve::JsonText(out));
    return FlushOutput();
  }
  fmt::print("{}, {} of keys and values, in {} of {}; files {}, index {} of memory{}\n",
             Counted(figures.blocks, "block"), FormatByteSize(figures.payload_bytes),
             Counted(figures.segments, "segment"), FormatByteSize(figures.segment_bytes),
             FormatByteSize(figures.used_bytes), FormatByteSize(figures.index_bytes),
             in_use ? "; a server writes to it" : "");
  if (const uint64_t pages = figures.totals.damaged_pages; pages > 0)
    fmt::print("{}\n", Counted(pages, "damaged page"));
  for (const auto& [key, part] : parts) {
    fmt::print("model {:016x} tenant {}: {}, {}\n", key.first, TenantText(names, key.second),
               Counted(part.blocks, "block"), FormatByteSize(part.bytes));
  }
  return FlushOutput();
}

/// Reads every block. @return an error when one is damaged.
absl::Status Verify(const StoreFlags& flags) {
  constexpr size_t kAtOnce = 64;
  KVIST_ASSIGN_OR_RETURN(const auto store, OpenStore(flags, true));
  const std::vector<kv::BlockStore::Listed> blocks = store->List();
  const uint64_t total = store->Figures().payload_bytes;
  uint64_t done = 0, damaged = 0;
  StatusLine line;
  for (size_t begin = 0; begin < blocks.size(); begin += kAtOnce) {
    const std::span<const kv::BlockStore::Listed> part =
        std::span(blocks).subspan(begin, std::min(kAtOnce, blocks.size() - begin));
    std::vector<DiskMemory> memory;
    std::vector<kv::BlockRead> reads;
    for (const kv::BlockStore::Listed& block : part) {
      memory.emplace_back(block.facts.payload_bytes);
      reads.push_back({.id = block.facts.id, .into = memory.back().span().first(block.facts.payload_bytes)});
      done += block.facts.payload_bytes;
    }
    store->Read(reads);
    kv::StoreNews news;
    while (news.reads.empty()) store->Poll(news, true);
    for (const uint32_t missing : news.reads.back().missing) {
      ++damaged;
      if (!flags.json) {
        line.Clear();
        fmt::print("damaged: {} in {} at {}\n", IdText(part[missing].facts.id),
                   kv::SegmentName(part[missing].at.segment.value), part[missing].at.offset);
      }
    }
    line.ShowBytes("verifying", done, total);
  }
  line.Clear();
  const kv::StoreStats totals = store->Figures().totals;
  if (flags.json) {
    const json::object out = {{"blocks", blocks.size()},
                              {"damaged", damaged},
                              {"bytes", total},
                              {"read_errors", totals.read_errors},
                              {"unsealed_segments", totals.unsealed_segments},
                              {"damaged_pages", totals.damaged_pages}};
    fmt::print("{}\n", serve::JsonText(out));
  } else {
    fmt::print("{}, {}: {} damaged\n", Counted(blocks.size(), "block"), FormatByteSize(total), damaged);
  }
  KVIST_RETURN_IF_ERROR(FlushOutput());
  return damaged == 0
             ? absl::OkStatus()
             : absl::DataLossError(Cat(Counted(damaged, "block"), damaged == 1 ? " is damaged" : " are damaged"));
}

absl::Status Collect(const StoreFlags& flags) {
  uint64_t size_max = kNoLimit;
  if (!flags.size.empty()) {
    KVIST_ASSIGN_OR_RETURN(size_max, ParseByteSize(flags.size));
  }
  KVIST_ASSIGN_OR_RETURN(const auto before, OpenStore(flags, true));
  const kv::StoreFigures old = before->Figures();
  KVIST_ASSIGN_OR_RETURN(const auto store, OpenStore(flags, false, size_max));
  KVIST_RETURN_IF_ERROR(store->Compact());
  const kv::StoreFigures now = store->Figures();
  if (flags.json) {
    const json::object out = {{"file_bytes_before", old.used_bytes},
                              {"file_bytes", now.used_bytes},
                              {"segments_before", old.segments},
                              {"segments", now.segments},
                              {"blocks_before", old.blocks},
                              {"blocks", now.blocks},
                              {"written_bytes", now.totals.drive_written_bytes}};
    fmt::print("{}\n", serve::JsonText(out));
  } else {
    fmt::print("{} in {} before, {} in {} now; {} given up, {} written\n", FormatByteSize(old.used_bytes),
               Counted(old.segments, "segment"), FormatByteSize(now.used_bytes), now.segments,
               Counted(old.blocks - now.blocks, "block"), FormatByteSize(now.totals.drive_written_bytes));
  }
  return FlushOutput();
}

/// A number as `ls` shows it. Errors: InvalidArgument naming the flag.
template <class T>
absl::StatusOr<std::optional<T>> ParseNumber(const std::string& text, const char* flag, int base) {
  if (text.empty()) return std::optional<T>();
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(Cat(flag, ": ", text, " is not a number of base ", base));
  }
  return std::optional<T>(value);
}

absl::Status Purge(const StoreFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const TenantNames names, NamesFrom(flags));
  kv::PurgeFilter filter;
  if (!flags.tenant.empty()) {
    const absl::StatusOr<std::optional<uint32_t>> number = ParseNumber<uint32_t>(flags.tenant, "--tenant", 10);
    filter.tenant = TenantId{number.ok() ? **number : serve::TenantKey(flags.tenant)};
  }
  KVIST_ASSIGN_OR_RETURN(filter.cache_namespace, ParseNumber<uint64_t>(flags.cache_namespace, "--namespace", 16));
  KVIST_ASSIGN_OR_RETURN(filter.fingerprint, ParseNumber<uint64_t>(flags.fingerprint, "--model", 16));
  const bool chosen = filter.tenant || filter.cache_namespace || filter.fingerprint;
  if (chosen == flags.all) {
    return absl::InvalidArgumentError("say whose blocks: --tenant, --namespace, --model; or --all");
  }
  KVIST_ASSIGN_OR_RETURN(const auto store, OpenStore(flags, false));
  const auto is_tenants = [&](const kv::BlockStore::Listed& block) {
    return block.facts.origin.tenant == filter.tenant;
  };
  const bool known =
      !filter.tenant || names.contains(filter.tenant->value) || std::ranges::any_of(store->List(), is_tenants);
  KVIST_ASSIGN_OR_RETURN(const uint64_t purged, store->Purge(filter));
  if (!known) {  // A slip of the pen must not look like work that is done.
    std::vector<std::string> others;
    for (const auto& [key, name] : names) others.push_back(name);
    return absl::NotFoundError(Cat(flags.folder, ": no block here is of a tenant '", flags.tenant, "'",
                                   NearWord(flags.tenant, others), "; kvist store stats shows whose blocks there are"));
  }
  if (flags.json) {
    fmt::print("{}\n", serve::JsonText(json::object{{"purged", purged}, {"blocks", store->Figures().blocks}}));
  } else {
    const uint64_t left = store->Figures().blocks;
    fmt::print("{} removed, {} {} left\n", Counted(purged, "block"), FormatCount(left), left == 1 ? "is" : "are");
  }
  return FlushOutput();
}

absl::Status Bench(const StoreFlags& flags) {
  lab::StoreBenchOptions options;
  KVIST_ASSIGN_OR_RETURN(options.bytes, ParseByteSize(flags.bytes));
  KVIST_ASSIGN_OR_RETURN(options.block_bytes, ParseByteSize(flags.block));
  options.keep = flags.keep;
  KVIST_ASSIGN_OR_RETURN(const lab::StoreBenchResult result, lab::BenchStore(flags.folder, options));
  if (flags.json) {
    const json::object out = {{"engine", result.engine},
                              {"direct", result.direct},
                              {"drive_read_bytes_per_s", result.drive_read_bytes_per_s},
                              {"drive_request_bytes", result.drive_request_bytes},
                              {"drive_depth", result.drive_depth},
                              {"store_read_bytes_per_s", result.store_read_bytes_per_s},
                              {"share", result.share},
                              {"cores", result.cores},
                              {"grouped_read_bytes_per_s", result.grouped_read_bytes_per_s},
                              {"first_group_ms", result.first_group_ms},
                              {"write_bytes_per_s", result.write_bytes_per_s},
                              {"open_ms", result.open_ms},
                              {"blocks", result.blocks},
                              {"stored_bytes", result.stored_bytes},
                              {"index_bytes", result.index_bytes}};
    fmt::print("{}\n", serve::JsonText(out));
    return FlushOutput();
  }
  const auto rate = [](double bytes_per_s) { return FormatByteSize(static_cast<uint64_t>(bytes_per_s)) + "/s"; };
  fmt::print(
      "{}{}: the drive reads {} ({} requests of {} at a time), the store {} ({:.0f} %) with {:.2f} cores; layer by"
      " layer {}, the first after {:.1f} ms\n",
      result.engine, result.direct ? ", direct" : ", through the page cache", rate(result.drive_read_bytes_per_s),
      result.drive_depth, FormatByteSize(result.drive_request_bytes), rate(result.store_read_bytes_per_s),
      100 * result.share, result.cores, rate(result.grouped_read_bytes_per_s), result.first_group_ms);
  fmt::print("written at {}; {} found in {:.1f} ms; index {} for {} stored\n", rate(result.write_bytes_per_s),
             Counted(result.blocks, "block"), result.open_ms, FormatByteSize(result.index_bytes),
             FormatByteSize(result.stored_bytes));
  return FlushOutput();
}

/// Measures the folder's drive; the result is kept there.
absl::Status Calibrate(const StoreFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<Disk> disk, OpenRealDisk(flags.folder));
  KVIST_ASSIGN_OR_RETURN(const DiskSpeed speed, CalibrateDisk(*disk));
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(
                                               flags.folder + "/speed", [] { return false; }, FileAccess::kPrivate));
  KVIST_RETURN_IF_ERROR(file.Truncate(0));
  KVIST_RETURN_IF_ERROR(file.Append(EncodeDiskSpeed(speed)));
  KVIST_RETURN_IF_ERROR(file.Publish());
  for (const DiskSpeed::Row& row : speed.rows) {
    if (flags.json) {
      fmt::print("{}\n", serve::JsonText(json::object{{"block_bytes", row.block_bytes},
                                                      {"depth", row.depth},
                                                      {"read_bytes_per_s", row.read_bytes_per_s},
                                                      {"write_bytes_per_s", row.write_bytes_per_s},
                                                      {"best", &row == &speed.Best()}}));
    } else {
      fmt::print("{:>10} x {:<3} reads {:>10}/s  writes {:>10}/s{}\n", FormatByteSize(row.block_bytes), row.depth,
                 FormatByteSize(static_cast<uint64_t>(row.read_bytes_per_s)),
                 FormatByteSize(static_cast<uint64_t>(row.write_bytes_per_s)), &row == &speed.Best() ? "  best" : "");
    }
  }
  return FlushOutput();
}

}  // namespace

void AddStore(CLI::App& app, int& exit_code) {
  CLI::App* store = app.add_subcommand("store", "KV blocks kept on a drive: list, check, tidy, remove");
  store->require_subcommand(1);
  auto flags = std::make_shared<StoreFlags>();
  const auto add = [&](const char* name, const char* text, absl::Status (*run)(const StoreFlags&)) {
    CLI::App* command = store->add_subcommand(name, text);
    command->add_option("DIR", flags->folder, "The store's folder")->required();
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->callback([flags, run, name, &exit_code] {
      if (const absl::Status status = run(*flags); !status.ok()) {
        exit_code = Report((std::string("store ") + name).c_str(), status);
      }
    });
    return command;
  };
  const auto add_names = [&](CLI::App* command) {
    command->add_option("--tenants", flags->tenants, "TOML file of tenants, for their names: blocks have numbers");
    command->add_option("--usage-db", flags->usage_db, "Usage database of a server, for names of all that used it");
  };
  add_names(add("ls", "Every block: id, tenant, model, tokens, bytes, place", List));
  add_names(add("stats", "What is stored, by model and tenant", Stats));
  add("verify", "Reads every block and checks it; exit code 1 when one is damaged", Verify);
  add("gc", "Puts half-empty segments together; no server may be writing", Collect)
      ->add_option("--size", flags->size, "Gives segments up until the store is no larger, such as 10GiB")
      ->check(ByteSize());
  CLI::App* purge = add("purge", "Removes blocks for good; no server may be writing", Purge);
  add_names(purge);
  purge->add_option("--tenant", flags->tenant, "Of this tenant: its name, or its number as ls shows it");
  purge->add_option("--namespace", flags->cache_namespace, "Of this namespace (hexadecimal)");
  purge->add_option("--model", flags->fingerprint, "Of the model with this fingerprint (hexadecimal)");
  purge->add_flag("--all", flags->all, "All of them");
  add("calibrate", "Measures how fast the folder's drive is, and keeps the result there", Calibrate);
  CLI::App* bench =
      add("bench", "Speed of reading stored blocks, beside the drive's own; in a new folder inside DIR", Bench);
  bench->add_option("--bytes", flags->bytes, "That are stored and read")->check(ByteSize())->capture_default_str();
  bench->add_option("--block", flags->block, "Bytes of a block")
      ->check(ByteSize(1, uint64_t{32} << 20))
      ->capture_default_str();
  bench->add_flag("--keep", flags->keep, "Leaves the store in DIR/bench");
}

}  // namespace kvist::cli
