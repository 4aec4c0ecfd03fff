// Random programs on a simulated drive that fails in every way, against what was written: a block that is read is right
// or missing. KVIST_STORE_SEEDS says how many (nightly: thousands); KVIST_STORE_SEED runs one.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "kv/tier/block_store_testutil.h"
#include "kv/tier/sim_disk.h"
#include "platform/real_disk.h"
#include "platform/temp_folder.h"

namespace kvist::kv {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// A store under a random program: some dozens of blocks, written, read, used, purged, over many lives of the process.
class Program {
 public:
  explicit Program(uint64_t seed) : prng_(Mix64(seed)), drive_(seed) {
    options_ = {.size_max = 1u << 20,
                .segment_bytes = 128u << 10,
                .free_bytes_min = 0,
                .write_bytes = 32u << 10,
                .read_bytes = 32u << 10,
                .section_bytes = 4096,
                .id_seed = seed + 1};
    if (prng_.Below(2) == 0) options_.eviction = std::make_shared<ValueOrder>();
    for (uint64_t i = 0; i < 160; ++i) {
      blocks_.emplace_back(seed * 1000 + i, 64 + prng_.Below(3 * 4096), TenantId{static_cast<uint32_t>(i % 3)});
    }
  }

  void Run() {
    for (int life = 0; life < 4 && !testing::Test::HasFailure(); ++life) {
      ChooseFaults();
      Live();
      if (store_ != nullptr) store_.reset();
      pending_.clear();
      drive_.Crash(prng_.Below(2) == 0);
      if (prng_.Below(3) == 0) drive_.FlipSomewhere();
    }
    // After the bad days: whatever is left is right, and the store can be used.
    drive_.faults = {};
    auto store = BlockStore::Open(drive_.Open(), options_);
    ASSERT_TRUE(store.ok()) << store.status();
    for (const TestBlock& block : blocks_) {
      bool wrong = false;
      ReadsRight(**store, block, &wrong);
      EXPECT_FALSE(wrong);
    }
    EXPECT_EQ((*store)->Figures().state, StoreState::kWriting) << (*store)->Figures().reason;
    std::vector<TestBlock> fresh;
    for (uint64_t i = 0; i < 5; ++i) fresh.emplace_back(1000000 + i, 5000);
    EXPECT_EQ(StoreBlocks(**store, fresh), 0u);
    for (const TestBlock& block : fresh) {
      bool wrong = false;
      EXPECT_TRUE(ReadsRight(**store, block, &wrong) && !wrong);
    }
    (*store)->CheckInvariants();
  }

 private:
  struct PendingRead {
    std::vector<size_t> numbers;
    std::vector<DiskMemory> memory;
    std::vector<size_t> shifts;
  };

  double Often() { return prng_.Below(4) == 0 ? 0.02 + 0.1 * prng_.Uniform() : 0; }

  void ChooseFaults() {
    drive_.faults = {.torn_write = Often(),
                     .misdirected_write = Often(),
                     .lost_write = Often(),
                     .flipped_bit = Often(),
                     .flipped_read = Often() / 10,
                     .short_read = Often(),
                     .read_error = Often(),
                     .write_error = Often() / 5,
                     .sync_error = Often() / 3,
                     .name_error = Often() / 5};
    bad_drive_ |= drive_.faults.misdirected_write > 0 || drive_.faults.lost_write > 0 || drive_.faults.torn_write > 0;
    ChooseRoom();
    if (prng_.Below(2) == 0) drive_.faults.crash_after = drive_.operations() + prng_.Below(400);
  }

  void ChooseRoom() {
    const bool bounded = prng_.Below(4) == 0;
    drive_.faults.room_bytes = bounded ? (200u << 10) + prng_.Below(800u << 10) : UINT64_MAX;
    drive_.faults.room_unknown = prng_.Below(2) == 0;
  }

  void Live() {
    auto store = BlockStore::Open(drive_.Open(), options_);
    if (!store.ok()) return;  // The drive failed at once.
    store_ = *std::move(store);
    for (int i = 0; i < 80 && !testing::Test::HasFailure(); ++i) {
      switch (prng_.Below(9)) {
        case 0:
        case 1:
        case 2:
          Write();
          break;
        case 3:
        case 4:
          Read();
          break;
        case 5:
          Touch();
          break;
        case 6:
          if (prng_.Below(8) == 0) Purge();
          if (prng_.Below(16) == 0) (void)store_->Compact();
          break;
        case 7:  // Others fill the drive and empty it again.
          if (prng_.Below(4) == 0) ChooseRoom();
          store_->CheckDrive();
          break;
        default:
          Poll(prng_.Below(2) == 0);
      }
      store_->CheckInvariants();
    }
    while (store_->busy()) Poll(true);
    Poll(false);  // What was told while something else waited.
    CheckCounts();
  }

  std::vector<size_t> Choose() {
    // Runs, as texts have them.
    const size_t begin = prng_.Below(blocks_.size()), count = 1 + prng_.Below(12);
    std::vector<size_t> numbers;
    for (size_t i = begin; i < std::min(begin + count, blocks_.size()); ++i) numbers.push_back(i);
    if (prng_.Below(3) == 0) std::ranges::reverse(numbers);
    return numbers;
  }

  void Write() {
    std::vector<BlockWrite> writes;
    for (const size_t number : Choose()) writes.push_back(blocks_[number].write());
    offered_ += writes.size();
    store_->Write(writes);
  }

