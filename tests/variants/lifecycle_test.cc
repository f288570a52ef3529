// Random operations on a cache and on a plain model of one: contents, ledger and reference counts must agree after each.
#include <map>
#include <optional>
#include <random>

#include "tests/variants/contract.h"
#include "variants/cache/prefix_cache.h"

namespace kv::lifecycle_test {
namespace {

using namespace contract;

constexpr int64_t kBlock = 4;
constexpr CacheShape kShape{
    .layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 48, .max_sequences = 8};
constexpr int64_t kBlockBytes = kBlock * 2 * 8 * 4;

using Ids = std::vector<int32_t>;

// The key of the last of these tokens. It depends on all tokens before, like a model's, so that rows shared with another
// prefix would show.
std::vector<float> key_of(std::span<const int32_t> ids) {
  uint64_t hash = 1;
  for (const int32_t id : ids) hash = (hash + static_cast<uint64_t>(id) + 1) * 0x9e3779b97f4a7c15;
  std::vector<float> key;
  for (int x = 0; x < 8; ++x) key.push_back(static_cast<float>((hash >> (7 * x)) & 0x3ff));
  return key;
}

// The expected behaviour of a cache of blocks, in numbers of blocks alone. Without sharing only the ids count.
class Plain {
 public:
  struct Sequence {
    Ids ids;
    std::vector<int> blocks;
    Ids uses;  // the longest held prefix that it has
  };

  explicit Plain(int64_t pool) : pool_(pool) {}

  std::map<SequenceId, Sequence>& live() { return live_; }
  int64_t blocks() const { return static_cast<int64_t>(owners_.size()); }
  int64_t held() const { return static_cast<int64_t>(held_.size()); }

  void add(SequenceId id, const Ids& ids) {
    Sequence s;
    for (size_t n = kBlock; n <= ids.size() && held_.contains(head(ids, n)); n += kBlock)
      s.uses = head(ids, n);
    s.ids = s.uses;
    for (size_t n = kBlock; n <= s.uses.size(); n += kBlock) own(s, held_.at(head(ids, n)).block);
    touch(s.uses);
    live_[id] = s;
  }
  void fork(SequenceId from, SequenceId to) {
    live_[to] = {live_.at(from).ids, {}, {}};
    for (const int block : live_.at(from).blocks) own(live_.at(to), block);
  }
  // False if there was no room.
  bool append(SequenceId id, const Ids& more) {
    Sequence& s = live_.at(id);
    const size_t length = s.ids.size() + more.size(), blocks = (length + kBlock - 1) / kBlock;
    const bool copies = s.ids.size() % kBlock > 0 && owners_.at(s.blocks.back()) > 1;
    const auto needed = static_cast<int64_t>(blocks - s.blocks.size()) + copies;
    if (this->blocks() + needed > pool_) return false;
    if (copies) {
      drop(s.blocks.back());
      s.blocks.pop_back();
    }
    while (s.blocks.size() < blocks) own(s, next_++);
    s.ids.insert(s.ids.end(), more.begin(), more.end());
    return true;
  }
  void truncate(SequenceId id, size_t tokens) {
    Sequence& s = live_.at(id);
    s.ids.resize(tokens);
    for (; s.blocks.size() > (tokens + kBlock - 1) / kBlock; s.blocks.pop_back()) drop(s.blocks.back());
  }
  void release(SequenceId id) {
    truncate(id, 0);
    const Ids uses = live_.at(id).uses;
    live_.erase(id);
    touch(uses);
  }
  void share(SequenceId id) {
    Sequence& s = live_.at(id);
    Ids last;
    for (size_t n = kBlock; n <= s.ids.size(); n += kBlock) {
      last = head(s.ids, n);
      if (held_.contains(last)) continue;
      held_[last] = {s.blocks[n / kBlock - 1], 0};
      ++owners_.at(s.blocks[n / kBlock - 1]);
      s.uses = last;
    }
    touch(last);
  }
  // The least recently used of those that nothing needs.
  bool evict() {
    const auto is_needed = [&](const Ids& prefix) {
      const auto next = held_.upper_bound(prefix);
      return (next != held_.end() && head(next->first, prefix.size()) == prefix) ||
             std::any_of(live_.begin(), live_.end(), [&](const auto& s) { return s.second.uses == prefix; });
    };
    auto oldest = held_.end();
    for (auto at = held_.begin(); at != held_.end(); ++at) {
      if (!is_needed(at->first) && (oldest == held_.end() || at->second.used < oldest->second.used))
        oldest = at;
    }
    if (oldest == held_.end()) return false;
    drop(oldest->second.block);
    held_.erase(oldest);
    return true;
  }

