#include "kv/tier/block_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/tier/block_store_testutil.h"
#include "kv/tier/sim_disk.h"

namespace kvist::kv {
namespace {

const BlockStoreOptions kSmall{.size_max = 4u << 20,
                               .segment_bytes = 256u << 10,
                               .free_bytes_min = 0,
                               .write_bytes = 64u << 10,
                               .read_bytes = 64u << 10,
                               .section_bytes = 4096,
                               .id_seed = 1};

std::vector<TestBlock> MakeBlocks(size_t begin, size_t end, uint64_t bytes, TenantId tenant = {}) {
  std::vector<TestBlock> blocks;
  for (size_t i = begin; i < end; ++i) blocks.emplace_back(i, bytes, tenant);
  return blocks;
}

std::unique_ptr<BlockStore> OpenStore(SimDrive& drive, const BlockStoreOptions& options = kSmall) {
  auto store = BlockStore::Open(drive.Open(), options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

size_t CountRight(BlockStore& store, std::span<const TestBlock> blocks) {
  size_t right = 0;
  for (const TestBlock& block : blocks) {
    bool wrong = false;
    right += ReadsRight(store, block, &wrong);
    EXPECT_FALSE(wrong);
  }
  store.CheckInvariants();
  return right;
}

TEST(BlockStore, WhatWasWrittenIsReadAlsoAfterARestart) {
  SimDrive drive(1);
  // Sizes that end inside a page, and in whole ones.
  std::vector<TestBlock> blocks = MakeBlocks(0, 10, 12288);
  for (TestBlock& block : MakeBlocks(10, 20, 10008)) blocks.push_back(std::move(block));
  for (TestBlock& block : MakeBlocks(20, 30, 64)) blocks.push_back(std::move(block));
  {
    const auto store = OpenStore(drive);
    EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
    EXPECT_EQ(CountRight(*store, blocks), 30u);
    EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
    EXPECT_EQ(store->Figures().totals.duplicate_blocks, 30u);
    EXPECT_EQ(store->Figures().totals.stored_blocks, 30u);
  }
  const auto store = OpenStore(drive);
  EXPECT_EQ(store->Figures().totals.opened_blocks, 30u);
  EXPECT_EQ(store->Figures().totals.unsealed_segments, 0u);
  EXPECT_EQ(CountRight(*store, blocks), 30u);
  std::vector<ContentId> ids;
  for (const TestBlock& block : blocks) ids.push_back(block.id);
  EXPECT_EQ(store->Lookup(ids).blocks, 30u);
  EXPECT_EQ(store->Lookup(ids).payload_bytes, 10u * (12288 + 10008 + 64));
  ids.insert(ids.begin() + 4, ContentId{1, 1});
  EXPECT_EQ(store->Lookup(ids).blocks, 4u);
  for (const BlockStore::Listed& listed : store->List()) EXPECT_EQ(listed.facts.parent, (ContentId{1, 2}));
}

TEST(BlockStore, AKilledProcessLosesNothingThatWasDone) {
  SimDrive drive(2);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 50, 12288);
  {
    const auto store = OpenStore(drive);
    EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
    drive.faults.crash_after = drive.operations();
  }
  drive.Crash(false);
  const auto store = OpenStore(drive);
  EXPECT_GT(store->Figures().totals.unsealed_segments, 0u);
  EXPECT_EQ(CountRight(*store, blocks), 50u);
}

TEST(BlockStore, TheFirstPartOfEveryBlockComesFirst) {
  SimDrive drive(3);
  const auto store = OpenStore(drive);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 12, 5 * 4096 + 100);
  ASSERT_EQ(StoreBlocks(*store, blocks), 0u);
  std::vector<DiskMemory> memory;
  std::vector<BlockRead> reads;
  for (const TestBlock& block : blocks) {
    memory.emplace_back(block.size + 8);
    // Every other destination is not aligned.
    const size_t shift = memory.size() % 2 == 0 ? 8 : 0;
    reads.push_back({.id = block.id, .into = memory.back().span().subspan(shift, block.size)});
  }
  reads.push_back({.id = {9, 9}, .into = {}});
  const StoreTicket ticket = store->Read(reads, 2 * 4096);
  uint64_t before = 0;
  for (bool done = false; !done;) {
    StoreNews news;
    store->Poll(news, true);
    for (const ReadNews& read : news.reads) {
      EXPECT_EQ(read.ticket, ticket);
      EXPECT_GT(read.bytes_ready, before);
      before = read.bytes_ready;
      for (size_t i = 0; i < blocks.size(); ++i) {
        const size_t bytes = std::min<uint64_t>(read.bytes_ready, blocks[i].size);
        EXPECT_TRUE(std::ranges::equal(reads[i].into.first(bytes), blocks[i].bytes().first(bytes)));
      }
      done = read.done;
      EXPECT_THAT(read.missing, testing::ElementsAreArray(std::vector<uint32_t>(done ? 1 : 0, 12u)));
    }
  }
}

TEST(BlockStore, OtherTokensAreAMissAndTheBlockStays) {
  SimDrive drive(4);
  const auto store = OpenStore(drive);
  std::vector<TestBlock> blocks = MakeBlocks(0, 1, 4096);
  ASSERT_EQ(StoreBlocks(*store, blocks), 0u);
  bool wrong = false;
  blocks[0].tokens[3].value ^= 1;
  EXPECT_FALSE(ReadsRight(*store, blocks[0], &wrong));
  blocks[0].tokens[3].value ^= 1;
  EXPECT_TRUE(ReadsRight(*store, blocks[0], &wrong));
  EXPECT_EQ(store->Figures().totals.missing[static_cast<size_t>(ReadFault::kTokens)], 1u);
}

TEST(BlockStore, OneWriterAndReadersBesideIt) {
  SimDrive drive(5);
  BlockStoreOptions reading = kSmall;
  reading.read_only = true;
  EXPECT_TRUE(absl::IsNotFound(BlockStore::Open(drive.Open(), reading).status()));
  const auto writer = OpenStore(drive);
  EXPECT_TRUE(absl::IsUnavailable(BlockStore::Open(drive.Open(), kSmall).status()));
  const std::vector<TestBlock> blocks = MakeBlocks(0, 60, 12288), others = MakeBlocks(60, 90, 12288, TenantId{1});
  for (size_t i = 0; i < 60; i += 2) {
    ASSERT_EQ(StoreBlocks(*writer, std::span(blocks).subspan(i, 2)), 0u);
    ASSERT_EQ(StoreBlocks(*writer, std::span(others).subspan(i / 2, 1)), 0u);
  }
  const auto before = drive.files().size();
  const auto reader = OpenStore(drive, reading);
  EXPECT_EQ(CountRight(*reader, blocks), 60u);
  EXPECT_EQ(StoreBlocks(*reader, MakeBlocks(100, 101, 64)), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->Purge({}).status()));
  EXPECT_EQ(drive.files().size(), before);
  // The writer removes blocks under its feet.
  ASSERT_TRUE(writer->Purge({.tenant = TenantId{0}}).ok());
  EXPECT_EQ(CountRight(*reader, blocks), 0u);
  EXPECT_EQ(CountRight(*reader, others), 30u);
}

TEST(BlockStore, StaysInItsSizeAndWritesLittleAgain) {
  for (const bool value : {false, true}) {
    SimDrive drive(6);
    BlockStoreOptions options = kSmall;
    if (value) options.eviction = std::make_shared<ValueOrder>();
    const auto store = OpenStore(drive, options);
    Prng prng(1);
    const std::vector<TestBlock> favourites = MakeBlocks(0, 20, 8192);
    ASSERT_EQ(StoreBlocks(*store, favourites), 0u);
    for (size_t round = 0; round < 120; ++round) {
      const std::vector<TestBlock> blocks = MakeBlocks(1000 + round * 20, 1000 + round * 20 + 20, 8192);
      EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
      std::vector<ContentId> used;
      for (const TestBlock& block : favourites) used.push_back(block.id);
      // Others are used too, more than may be carried on.
      for (size_t i = 0; i < 15; ++i) used.push_back(blocks[i].id);
      store->Touch(used);
      const StoreFigures figures = store->Figures();
      EXPECT_LE(drive.used_bytes(), options.size_max + 2 * kStorePage);
      EXPECT_LE(figures.used_bytes, options.size_max);
      store->CheckInvariants();
    }
    const StoreFigures figures = store->Figures();
    EXPECT_GT(figures.totals.evicted_blocks, 1000u);
    EXPECT_GT(figures.totals.carried_blocks, 50u);
    const double again = static_cast<double>(figures.totals.carried_bytes) /
                         static_cast<double>(figures.totals.drive_written_bytes - figures.totals.carried_bytes);
    EXPECT_LE(again, options.carry_share / (1 - options.carry_share));
    EXPECT_GE(CountRight(*store, favourites), value ? 1u : 19u);
  }
}

TEST(BlockStore, ALongTextIsCarriedOnFromItsBeginning) {
  SimDrive drive(7);
  const auto store = OpenStore(drive);
  const std::vector<TestBlock> text = MakeBlocks(0, 25, 8192);
  ASSERT_EQ(StoreBlocks(*store, text), 0u);
  std::vector<ContentId> ids;
  for (const TestBlock& block : text) ids.push_back(block.id);
  store->Touch(ids);
  for (size_t i = 100; i < 500; i += 20) ASSERT_EQ(StoreBlocks(*store, MakeBlocks(i, i + 20, 8192)), 0u);
  StoreNews news;
  while (store->busy()) store->Poll(news, true);
  const StoredRun run = store->Lookup(ids);
  EXPECT_GT(run.blocks, 2u);
  size_t stored = 0;
  for (const ContentId& id : ids) stored += store->Contains(id);
  EXPECT_EQ(stored, run.blocks);
}

TEST(BlockStore, PurgedBlocksAreInNoFile) {
  SimDrive drive(8);
  const TenantId bad{666}, good{1};
  std::vector<TestBlock> theirs, others;
  {
    const auto store = OpenStore(drive);
    for (size_t round = 0; round < 8; ++round) {
      std::vector<TestBlock> mixed = MakeBlocks(round * 10, round * 10 + 4, 9000, bad);
      ASSERT_EQ(StoreBlocks(*store, mixed), 0u);
      std::ranges::move(mixed, std::back_inserter(theirs));
      mixed = MakeBlocks(round * 10, round * 10 + 4, 9000, good);
      ASSERT_EQ(StoreBlocks(*store, mixed), 0u);
      std::ranges::move(mixed, std::back_inserter(others));
    }
    // One of theirs is damaged: nobody finds it any more, but its bytes are there.
    drive.faults.flipped_read = 1;
    bool wrong = false;
    EXPECT_FALSE(ReadsRight(*store, theirs[0], &wrong));
    drive.faults = {};
    EXPECT_TRUE(drive.Holds(theirs[0].bytes().first(4096)));
    const absl::StatusOr<uint64_t> purged = store->Purge({.tenant = bad});
    ASSERT_TRUE(purged.ok()) << purged.status();
    EXPECT_EQ(*purged, 31u);
    EXPECT_EQ(CountRight(*store, theirs), 0u);
    EXPECT_EQ(CountRight(*store, others), 32u);
    // It goes on.
    EXPECT_EQ(StoreBlocks(*store, MakeBlocks(1000, 1010, 9000, good)), 0u);
  }
  for (const TestBlock& block : theirs) {
    EXPECT_FALSE(drive.Holds(block.bytes().first(64)));
    EXPECT_FALSE(drive.Holds(block.bytes().last(64)));
    EXPECT_FALSE(drive.Holds(std::as_bytes(std::span(block.tokens))));
    EXPECT_FALSE(drive.Holds(std::as_bytes(std::span(&block.id, 1))));
  }
  const auto store = OpenStore(drive);
  EXPECT_EQ(CountRight(*store, others), 32u);
  EXPECT_EQ(store->Figures().totals.unsealed_segments, 0u);
}

TEST(BlockStore, CompactionPutsSmallSegmentsTogether) {
  SimDrive drive(9);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 12, 12288);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto store = OpenStore(drive);
    ASSERT_EQ(StoreBlocks(*store, std::span(blocks).subspan(i, 1)), 0u);
  }
  const auto store = OpenStore(drive);
  EXPECT_EQ(store->Figures().segments, 12u);
  ASSERT_TRUE(store->Compact().ok());
  EXPECT_EQ(store->Figures().segments, 1u);
  EXPECT_EQ(CountRight(*store, blocks), 12u);
  const uint64_t written = store->Figures().totals.drive_written_bytes;
  ASSERT_TRUE(store->Compact().ok());
  EXPECT_EQ(store->Figures().totals.drive_written_bytes, written);
}

