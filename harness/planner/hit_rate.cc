#include "harness/planner/hit_rate.h"

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness/math/random.h"

namespace kv::planner {

BlockTree::BlockTree(int64_t block_tokens) : block_tokens_(block_tokens) {
  if (block_tokens < 1) throw std::invalid_argument("a block of a prefix cache has at least 1 token");
}

size_t BlockTree::Hash::operator()(const Edge& edge) const {
  return math::random::key({static_cast<uint64_t>(edge.parent), static_cast<uint64_t>(edge.id),
                            static_cast<uint64_t>(edge.offset)});
}

// Node 0 is the root; equal hashes are told apart by the edges themselves.
int64_t BlockTree::child(int64_t parent, int64_t id, int64_t offset) {
  const auto next = static_cast<int64_t>(children_.size()) + 1;
  return children_.try_emplace({parent, id, offset}, next).first->second;
}

std::vector<int32_t> BlockTree::nodes(const io::Request& request) {
  std::vector<int32_t> found;
  if (request.prefix_ids.empty()) return found;
  const int64_t per_id = request.id_tokens;
  if (per_id % block_tokens_ != 0 && block_tokens_ % per_id != 0)
    throw std::invalid_argument("blocks of " + std::to_string(block_tokens_) +
                                " tokens cannot be found in a trace with one id for " +
                                std::to_string(per_id) + "; one must divide the other");
  const int64_t step = std::min(per_id, block_tokens_);
  const auto ids = static_cast<int64_t>(request.prefix_ids.size());
  const int64_t tokens = std::min(request.prompt_tokens, ids * per_id);
  int64_t node = 0;
  for (int64_t at = 0; at < tokens; at += step) {
    node = child(node, request.prefix_ids[static_cast<size_t>(at / per_id)], at % per_id);
    if ((at + step) % block_tokens_ != 0 && at + step < tokens) continue;
    if (static_cast<size_t>(node) >= number_.size())
      number_.resize(std::max(static_cast<size_t>(node) + 1, 2 * number_.size()), -1);
    int32_t& number = number_[static_cast<size_t>(node)];
    if (number < 0) number = count_++;
    found.push_back(number);
  }
  return found;
}

void HitRates::add(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    if (static_cast<size_t>(block) >= last_.size())
      last_.resize(std::max(static_cast<size_t>(block) + 1, 2 * last_.size()), -1);
    const int64_t time = last_[static_cast<size_t>(block)];
    if (time < 0) continue;
    const auto distance = static_cast<size_t>(touched_since(time));
    if (distance >= histogram_.size()) histogram_.resize(std::max(distance + 1, 2 * histogram_.size()));
    ++histogram_[distance];
  }
  blocks_ += std::ssize(blocks);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) touch(*block);
}

int64_t HitRates::hits(int64_t capacity) const {
  int64_t hits = 0;
  for (int64_t d = 1; d <= std::min(capacity, std::ssize(histogram_) - 1); ++d)
    hits += histogram_[static_cast<size_t>(d)];
  return hits;
}

int64_t HitRates::hits_at_any() const { return hits(std::numeric_limits<int64_t>::max()); }

std::vector<int64_t> HitRates::steps() const {
  std::vector<int64_t> found;
  for (int64_t d = 1; d < std::ssize(histogram_); ++d) {
    if (histogram_[static_cast<size_t>(d)] > 0) found.push_back(d);
  }
  return found;
}

// Last touches at `time` and later.
int64_t HitRates::touched_since(int64_t time) const {
  int64_t before = 0;
  for (int64_t i = time; i > 0; i -= i & -i) before += tree_[static_cast<size_t>(i)];
  return live_ - before;
}

void HitRates::touch(int32_t block) {
  if (now_ == std::ssize(block_at_)) renumber();
  const auto add = [&](int64_t time, int32_t change) {
    for (int64_t i = time + 1; i < std::ssize(tree_); i += i & -i) tree_[static_cast<size_t>(i)] += change;
  };
  int64_t& time = last_[static_cast<size_t>(block)];
  if (time >= 0)
    add(time, -1);
  else
    ++live_;
  time = now_++;
  block_at_[static_cast<size_t>(time)] = block;
  add(time, 1);
}

// The last touches keep their order and become 0, 1, …, with as many times free behind them.
void HitRates::renumber() {
  int64_t kept = 0;
  for (int64_t time = 0; time < now_; ++time) {
    const int32_t block = block_at_[static_cast<size_t>(time)];
    if (last_[static_cast<size_t>(block)] != time) continue;
    last_[static_cast<size_t>(block)] = kept;
    block_at_[static_cast<size_t>(kept++)] = block;
  }
  now_ = kept;
  const auto times = static_cast<size_t>(std::max<int64_t>(1024, 2 * kept));
  block_at_.resize(times);
  tree_.assign(times + 1, 0);
  for (size_t i = 1; i <= times; ++i) {
    tree_[i] += i <= static_cast<size_t>(kept) ? 1 : 0;
    if (const size_t parent = i + (i & -i); parent <= times) tree_[parent] += tree_[i];
  }
}

int64_t belady_hits(const std::vector<std::vector<int32_t>>& requests, int64_t capacity) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> uses;
  for (const auto& request : requests) uses.insert(uses.end(), request.begin(), request.end());
  std::vector<int64_t> next(uses.size());
  std::unordered_map<int32_t, int64_t> later;
  for (int64_t i = std::ssize(uses) - 1; i >= 0; --i) {
    const auto found = later.try_emplace(uses[static_cast<size_t>(i)], kNever).first;
    next[static_cast<size_t>(i)] = found->second;
    found->second = i;
  }
  std::set<std::pair<int64_t, int32_t>> held;  // by next use
  int64_t hits = 0;
  for (int64_t i = 0; i < std::ssize(uses); ++i) {
    const int32_t block = uses[static_cast<size_t>(i)];
    hits += static_cast<int64_t>(held.erase({i, block}));
    if (next[static_cast<size_t>(i)] == kNever) continue;
    held.insert({next[static_cast<size_t>(i)], block});
    if (std::ssize(held) > capacity) held.erase(std::prev(held.end()));
  }
  return hits;
}

}  // namespace kv::planner