 private:
  struct Held {
    int block;
    int64_t used;
  };

  static Ids head(const Ids& ids, size_t n) {
    return {ids.begin(), ids.begin() + static_cast<int64_t>(std::min(n, ids.size()))};
  }
  void touch(const Ids& last) {
    ++now_;
    for (size_t n = kBlock; n <= last.size(); n += kBlock) held_.at(head(last, n)).used = now_;
  }
  void own(Sequence& s, int block) {
    ++owners_[block];
    s.blocks.push_back(block);
  }
  void drop(int block) {
    if (--owners_.at(block) == 0) owners_.erase(block);
  }

  const int64_t pool_;
  int next_ = 0;
  int64_t now_ = 0;
  std::map<SequenceId, Sequence> live_;
  std::map<int, int> owners_;  // by live block
  std::map<Ids, Held> held_;   // by the whole prefix
};

class Player {
 public:
  Player(const std::string& spec, int64_t pool, uint64_t seed)
      : spec_(parse_spec(spec)), cache_(build_cache(spec_, kShape, ledger_)), plain_(pool), random_(seed) {
    if (const auto settings = pool_settings(spec_)) segment_ = settings->segment_blocks;
    if (unshareable_reason(spec_).empty()) prefixes_.emplace(*cache_);
  }

  void play(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const size_t sequences = plain_.live().size();
      const auto kind = sequences == 0 ? 0 : below(segment_ > 0 ? 11 : 10);
      if (kind == 0 && sequences < 8) add();
      if (kind == 1 && sequences < 8) fork();
      if (kind >= 2 && kind <= 5) append();
      if (kind == 6) truncate();
      if (kind == 7) release();
      if (kind == 8) share();
      if (kind == 9) evict();
      if (kind == 10) compact();
      if (i % 64 == 0) check_all();
    }
    while (!plain_.live().empty()) release();
    while (prefixes_ && plain_.held() > 0) evict();
    check_held();
    EXPECT_EQ(plain_.blocks(), 0);
  }

  int64_t refusals = 0, evictions = 0, found = 0, compacted = 0;

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  // Ids of two symbols, the first more often, so that prefixes meet.
  Ids some_ids(int64_t n) {
    Ids ids;
    for (int64_t i = 0; i < n; ++i) ids.push_back(below(8) == 0);
    return ids;
  }
  SequenceId any() { return std::next(plain_.live().begin(), below(std::ssize(plain_.live())))->first; }

  void add() {
    const Ids ids = some_ids(below(24));
    const SequenceId id = prefixes_ ? prefixes_->add_sequence(ids) : cache_->add_sequence();
    plain_.add(id, ids);
    found += cache_->tokens(id, 0);
    check(id);
  }
  void fork() {
    const SequenceId from = any(), to = cache_->fork(from);
    plain_.fork(from, to);
    check(to);
  }
  void append() {
    const SequenceId id = any();
    Ids all = plain_.live().at(id).ids;
    const int64_t n = std::min<int64_t>(1 + below(6), kShape.max_tokens - std::ssize(all));
    if (n == 0) return;
    const Ids more = some_ids(n);
    std::vector<float> k, v;
    for (const int32_t one : more) {
      all.push_back(one);
      const std::vector<float> key = key_of(all);
      k.insert(k.end(), key.begin(), key.end());
      v.insert(v.end(), key.rbegin(), key.rend());
    }
    const StepInput in{.sequence = id, .n = n, .k = k.data(), .v = v.data()};
    const bool may_evict = prefixes_ && below(2) == 0;
    bool fits = plain_.append(id, more);
    while (!fits && may_evict && plain_.evict()) ++evictions, fits = plain_.append(id, more);
    refusals += !fits;
    const auto change = [&] { cache_->append(0, {&in, 1}); };
    bool done = true;
    try {
      may_evict ? prefixes_->make_room_for(change) : change();
    } catch (const OutOfBlocks&) {
      done = false;
    }
    ASSERT_EQ(done, fits);
    check(id);
  }
  void truncate() {
    const SequenceId id = any();
    const int64_t n = below(std::ssize(plain_.live().at(id).ids) + 1);
    cache_->truncate(id, n);
    plain_.truncate(id, static_cast<size_t>(n));
    check(id);
  }
  void release() {
    const SequenceId id = any();
    prefixes_ ? prefixes_->release(id) : cache_->release(id);
    plain_.release(id);
    check_held();
  }
  void share() {
    if (!prefixes_) return;
    const SequenceId id = any();
    prefixes_->share(id, plain_.live().at(id).ids);
    plain_.share(id);
    check(id);
  }
  void evict() {
    if (!prefixes_) return;
    const int64_t n = 1 + below(3);
    int64_t expected = 0;
    while (expected < n && plain_.evict()) ++expected;
    evictions += expected;
    ASSERT_EQ(prefixes_->evict(n), expected);
    check_held();
  }