TEST(BlockStore, ADriveThatFailsEndsInReadingAloneAndThenInNothing) {
  SimDrive drive(10);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 40, 12288);
  const auto fails = [&](SimFaults faults) {
    SimDrive one(11);
    const auto store = OpenStore(one);
    EXPECT_EQ(StoreBlocks(*store, std::span(blocks).first(10)), 0u);
    one.faults = faults;
    StoreBlocks(*store, std::span(blocks).subspan(10));
    StoreNews news;
    while (store->busy()) store->Poll(news, true);
    one.faults = {};
    EXPECT_EQ(store->Figures().state, StoreState::kReadOnly) << store->Figures().reason;
    EXPECT_NE(store->Figures().reason, "");
    EXPECT_EQ(StoreBlocks(*store, MakeBlocks(100, 101, 64)), 1u);
    EXPECT_GE(CountRight(*store, blocks), 10u);
  };
  fails({.write_error = 1});
  fails({.sync_error = 1});
  const auto store = OpenStore(drive);
  ASSERT_EQ(StoreBlocks(*store, blocks), 0u);
  drive.faults.read_error = 1;
  EXPECT_EQ(CountRight(*store, blocks), 0u);
  EXPECT_EQ(store->Figures().state, StoreState::kDisabled);
  EXPECT_EQ(store->Lookup({&blocks[39].id, 1}).blocks, 0u);
}