  void Read() {
    PendingRead pending{.numbers = Choose()};
    std::vector<BlockRead> reads;
    for (const size_t number : pending.numbers) {
      const TestBlock& block = blocks_[number];
      const size_t shift = prng_.Below(4) == 0 ? 8 : 0;
      pending.shifts.push_back(shift);
      pending.memory.emplace_back(block.size + shift);
      reads.push_back({.id = block.id, .into = pending.memory.back().span().subspan(shift, block.size)});
      if (prng_.Below(2) == 0) reads.back().tokens = block.tokens;
    }
    asked_ += reads.size();
    const StoreTicket ticket = store_->Read(reads, prng_.Below(3) * 4096);
    pending_.emplace(ticket.value, std::move(pending));
  }

  void Touch() {
    std::vector<ContentId> ids;
    for (const size_t number : Choose()) ids.push_back(blocks_[number].id);
    const StoredRun run = store_->Lookup(ids);
    EXPECT_LE(run.blocks, ids.size());
    store_->Touch(ids);
  }

  void Purge() {
    const TenantId tenant{static_cast<uint32_t>(prng_.Below(3))};
    if (!store_->Purge({.tenant = tenant}).ok()) return;
    for (const TestBlock& block : blocks_) {
      EXPECT_FALSE(block.origin.tenant == tenant && store_->Contains(block.id));
    }
    if (bad_drive_) return;  // It keeps what it likes, where it likes.
    for (const TestBlock& block : blocks_) {
      EXPECT_FALSE(block.origin.tenant == tenant && drive_.Holds(block.bytes().first(64)));
    }
  }

  void Poll(bool wait) {
    StoreNews news;
    store_->Poll(news, wait);
    for (const ReadNews& read : news.reads) Compare(read);
  }

  void Compare(const ReadNews& read) {
    const auto it = pending_.find(read.ticket.value);
    ASSERT_NE(it, pending_.end());
    const PendingRead& pending = it->second;
    if (read.done) {
      for (size_t i = 0; i < pending.numbers.size(); ++i) {
        if (std::ranges::count(read.missing, i) > 0) continue;
        const TestBlock& block = blocks_[pending.numbers[i]];
        EXPECT_TRUE(std::ranges::equal(pending.memory[i].span().subspan(pending.shifts[i], block.size), block.bytes()))
            << "block " << pending.numbers[i];
        ++right_;
      }
      missed_ += read.missing.size();
      pending_.erase(it);
    }
  }

  /// Every block is accounted for.
  void CheckCounts() {
    const StoreFigures figures = store_->Figures();
    uint64_t missing = 0;
    for (const uint64_t count : figures.totals.missing) missing += count;
    EXPECT_TRUE(pending_.empty());
    EXPECT_EQ(missing, missed_);
    EXPECT_EQ(figures.totals.read_blocks, right_);
    EXPECT_EQ(missing + figures.totals.read_blocks, asked_);
    EXPECT_EQ(figures.totals.stored_blocks + figures.totals.duplicate_blocks + figures.totals.refused_blocks, offered_);
    asked_ = offered_ = right_ = missed_ = 0;
  }

  Prng prng_;
  SimDrive drive_;
  BlockStoreOptions options_;
  std::vector<TestBlock> blocks_;
  std::map<uint64_t, PendingRead> pending_;
  std::unique_ptr<BlockStore> store_;
  uint64_t asked_ = 0, offered_ = 0, right_ = 0, missed_ = 0;
  bool bad_drive_ = false;  ///< It has lost or moved writes.
};

TEST(BlockStoreFaults, ABlockIsRightOrMissing) {
  const uint64_t only = FromEnvironment("KVIST_STORE_SEED", 0), seeds = FromEnvironment("KVIST_STORE_SEEDS", 60);
  for (uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    SCOPED_TRACE(testing::Message() << "KVIST_STORE_SEED=" << seed);
    Program(seed).Run();
    if (HasFailure()) return;
  }
}

/// Writes blocks in an endless loop. Never returns.
void WriteForever(const std::string& folder, const BlockStoreOptions& options, std::span<const TestBlock> blocks,
                  uint64_t seed) {
  auto disk = OpenRealDisk(folder);
  auto store = disk.ok() ? BlockStore::Open(*std::move(disk), options) : disk.status();
  if (!store.ok()) ::_exit(1);
  Prng prng(seed);
  while (true) {
    std::vector<BlockWrite> writes;
    const size_t begin = prng.Below(blocks.size());
    for (size_t i = begin; i < std::min(begin + 9, blocks.size()); ++i) writes.push_back(blocks[i].write());
    (*store)->Write(writes);
    StoreNews news;
    (*store)->Poll(news, prng.Below(3) == 0);
  }
}

TEST(BlockStoreFaults, AProcessThatIsKilledWhileItWritesLeavesRightBlocks) {
  const TempFolder folder = *TempFolder::Create("/tmp");
  const BlockStoreOptions options{.size_max = 4u << 20, .segment_bytes = 256u << 10, .free_bytes_min = 0};
  std::vector<TestBlock> blocks;
  for (uint64_t i = 0; i < 800; ++i) blocks.emplace_back(i, 8000 + i % 2 * 192);
  Prng prng(FromEnvironment("KVIST_STORE_SEED", 1));
  const uint64_t kills = FromEnvironment("KVIST_STORE_KILLS", 12);
  size_t found = 0;
  for (uint64_t kill = 0; kill < kills; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForever(folder.path(), options, blocks, kill);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + prng.Below(60)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer could not open the store";
    auto store = BlockStore::Open(*OpenRealDisk(folder.path()), options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (const TestBlock& block : blocks) {
      bool wrong = false;
      found += ReadsRight(**store, block, &wrong);
      ASSERT_FALSE(wrong);
    }
    (*store)->CheckInvariants();
  }
  EXPECT_GT(found, 0u);
}

}  // namespace
}  // namespace kvist::kv