  void compact() {
    compacted += cache_->compact() > 0;
    ASSERT_EQ(held_blocks(), (plain_.blocks() + segment_ - 1) / segment_ * segment_);
    check_all();
  }
  int64_t held_blocks() const { return ledger_.payload().current_bytes / kBlockBytes; }

  void check(SequenceId id) {
    const Ids& ids = plain_.live().at(id).ids;
    ASSERT_EQ(cache_->tokens(id, 0), std::ssize(ids));
    const Stored stored = read_back(*cache_, id, 0, 0);
    ASSERT_EQ(stored.rows, std::ssize(ids));
    for (size_t n = 1; n <= ids.size(); ++n) {
      const std::vector<float> key = key_of({ids.data(), n});
      ASSERT_TRUE(std::equal(key.begin(), key.end(), stored.k.begin() + static_cast<int64_t>(n - 1) * 8))
          << n;
      ASSERT_TRUE(std::equal(key.rbegin(), key.rend(), stored.v.begin() + static_cast<int64_t>(n - 1) * 8))
          << n;
    }
    check_held();
  }
  // If blocks are allocated one by one, the ledger has exactly the live ones; else the closed form holds.
  void check_held() {
    if (prefixes_) {
      ASSERT_EQ(prefixes_->blocks(), plain_.held());
    }
    if (spec_.placement.name == "segmented") {
      ASSERT_EQ(ledger_.payload().current_bytes, plain_.blocks() * kBlockBytes);
      return;
    }
    if (segment_ > 0) {
      ASSERT_EQ(ledger_.payload().current_bytes % (segment_ * kBlockBytes), 0);
      ASSERT_GE(held_blocks(), plain_.blocks());
      ASSERT_TRUE(plain_.blocks() > 0 || held_blocks() == 0) << "an empty pool holds memory";
      return;
    }
    std::vector<int64_t> lengths;
    for (const auto& [id, s] : plain_.live()) lengths.push_back(std::ssize(s.ids));
    ASSERT_EQ(ledger_.payload().current_bytes + ledger_.metadata().current_bytes,
              predicted_bytes(spec_, kShape, lengths));
  }
  void check_all() {
    for (const auto& [id, s] : plain_.live()) check(id);
    ledger_.assert_balanced();
  }

  const Spec spec_;
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  std::optional<PrefixCache> prefixes_;
  Plain plain_;
  std::mt19937_64 random_;
  int64_t segment_ = 0;  // blocks by which a pool grows; 0: it does not
};

constexpr int64_t kNoPool = 1 << 30;

TEST(Lifecycle, HundredThousandOperationsOnAPoolLeaveItAsAPlainModelSays) {
  Player player("paged(block=4,pool=40)", 40, 1);
  player.play(100'000);
  EXPECT_GT(player.refusals, 1000) << "the pool is never used up";
  EXPECT_GT(player.evictions, 1000);
  EXPECT_GT(player.found, 1000) << "no prefix is ever found";
}

TEST(Lifecycle, OperationsOnAPoolOfSegmentsHoldNoMoreThanCompactionLeaves) {
  for (const char* order : {"sequential", "shuffled"}) {
    Player player(std::string("paged(block=4,pool=40,segment=5,order=") + order + ")", 40, 4);
    player.play(50'000);
    EXPECT_GT(player.refusals, 200);
    EXPECT_GT(player.compacted, 100) << "there is never anything to move";
  }
}

TEST(Lifecycle, OperationsOnChunksLeaveTheLedgerWithThoseThatLive) {
  Player player("segmented(rows=4)", kNoPool, 2);
  player.play(20'000);
  EXPECT_GT(player.evictions, 100);
  EXPECT_GT(player.found, 1000);
}

TEST(Lifecycle, OperationsOnRowsOfOneSequenceEachLeaveTheClosedForm) {
  for (const char* spec : {"contiguous", "concat(layout=bshd)", "doubling(factor=1.5)"})
    Player(spec, kNoPool, 3).play(4'000);
}

}  // namespace
}  // namespace kv::lifecycle_test