TEST(BlockStore, LittleRoomOnTheDriveIsRespected) {
  SimDrive drive(12);
  drive.faults.room_bytes = 3u << 20;
  BlockStoreOptions options = kSmall;
  options.free_bytes_min = 1u << 20;
  const auto store = OpenStore(drive, options);
  for (size_t round = 0; round < 40; ++round) {
    EXPECT_EQ(StoreBlocks(*store, MakeBlocks(round * 20, round * 20 + 20, 8192)), 0u);
    EXPECT_LE(drive.used_bytes(), 2u << 20);
  }
  EXPECT_EQ(store->Figures().state, StoreState::kWriting);
}

TEST(BlockStore, ADriveThatOthersHaveFilledIsToldAndUsedAgainWhenThereIsRoom) {
  SimDrive drive(16);
  drive.faults.room_bytes = 1u << 20;
  BlockStoreOptions options = kSmall;
  options.free_bytes_min = 1u << 20;
  const auto store = OpenStore(drive, options);
  EXPECT_EQ(store->Figures().state, StoreState::kFull) << "before anything is offered";
  EXPECT_NE(store->Figures().reason.find("free on the drive"), std::string::npos) << store->Figures().reason;
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(0, 4, 8192)), 4u);
  drive.faults.room_bytes = 8u << 20;
  EXPECT_EQ(store->Figures().state, StoreState::kWriting);
  EXPECT_EQ(store->Figures().reason, "");
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(0, 4, 8192)), 0u);
}

