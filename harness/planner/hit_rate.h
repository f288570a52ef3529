// The share of prompts that a prefix cache of any size would have had already.
//
// A block is found by its own id and all that come before it, so the blocks of all prompts are the nodes of a
// tree. The least recently used block is evicted; a request touches its blocks from the last to the first, so
// a block never leaves before its successors. Then a block is a hit in every cache of at least as many
// blocks as its stack distance (Mattson et al. 1970): the distinct blocks touched since it was, itself included.
// One pass gives all capacities, in O(n log n), with memory for the distinct blocks alone: a Fenwick tree over
// the times of last touches, which are numbered again when they run out.
//
// The requests come one after another: none of them overlaps the next.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "harness/io/request_trace.h"
#include "harness/results/table.h"

namespace kv::planner {

// The blocks of prompts as nodes of a tree, numbered in the order in which they are first met.
class BlockTree {
 public:
  // `block_tokens`: of a block. Throws std::invalid_argument where it is no positive number.
  explicit BlockTree(int64_t block_tokens);
  // The nodes of a prompt's blocks, in order; the last block may be partly filled. A block takes (id, offset) if the
  // trace's ids are for more tokens, and all ids inside it if they are for fewer. Empty for a request without
  // ids. Throws std::invalid_argument where neither size divides the other.
  std::vector<int32_t> nodes(const io::Request& request);
  int64_t distinct() const { return count_; }

 private:
  struct Edge {
    int64_t parent, id, offset;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  struct Hash {
    size_t operator()(const Edge& edge) const;
  };
  int64_t child(int64_t parent, int64_t id, int64_t offset);

  const int64_t block_tokens_;
  std::unordered_map<Edge, int64_t, Hash> children_;
  std::vector<int32_t> number_;  // block number by node, for nodes that end a block; -1 within a block
  int32_t count_ = 0;
};

class HitRates {
 public:
  // A request's blocks, each met by its number below 2^31.
  void add(const std::vector<int32_t>& blocks);
  int64_t blocks() const { return blocks_; }
  int64_t distinct() const { return blocks_ - hits_at_any(); }
  // Blocks found in a cache of `capacity` blocks, among all that were added; in a cache without limit.
  int64_t hits(int64_t capacity) const;
  int64_t hits_at_any() const;
  // The share that so many are of the blocks that were added.
  double share(int64_t blocks) const {
    return blocks_ > 0 ? static_cast<double>(blocks) / static_cast<double>(blocks_) : 0.0;
  }
  // The stack distances that occur, ascending: between two of them nothing changes.
  std::vector<int64_t> steps() const;

 private:
  void touch(int32_t block);
  void renumber();
  int64_t touched_since(int64_t time) const;

  std::vector<int64_t> last_;       // time of a block's last touch, or -1
  std::vector<int32_t> block_at_;   // touched at a time; meaningless where it was touched again
  std::vector<int32_t> tree_;       // Fenwick, 1-based: 1 at the times of last touches
  int64_t now_ = 0, live_ = 0;      // the next time; blocks ever touched
  std::vector<int64_t> histogram_;  // stack distances
  int64_t blocks_ = 0;
};

// Hits of a cache of `capacity` blocks that knows the future and keeps what is used again soonest (Belady 1966),
// or does not take a block at all: no policy has more. `requests`: as given to HitRates::add.
int64_t belady_hits(const std::vector<std::vector<int32_t>>& requests, int64_t capacity);

inline constexpr results::IntegerColumn kBlockTokens{"block_tokens", "tokens",
                                                     "tokens of a block of the prefix cache"};
inline constexpr results::IntegerColumn kCapacityBlocks{"capacity_blocks", "",
                                                        "blocks that the prefix cache holds"};
inline constexpr results::NumberColumn kHitRate{
    "hit_rate", "1",
    "prompt blocks found / all, with least-recently-used eviction; computed, requests one after another"};
inline constexpr results::NumberColumn kBeladyHitRate{
    "belady_hit_rate", "1",
    "prompt blocks found / all, with Belady's optimal eviction, which may also reject a block: the upper "
    "bound of every policy"};
inline constexpr results::NumberColumn kHitRateAtAny{
    "hit_rate_at_any", "1",
    "prompt blocks found / all in a cache without limit: (blocks - distinct) / blocks"};
inline constexpr auto kHitColumns =
    results::column_list(kBlockTokens, kCapacityBlocks, kHitRate, kBeladyHitRate, kHitRateAtAny);
inline const results::Table kHitCurve{"the hit-rate curve", {kHitColumns.begin(), kHitColumns.end()}};

}  // namespace kv::planner
