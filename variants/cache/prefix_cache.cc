// A tree of blocks, found by hash; the leaves that can go, by last use.
#include "variants/cache/prefix_cache.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace kv {
namespace {

class BlocksOfCache : public BlockOwner {
 public:
  explicit BlocksOfCache(Cache& cache) : cache_(cache) {
    const std::string reason = cache.refuses_sharing();
    if (!reason.empty()) throw std::invalid_argument("prefixes cannot be shared: " + reason);
  }
  int64_t block_tokens() const override { return cache_.block_tokens(); }
  int64_t tokens(SequenceId id) const override {
    int64_t tokens = cache_.tokens(id, 0);
    for (int layer = 1; layer < cache_.shape().layers; ++layer)
      tokens = std::min(tokens, cache_.tokens(id, layer));
    return tokens;
  }
  SharedBlock hold(SequenceId id, int64_t block) override { return cache_.hold(id, block); }
  SequenceId adopt(std::span<const SharedBlock> blocks) override { return cache_.adopt(blocks); }
  void release(SequenceId id) override { cache_.release(id); }

 private:
  Cache& cache_;
};

}  // namespace

// FNV-1a over the ids' words, its offset mixed with what came before; ids are compared whatever it gives.
uint64_t PrefixCache::hash(uint64_t before, std::span<const int32_t> ids) {
  uint64_t hash = 0xcbf29ce484222325 ^ before;
  for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3;
  return hash ^ (hash >> 32);
}

PrefixCache::PrefixCache(Cache& cache, Hash of_ids)
    : of_cache_(std::make_unique<BlocksOfCache>(cache)),
      owner_(*of_cache_),
      hash_(of_ids),
      block_tokens_(owner_.block_tokens()) {}
PrefixCache::PrefixCache(BlockOwner& owner, Hash of_ids)
    : owner_(owner), hash_(of_ids), block_tokens_(owner.block_tokens()) {}
PrefixCache::~PrefixCache() = default;

SequenceId PrefixCache::add_sequence(std::span<const int32_t> ids) {
  Node* last = nullptr;
  std::vector<SharedBlock> prefix;
  for (size_t at = 0, n = static_cast<size_t>(block_tokens_); at + n <= ids.size(); at += n) {
    Node* node = find(last, ids.subspan(at, n));
    if (!node) break;
    prefix.push_back(node->block);
    last = node;
  }
  SequenceId id = -1;
  touch(last);
  if (last) {
    leave(last);  // blocks that the new sequence needs are not evicted for it
    ++last->users;
  }
  try {
    make_room_for([&] { id = owner_.adopt(prefix); });
  } catch (...) {
    if (last) {
      --last->users;
      enter(last);
    }
    throw;
  }
  if (last) last_used_[id] = last;
  return id;
}

void PrefixCache::share(SequenceId id, std::span<const int32_t> ids) {
  if (const int64_t tokens = owner_.tokens(id); tokens < std::ssize(ids))
    throw std::invalid_argument("a sequence of " + std::to_string(tokens) + " tokens cannot share " +
                                std::to_string(ids.size()));
  const auto used = last_used_.find(id);
  Node *last = nullptr, *own = used == last_used_.end() ? nullptr : used->second;
  for (int64_t block = 0; (block + 1) * block_tokens_ <= std::ssize(ids); ++block) {
    const auto part =
        ids.subspan(static_cast<size_t>(block * block_tokens_), static_cast<size_t>(block_tokens_));
    Node* node = find(last, part);
    if (!node) own = node = insert(last, part, owner_.hold(id, block));
    last = node;
  }
  use(id, own);
  touch(last);
}

void PrefixCache::release(SequenceId id) {
  owner_.release(id);
  const auto used = last_used_.find(id);
  Node* last = used == last_used_.end() ? nullptr : used->second;
  use(id, nullptr);
  touch(last);
}

int64_t PrefixCache::evict(int64_t blocks) {
  int64_t evicted = 0;
  for (; evicted < blocks && !leaves_.empty(); ++evicted) {
    Node* node = leaves_.begin()->second;
    leave(node);
    if (Node* parent = node->parent) {
      --parent->children;
      enter(parent);
    }
    const auto [first, end] = nodes_.equal_range(node->hash);
    nodes_.erase(std::find_if(first, end, [&](const auto& entry) { return entry.second.get() == node; }));
  }
  return evicted;
}

void PrefixCache::make_room_for(const std::function<void()>& change) {
  for (;;) {
    try {
      return change();
    } catch (const std::bad_alloc&) {
      if (evict(1) == 0) throw;
    }
  }
}

PrefixCache::Node* PrefixCache::find(Node* parent, std::span<const int32_t> ids) const {
  const auto [first, end] = nodes_.equal_range(hash_after(parent, ids));
  const auto at = std::find_if(first, end, [&](const auto& entry) {
    return entry.second->parent == parent && std::equal(ids.begin(), ids.end(), entry.second->ids.begin());
  });
  return at == end ? nullptr : at->second.get();
}

PrefixCache::Node* PrefixCache::insert(Node* parent, std::span<const int32_t> ids, SharedBlock block) {
  auto node = std::make_unique<Node>();
  node->hash = hash_after(parent, ids);
  node->parent = parent;
  node->ids.assign(ids.begin(), ids.end());
  node->block = std::move(block);
  Node* made = node.get();
  nodes_.emplace(made->hash, std::move(node));
  if (parent) {
    leave(parent);
    ++parent->children;
  }
  enter(made);
  return made;
}

void PrefixCache::touch(Node* last) {
  ++now_;
  for (Node* node = last; node; node = node->parent) {
    leave(node);
    node->used = now_;
    enter(node);
  }
}

void PrefixCache::use(SequenceId id, Node* last) {
  if (last) {
    leave(last);
    ++last->users;
  }
  if (const auto before = last_used_.find(id); before != last_used_.end()) {
    --before->second->users;
    enter(before->second);
    last_used_.erase(before);
  }
  if (last) last_used_[id] = last;
}

void PrefixCache::enter(Node* node) {
  if (node->children == 0 && node->users == 0) leaves_.emplace(node->used, node);
}

void PrefixCache::leave(Node* node) { leaves_.erase({node->used, node}); }

}  // namespace kv