TEST(BlockStore, AWriteThatFoundNoRoomIsTriedAgainWhenThereIsSome) {
  for (const bool room_unknown : {false, true}) {
    SCOPED_TRACE(room_unknown);
    SimDrive drive(18);
    drive.faults.room_unknown = room_unknown;
    const std::vector<TestBlock> early = MakeBlocks(0, 12, 8192), late = MakeBlocks(12, 40, 8192);
    {
      const auto store = OpenStore(drive);
      EXPECT_EQ(StoreBlocks(*store, early), 0u);
      drive.faults.room_bytes = drive.used_bytes() + (20u << 10);  // Others have filled it all at once.
      const size_t refused = StoreBlocks(*store, late);
      EXPECT_GT(refused, 20u);
      EXPECT_EQ(store->Figures().state, StoreState::kFull);
      EXPECT_EQ(store->state(), StoreState::kFull);
      EXPECT_EQ(store->Figures().reason, "no room");
      EXPECT_EQ(CountRight(*store, early), early.size()) << "what is stored is still read";
      EXPECT_EQ(StoreBlocks(*store, late), refused) << "and nothing is written";
      if (!room_unknown) {
        for (int i = 0; i < 100; ++i) store->CheckDrive();
        EXPECT_EQ(store->state(), StoreState::kFull);
      }
      drive.faults.room_bytes = UINT64_MAX;
      for (int i = 0; i < 2; ++i) store->CheckDrive();
      EXPECT_EQ(store->Figures().state, StoreState::kWriting) << "within seconds";
      EXPECT_EQ(store->Figures().reason, "");
      EXPECT_EQ(StoreBlocks(*store, late), 0u);
      EXPECT_EQ(CountRight(*store, early) + CountRight(*store, late), 40u);
    }
    const auto store = OpenStore(drive);
    EXPECT_EQ(store->Figures().totals.unsealed_segments, 0u);
    EXPECT_EQ(CountRight(*store, early) + CountRight(*store, late), 40u);
  }
}

