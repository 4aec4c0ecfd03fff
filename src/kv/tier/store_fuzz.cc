/// @file
/// Feeds arbitrary bytes to a store as one of its segments, as they are and with right checksums, and reads what it
/// then claims to have. Seeds: tests/fuzz/store/.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kv/tier/block_store_testutil.h"
#include "kv/tier/sim_disk.h"
#include "kv/tier/store_format_testutil.h"

namespace kvist::kv {
namespace {

/// Whatever is read has the checksums of its header, so its bytes are those that somebody wrote.
void OpenWith(std::span<const std::byte> segment) {
  SimDrive drive(1);
  const BlockStoreOptions options{.size_max = 8u << 20, .segment_bytes = 1u << 20, .free_bytes_min = 0, .id_seed = 1};
  KVIST_CHECK(BlockStore::Open(drive.Open(), options).ok());
  auto file = std::make_shared<SimDrive::File>();
  file->data.assign(segment.begin(), segment.end());
  drive.files()[SegmentName(1)] = file;
  auto store = BlockStore::Open(drive.Open(), options);
  KVIST_CHECK(store.ok());
  (*store)->CheckInvariants();
  for (const BlockStore::Listed& listed : (*store)->List()) {
    KVIST_CHECK(listed.at.offset + listed.facts.record_bytes() <= segment.size());
    DiskMemory memory(listed.facts.payload_bytes);
    const BlockRead read{.id = listed.facts.id, .into = memory.span().first(listed.facts.payload_bytes)};
    WaitForRead(**store, (*store)->Read({&read, 1}, 4096));
  }
  KVIST_CHECK((*store)->Purge({.tenant = TenantId{1}}).ok());
  (*store)->CheckInvariants();
}

}  // namespace
}  // namespace kvist::kv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvist::kv::kStorePage;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> image(begin, begin + size);
  kvist::kv::OpenWith(image);
  image.resize((size + kStorePage - 1) / kStorePage * kStorePage);
  for (size_t at = 0; at < image.size(); at += kStorePage) {
    // Only pages that mean to be headers: payloads stay as they are.
    const std::span<std::byte> page = std::span(image).subspan(at, kStorePage);
    if (std::memcmp(page.data(), "kvist", 5) == 0) kvist::kv::SealPage(page);
  }
  kvist::kv::OpenWith(image);
  (void)kvist::kv::ParseStoreIdentity(image);
  return 0;
}
