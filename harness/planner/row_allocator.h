// Room for the rows of many sequences, from the placements that caches use, without the rows.
//
// Each group of layers with one spec (variants/model_cache) has a placement for one of its layers, and each of its bytes
// counts once a layer. The placement allocates through a Memory that counts; addresses of rows, which only kernels would
// touch, have no memory behind them, while block tables and free lists are real. So blocks, slack and refusals are the
// placement's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::planner {

struct Room {
  int64_t bytes = 0;           // for caches, beside the weights
  int64_t max_tokens = 0;      // longest sequence; contiguous caches reserve it
  int64_t typical_tokens = 0;  // usual sequence; groups that differ divide the pool by its needs
  int max_sequences = 1;       // at once
};

class RowAllocator {
 public:
  // Groups with a pool get the room that is left beside the tables of as many usual sequences as fit. Throws
  // std::invalid_argument for specs that unsupported() gives a reason for.
  RowAllocator(const config::Geometry& geometry, const LayerSpecs& specs, const Room& room);
  ~RowAllocator();
  RowAllocator(const RowAllocator&) = delete;
  RowAllocator& operator=(const RowAllocator&) = delete;

  // Empty, or why such caches cannot be replayed in this room.
  static std::string unsupported(const config::Geometry& geometry, const LayerSpecs& specs, const Room& room);

  // Opens a sequence of no tokens, under a small number of the caller's that is not open. False, and nothing is held, if
  // there is no room for its tables and buffers.
  bool open(int sequence);
  // Grows the sequence to `tokens`, at least as many as before. False if there is no room: blocks that some layers took stay
  // for the next attempt, or go with the sequence.
  bool grow(int sequence, int64_t tokens) {
    return tokens <= covered_until_[static_cast<size_t>(sequence)] || grow_groups(sequence, tokens);
  }
  void close(int sequence);

  // Sharing by content, in units of so many tokens: empty, or why they cannot be shared.
  std::string refuses_sharing(int64_t unit_tokens) const;
  void share_units_of(int64_t tokens) { unit_tokens_ = tokens; }
  // A handle on a unit whose rows the sequence has; the unit counts once, however many sequences have it.
  SharedBlock hold(int sequence, int64_t unit);
  // Units to evict before the sequence can have so many tokens.
  int64_t missing_units(int sequence, int64_t tokens) const;
  // open() for a sequence that begins with these units.
  bool open_with(int sequence, std::span<const SharedBlock> prefix);
  // Bytes of held units: rows that several sequences count but that are there once, and units that no sequence has.
  double counted_again_bytes() const;
  double unused_bytes() const;

  // True if a sequence of so many tokens has room when it is alone.
  bool can_ever_hold(int64_t tokens) const;
  // True if, with all unused units evicted, the pools would have the share `watermark` of their blocks left beside such a
  // sequence.
  bool has_room(int64_t tokens, double watermark) const;

  int64_t room_bytes() const;
  // Bytes of the whole pools, free blocks too, and of what lies beside them.
  int64_t allocated_bytes() const;
  // Bytes of all sequences: rows, block tables, buffers and reserves; free blocks left out.
  int64_t held_bytes() const;
  // Rows of a sequence that attention finds, by group.
  struct Kept {
    int64_t most_rows;  // a layer; a window keeps no more, whatever the length
    int64_t layers;
    double row_bytes;  // a row of one layer, all heads, K and V
  };
  const std::vector<Kept>& kept() const { return kept_; }
  // Rows that are filled, in bytes: slack left out. Rows in a codec's buffer count as encoded ones.
  double payload_bytes(int64_t tokens) const;
  // Bytes of a sequence's rows that held_bytes() counts, without a codec's buffer of raw rows.
  double stored_bytes(int64_t tokens) const;
  // The part of held_bytes() that is reserved for rows, filled or not; the rest are tables, scores and buffers.
  int64_t reserved_bytes() const;
  // Blocks of all pools, and blocks in use: as the placements count them.
  int64_t pool_blocks() const;
  int64_t blocks_in_use() const;

 private:
  struct HeldUnit;
  struct Group;
  struct Budget;
  bool grow_groups(int sequence, int64_t tokens);
  static bool grow_group(Group& group, int sequence, int64_t tokens);
  void size_pools(const Room& room);
  static std::vector<std::unique_ptr<Group>> groups(const config::Geometry& geometry, const LayerSpecs& specs,
                                                    const Room& room);

  std::unique_ptr<Budget> budget_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Kept> kept_;
  int64_t state_bytes_ = 0;  // a sequence's, whatever its length: linear layers, codecs' buffers
  int64_t unit_tokens_ = 0;  // that are shared; 0: none
  int64_t units_used_ = 0, units_unused_ = 0, uses_ = 0;      // held units by whether a sequence has them
  std::vector<std::vector<std::shared_ptr<HeldUnit>>> held_;  // by sequence
  std::vector<int64_t> covered_until_;  // by sequence: up to so many tokens there is room already
};

}  // namespace kv::planner