TEST(BlockStore, WhoCannotTellHowMuchRoomThereIsTriesLessAndLessOften) {
  SimDrive drive(19);
  drive.faults.room_unknown = true;
  const auto store = OpenStore(drive);
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(0, 12, 8192)), 0u);
  drive.faults.room_bytes = drive.used_bytes();
  uint64_t number = 100, checks = 0, tries = 0;
  for (; checks < 400; ++checks) {
    tries += store->state() == StoreState::kWriting;
    EXPECT_EQ(StoreBlocks(*store, MakeBlocks(number, number + 1, 8192)), 1u);
    ++number;
    store->CheckDrive();
  }
  EXPECT_EQ(tries, 11u);  // At 0, 2, 6, 14, 30, 62, and then at each 64th.
  drive.faults.room_bytes = UINT64_MAX;
  for (int i = 0; i < 64; ++i) store->CheckDrive();
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(0, 40, 8192)), 0u);
  EXPECT_EQ(store->Figures().state, StoreState::kWriting);
}

TEST(BlockStore, WhatIsForgottenWhileThereIsNoRoomStaysForgotten) {
  SimDrive drive(20);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 12, 8192);
  {
    const auto store = OpenStore(drive);
    EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
    drive.faults.room_bytes = drive.used_bytes();
    EXPECT_EQ(StoreBlocks(*store, MakeBlocks(20, 21, 8192)), 1u);
    ASSERT_EQ(store->state(), StoreState::kFull);
    EXPECT_TRUE(store->Forget(std::vector{blocks[3].id}).ok()) << "though there is no room for an index";
    EXPECT_FALSE(store->Contains(blocks[3].id));
    EXPECT_FALSE(drive.Holds(blocks[3].bytes().first(64)));
  }
  drive.faults.room_bytes = UINT64_MAX;
  EXPECT_EQ(CountRight(*OpenStore(drive), blocks), 11u);
}

