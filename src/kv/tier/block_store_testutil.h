#pragma once

/// @file
/// Blocks whose bytes follow from their numbers, so that whatever is read can be compared. For tests. Threads: one.

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "kv/tier/block_store.h"

namespace kvist::kv {

/// Block `number`: a name, tokens and a payload that nobody else has.
struct TestBlock {
  explicit TestBlock(uint64_t number, uint64_t payload_bytes, TenantId tenant = {})
      : origin{.fingerprint = 7, .cache_namespace = tenant.value, .tenant = tenant},
        tokens(kBlockTokens),
        payload(payload_bytes) {
    Prng prng(number * 1000003 + tenant.value);
    id = {prng.Next(), prng.Next()};
    for (TokenId& token : tokens) token.value = static_cast<uint32_t>(prng.Next());
    for (size_t i = 0; i + 8 <= payload_bytes; i += 8) {
      const uint64_t word = prng.Next();
      std::memcpy(payload.data() + i, &word, 8);
    }
    size = payload_bytes;
  }
  BlockWrite write() const {
    return {.id = id, .parent = {1, 2}, .origin = origin, .ops_signature = 5, .tokens = tokens, .payload = bytes()};
  }
  std::span<const std::byte> bytes() const { return payload.span().first(size); }

  ContentId id;
  BlockOrigin origin;
  std::vector<TokenId> tokens;
  DiskMemory payload;
  size_t size = 0;
};

/// Reads one ticket to its end.
inline ReadNews WaitForRead(BlockStore& store, StoreTicket ticket) {
  StoreNews news;
  while (true) {
    store.Poll(news, true);
    for (const ReadNews& read : news.reads) {
      if (read.ticket == ticket && read.done) return read;
    }
  }
}

/// Writes blocks and waits. @return how many were refused
inline size_t StoreBlocks(BlockStore& store, std::span<const TestBlock> blocks) {
  std::vector<BlockWrite> writes;
  for (const TestBlock& block : blocks) writes.push_back(block.write());
  const StoreTicket ticket = store.Write(writes);
  StoreNews news;
  while (true) {
    store.Poll(news, true);
    for (const WriteNews& write : news.writes) {
      if (write.ticket == ticket) return write.refused.size();
    }
  }
}

/// What a block reads as: true = right, false = missing. A wrong byte fails `*wrong`.
inline bool ReadsRight(BlockStore& store, const TestBlock& block, bool* wrong) {
  DiskMemory memory(block.size);
  const BlockRead read{.id = block.id, .into = memory.span().first(block.size), .tokens = block.tokens};
  const ReadNews news = WaitForRead(store, store.Read({&read, 1}));
  if (!news.missing.empty()) return false;
  if (!std::ranges::equal(read.into, block.bytes())) *wrong = true;
  return true;
}

}  // namespace kvist::kv
