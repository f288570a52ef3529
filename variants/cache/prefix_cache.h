// Blocks of rows found again by their tokens, as in vLLM and SGLang (arXiv:2312.07104): a sequence that
// begins like an earlier one starts with its blocks in place of computing them.
//
// Block i of a sequence is found by h(i) = hash(h(i-1), its ids), so only together with all before it; blocks of equal
// hashes are distinguished by their ids. The placement counts each live block once. Blocks stay when their sequence goes,
// until they are evicted: the least recently used leaf first, which is a block that no other held block follows, and never
// one that a live sequence begins with. The index is not counted: 4 bytes a token and some for each block, while a token's
// rows take kilobytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "variants/cache/cache.h"

namespace kv {

// The owner of the blocks that a prefix cache shares: a cache, or an allocator without rows.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  virtual int64_t block_tokens() const = 0;
  // Tokens of a live sequence, in every layer.
  virtual int64_t tokens(SequenceId sequence) const = 0;
  virtual SharedBlock hold(SequenceId sequence, int64_t block) = 0;
  // A new sequence that begins with these blocks. Throws std::bad_alloc.
  virtual SequenceId adopt(std::span<const SharedBlock> blocks) = 0;
  virtual void release(SequenceId sequence) = 0;
};

class PrefixCache {
 public:
  using Hash = uint64_t (*)(uint64_t before, std::span<const int32_t> ids);
  static uint64_t hash(uint64_t before, std::span<const int32_t> ids);

  // The cache outlives it. Throws std::invalid_argument with the reason where its blocks cannot be shared.
  explicit PrefixCache(Cache& cache, Hash of_ids = hash);
  explicit PrefixCache(BlockOwner& owner, Hash of_ids = hash);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();

  // A new sequence that has the longest beginning of `ids` that is held, in whole blocks: the cache's tokens() says how
  // many. (A caller that wants logits leaves out the last id, so that one token is left to compute.)
  SequenceId add_sequence(std::span<const int32_t> ids);
  // Holds the whole blocks of a sequence, live and of this cache, whose tokens in all layers are `ids`; those of which
  // equal ones are held already are left out. Throws std::invalid_argument if it has fewer tokens.
  void share(SequenceId sequence, std::span<const int32_t> ids);
  // The sequence goes, what is held of it stays. Any sequence of the cache may be given.
  void release(SequenceId sequence);

  // Evicts up to `blocks`, and says how many. Fewer where the others are in use.
  int64_t evict(int64_t blocks);
  // Runs `change`, an append or whatever needs memory, and evicts a block and runs it again as long as it throws
  // std::bad_alloc and there is one to evict.
  void make_room_for(const std::function<void()>& change);

  int64_t block_tokens() const { return block_tokens_; }
  int64_t blocks() const { return static_cast<int64_t>(nodes_.size()); }  // that are held

 private:
  struct Node {
    uint64_t hash = 0;
    Node* parent = nullptr;
    std::vector<int32_t> ids;  // [block_tokens]
    SharedBlock block;
    int64_t children = 0;
    int64_t users = 0;  // live sequences that have this block, and no longer one of those held
    uint64_t used = 0;
  };

  Node* find(Node* parent, std::span<const int32_t> ids) const;
  Node* insert(Node* parent, std::span<const int32_t> ids, SharedBlock block);
  uint64_t hash_after(const Node* parent, std::span<const int32_t> ids) const {
    return hash_(parent ? parent->hash : 0, ids);
  }
  // Marks a node and all before it as used now.
  void touch(Node* last);
  // Makes `last` (or none) the one that the sequence uses.
  void use(SequenceId sequence, Node* last);
  // A node is in leaves_ if and only if it can be evicted.
  void enter(Node* node);
  void leave(Node* node);

  const std::unique_ptr<BlockOwner> of_cache_;  // null if the owner is the caller's
  BlockOwner& owner_;
  const Hash hash_;
  const int64_t block_tokens_;
  uint64_t now_ = 0;
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> nodes_;
  std::set<std::pair<uint64_t, Node*>> leaves_;      // by last use
  std::unordered_map<SequenceId, Node*> last_used_;  // by live sequence
};

}  // namespace kv