TEST(BlockStore, WhatAWriteThatFoundNoRoomLeftBehindIsPurgedToo) {
  SimDrive drive(22);
  const std::vector<TestBlock> others = MakeBlocks(0, 6, 8192), tenants = MakeBlocks(6, 9, 8192, TenantId{2});
  const auto store = OpenStore(drive);
  EXPECT_EQ(StoreBlocks(*store, others), 0u);
  drive.faults.room_bytes = drive.used_bytes() + (20u << 10);
  EXPECT_EQ(StoreBlocks(*store, tenants), tenants.size());
  EXPECT_TRUE(drive.Holds(tenants[0].bytes().first(64)));
  drive.faults.room_bytes = UINT64_MAX;
  for (int i = 0; i < 2; ++i) store->CheckDrive();
  StoreNews news;
  while (store->busy()) store->Poll(news, true);  // Its segment is sealed.
  EXPECT_EQ(store->Purge({.tenant = TenantId{2}}).value(), 0u) << "none of them counts as stored";
  EXPECT_FALSE(drive.Holds(tenants[0].bytes().first(64)));
  EXPECT_EQ(CountRight(*store, others), others.size());
}

TEST(BlockStore, ADriveThatFailsIsNotWrittenToAgain) {
  SimDrive drive(21);
  const auto store = OpenStore(drive);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 12, 8192);
  EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
  drive.faults.write_error = 1;
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(20, 21, 8192)), 1u);
  drive.faults.write_error = 0;
  for (int i = 0; i < 100; ++i) store->CheckDrive();
  EXPECT_EQ(store->Figures().state, StoreState::kReadOnly);
  EXPECT_EQ(CountRight(*store, blocks), blocks.size());
}

TEST(BlockStore, AFolderThatWasRemovedDisablesIt) {
  SimDrive drive(17);
  const auto store = OpenStore(drive);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 4, 8192);
  EXPECT_EQ(StoreBlocks(*store, blocks), 0u);
  store->CheckDrive();
  EXPECT_EQ(store->Figures().state, StoreState::kWriting);
  drive.faults.folder_removed = true;
  store->CheckDrive();
  EXPECT_EQ(store->Figures().state, StoreState::kDisabled);
  EXPECT_EQ(store->Figures().reason, "the folder was removed");
  EXPECT_EQ(CountRight(*store, blocks), 0u);
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(4, 8, 8192)), 4u);
}

TEST(BlockStore, AnotherVersionOrALostIdentityIsAnEmptyStore) {
  SimDrive drive(13);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 5, 8192);
  const auto fill = [&] { EXPECT_EQ(StoreBlocks(*OpenStore(drive), blocks), 0u); };
  fill();
  drive.files()["store"]->data[100] ^= std::byte{1};
  EXPECT_EQ(CountRight(*OpenStore(drive), blocks), 5u);  // The second page says the same.
  drive.files()["store"]->data[4096 + 8] = std::byte{77};
  {
    const auto store = OpenStore(drive);
    EXPECT_EQ(store->Figures().totals.resets, 1u);
    EXPECT_EQ(CountRight(*store, blocks), 0u);
  }
  fill();
  EXPECT_EQ(CountRight(*OpenStore(drive), blocks), 5u);
  // Segments of another store are not this one's.
  SimDrive other(14);
  BlockStoreOptions options = kSmall;
  options.id_seed = 2;
  EXPECT_EQ(StoreBlocks(*OpenStore(other, options), blocks), 0u);
  for (auto& [name, file] : drive.files()) {
    if (SegmentNumber(name) > 0) other.files()[SegmentName(50)] = file;
  }
  std::erase_if(other.files(),
                [](const auto& f) { return SegmentNumber(f.first) > 0 && SegmentNumber(f.first) != 50; });
  EXPECT_EQ(CountRight(*OpenStore(other, options), blocks), 0u);
}

TEST(BlockStore, BlocksThatFitNoSegmentAreRefused) {
  SimDrive drive(15);
  const auto store = OpenStore(drive);
  EXPECT_EQ(StoreBlocks(*store, MakeBlocks(0, 1, 300u << 10)), 1u);
  EXPECT_EQ(store->Figures().totals.refused_blocks, 1u);
  EXPECT_EQ(store->Figures().state, StoreState::kWriting);
}

