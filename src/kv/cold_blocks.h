#pragma once

/// @file
/// Blocks on tiers below hot memory, as the engine sees them: which of a text's blocks are there, how long they take to
/// come back, reading them into frames and writing them from frames. Calls start work and return; Poll brings what
/// became of it. A block that is read is the one that was written, or it is missing; there are no other errors.
/// Threads: engine thread only. Non-goals: which blocks are worth it (admission.h), frames and their states (KvMemory).

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "kv/content_id.h"

namespace kvist::kv {

/// The longest stored beginning of a chain of blocks.
struct ColdRun {
  uint32_t blocks = 0;
  uint64_t bytes = 0;                          ///< To be read from a drive for them.
  uint32_t memory_blocks = 0;                  ///< Of the blocks, those that are copied from cold memory instead.
  uint32_t memory_asked = 0, drive_asked = 0;  ///< Blocks that each tier was asked for.
};

/// Tiers that a block goes to.
struct ColdPlaces {
  bool memory = false;  ///< Which wears nothing out.
  bool drive = false;
  bool any() const { return memory || drive; }
};

struct ColdRead {
  ContentId id;
  FrameId frame;                    ///< Its bytes go there. Nobody reads or writes it until the load is done.
  std::span<const TokenId> tokens;  ///< What the block must hold.
};

struct ColdWrite {
  ContentId id, parent;
  uint64_t cache_namespace = 0, ops_signature = 0;
  TenantId tenant;
  std::span<const TokenId> tokens;
  FrameId frame;  ///< Unchanged until the store is done.
  ColdPlaces to;
};

using ColdTicket = Strong<struct ColdTicketTag, uint64_t>;

struct ColdNews {
  struct Load {
    ColdTicket ticket;
    std::vector<uint32_t> missing;  ///< Indices of blocks that are not there; their frames hold anything. In order.
  };
  std::vector<Load> loads;         ///< That are done.
  std::vector<ColdTicket> stores;  ///< That are done, whether or not all blocks are stored.
};

inline constexpr std::string_view kColdMemoryTier = "cold_memory", kDriveTier = "drive";

/// A tier as people see it. Totals since it was opened.
struct TierFigures {
  std::string name;
  std::string state, reason;  ///< "writing", "full", "read-only" or "disabled"; why it is not "writing".
  std::string codec;          ///< How bytes are written: "none" (as they were), "int8".
  bool lossless = true;       ///< All that it gives back is what hot memory held when it was computed, bit for bit.
  uint64_t blocks = 0, bytes = 0, bytes_max = 0;
  uint64_t lookup_blocks = 0, hit_blocks = 0;
  uint64_t read_blocks = 0, read_bytes = 0;
  uint64_t missing_blocks = 0;  ///< Asked for, and not there.
  uint64_t stored_blocks = 0, stored_bytes = 0;
  uint64_t refused_blocks = 0;  ///< Offered, and not stored.
  uint64_t evicted_blocks = 0;
  uint64_t forgotten_blocks = 0;  ///< Removed because somebody wished that (Forget, a purge).
  uint64_t faults = 0;            ///< Wrong bytes, and errors of the drive.
  uint64_t drive_read_bytes = 0, drive_written_bytes = 0;
};

/// What blocks of one owner take of a tier.
struct TierHolding {
  std::string_view tier;  ///< kColdMemoryTier, kDriveTier
  TenantId owner;         ///< As ColdWrite says; 0 = nobody.
  uint64_t bytes = 0;     ///< Now.
  double byte_ns = 0;     ///< Bytes times the time that they were there, since the tier was opened.
};

class ColdBlocks {
 public:
  virtual ~ColdBlocks() = default;

  /// In no figures, as a request that waits asks again and again. @param ids  of blocks that follow each other
  virtual ColdRun Lookup(std::span<const ContentId> ids) = 0;
  /// A request goes on with what a Lookup has found: it is in the figures.
  virtual void CountLookup(const ColdRun& run) = 0;
  /// Where a block that is about to leave hot memory is to be offered: to a drive that has not got it, and to cold
  /// memory always, which counts it as used then.
  virtual ColdPlaces PlacesFor(const ContentId& id) const = 0;
  /// How long reading so much is likely to take, from what reads took so far. Nanoseconds.
  virtual double LoadNs(const ColdRun& run) const = 0;
  /// Whether anything that is offered would be stored.
  virtual bool IsWriting() const = 0;

  virtual ColdTicket Load(std::span<const ColdRead> blocks, TimeNs now) = 0;
  /// Blocks of one call lie together, in its order.
  virtual ColdTicket Store(std::span<const ColdWrite> blocks, TimeNs now) = 0;
  /// Appends what is done. @param wait  until something is, if anything is under way
  virtual void Poll(TimeNs now, ColdNews& out, bool wait = false) = 0;
  /// Loads, stores and upkeep that are not done.
  virtual bool busy() const = 0;
  /// Waits for everything, and brings what is stored to where a restart finds it. Nothing may be asked for afterwards
  /// but figures.
  /// @param keep  whether one more block that is in cold memory alone is to be written to the drive; asked until it
  /// says
  ///              no
  virtual void Close(const std::function<bool()>& keep) = 0;

  /// Nobody finds these blocks any more, nor after a restart; those that are being written go as soon as they are. A
  /// load that has begun may still bring them. May wait for a drive that has some of them.
  virtual void Forget(std::span<const ContentId> ids) = 0;

  /// Fastest tier first.
  virtual std::vector<TierFigures> Figures() const = 0;

  /// Time goes on for what is held; between two calls everything counts as done at the first.
  virtual void Advance(TimeNs now) = 0;
  /// Whose blocks take how much, of the tiers that this process writes to.
  virtual std::vector<TierHolding> Holdings() const = 0;
};

}  // namespace kvist::kv