TEST(BlockStore, TheIndexTakesLittleMemory) {
  StoreIndex index;
  constexpr uint64_t kPayload = 96u << 10;
  for (uint64_t i = 0; i < 100000; ++i) {
    index.Insert({.id = {Mix64(i), i}, .payload_bytes = kPayload, .section_bytes = 4096, .tokens = 16},
                 {.segment = SegmentId{i / 600 + 1}, .offset = i % 600 * (kPayload + 4096)});
  }
  EXPECT_LE(static_cast<double>(index.memory_bytes()), 0.002 * static_cast<double>(index.payload_bytes()));
  index.CheckInvariants();
}

std::vector<ContentId> IdsOf(std::span<const TestBlock> blocks) {
  std::vector<ContentId> ids;
  for (const TestBlock& block : blocks) ids.push_back(block.id);
  return ids;
}

TEST(BlockStore, ForgottenBlocksAreInNoFileNorThereAfterARestart) {
  for (const bool power : {false, true}) {
    SimDrive drive(20);
    const std::vector<TestBlock> blocks = MakeBlocks(0, 40, 9000), more = MakeBlocks(100, 110, 9000);
    const auto gone = std::span(blocks).subspan(10, 20);
    {
      const auto store = OpenStore(drive);
      ASSERT_EQ(StoreBlocks(*store, std::span(blocks).first(20)), 0u);
      // Half of them are on their way, and one of them is damaged for a reader: its bytes are there.
      std::vector<BlockWrite> writes;
      for (const TestBlock& block : std::span(blocks).subspan(20)) writes.push_back(block.write());
      drive.faults.flipped_read = 1;
      bool wrong = false;
      EXPECT_FALSE(ReadsRight(*store, gone[0], &wrong));
      drive.faults = {};
      store->Write(writes);
      ASSERT_TRUE(store->Forget(IdsOf(gone)).ok());
      EXPECT_EQ(CountRight(*store, gone), 0u);
      EXPECT_EQ(CountRight(*store, blocks), 20u);
      EXPECT_EQ(StoreBlocks(*store, more), 0u);  // It goes on.
      for (const TestBlock& block : gone) EXPECT_FALSE(drive.Holds(block.bytes().first(64)));
      drive.faults.crash_after = drive.operations();
    }
    drive.Crash(power);
    const auto store = OpenStore(drive);
    EXPECT_EQ(CountRight(*store, gone), 0u);
    EXPECT_EQ(CountRight(*store, blocks), 20u);
    EXPECT_EQ(store->Figures().totals.damaged_blocks, 0u) << "nobody believes that they are there";
  }
}

TEST(BlockStore, ForgettingFindsBlocksThatAreBeingCarriedOn) {
  SimDrive drive(21);
  const auto store = OpenStore(drive);
  const std::vector<TestBlock> favourites = MakeBlocks(0, 10, 8192);
  ASSERT_EQ(StoreBlocks(*store, favourites), 0u);
  store->Touch(IdsOf(favourites));
  size_t next = 1000;
  while (store->Figures().totals.drive_read_bytes == 0) {  // Until the first segment begins to be carried on.
    ASSERT_EQ(StoreBlocks(*store, MakeBlocks(next, next + 1, 8192)), 0u);
    ++next;
  }
  ASSERT_TRUE(store->Forget(IdsOf(favourites)).ok());
  for (const TestBlock& block : favourites) EXPECT_FALSE(drive.Holds(block.bytes().first(64)));
  EXPECT_EQ(CountRight(*store, favourites), 0u);
}

TEST(BlockStore, AReaderForgetsForItself) {
  SimDrive drive(22);
  const std::vector<TestBlock> blocks = MakeBlocks(0, 4, 9000);
  const auto writer = OpenStore(drive);
  ASSERT_EQ(StoreBlocks(*writer, blocks), 0u);
  BlockStoreOptions reading = kSmall;
  reading.read_only = true;
  const auto reader = OpenStore(drive, reading);
  ASSERT_TRUE(reader->Forget(IdsOf(std::span(blocks).first(1))).ok());
  EXPECT_EQ(CountRight(*reader, blocks), 3u);
  EXPECT_EQ(CountRight(*writer, blocks), 4u);
}

}  // namespace
}  // namespace kvist::kv
