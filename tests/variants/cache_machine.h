// A cache as a state machine: random operations on sequences that live beside each other, and a model of what they leave.
//
// The model knows a sequence by its tokens alone. It feeds them to a contiguous cache of their own, which never forks, truncates,
// loads or shares: after every operation each sequence has the replay's state, bit for bit. Rows are those that the codec makes of
// their tokens, attention is FP64's over them, and bytes are the closed form's, less what blocks that several sequences have in
// common save. A failing sequence of operations is cut as long as it still fails.
#pragma once

#include <functional>
#include <optional>

#include "tests/variants/cache_model.h"
#include "variants/cache/prefix_cache.h"

namespace kv::cache_machine {

class Machine {
 public:
  explicit Machine(const Spec& spec, cuda::Gpu* gpu = nullptr)
      : spec_(spec), shape_(shape_of(spec)), gpu_(gpu), ledger_(INT64_MAX, gpu) {
    plain_ = spec;
    plain_.placement = default_spec().placement;
    if (const auto settings = pool_settings(spec)) pool_ = *settings;
    cache_ = build_cache(spec, shape_, ledger_);
    if (cache_->refuses_sharing().empty()) prefixes_.emplace(*cache_);
    block_rows_ = cache_->block_tokens();
    held_ = Held(block_rows_);
    if (block_rows_ > 0 && (pool_.block_rows == 0 || pool_.segment_blocks > 0))
      for (const Encoding& side : {codec_.k, codec_.v})
        block_bytes_ += block_rows_ / side.group * (shape_.kv_heads / placed_heads_) *
                        (unit_data_bytes(side, shape_.head_dim) + unit_meta_bytes(side, shape_.head_dim));
  }

  void run(const Operation& op) {
    compacted_ = false;
    if (op.kind == Kind::kAdd) add(op);
    if (op.kind == Kind::kCompact) compact();
    if (op.kind == Kind::kEvict && prefixes_) evict(1 + static_cast<int64_t>(op.number % 3));
    if (op.kind == Kind::kLoad && !saved_.empty()) load(saved_[op.which % saved_.size()]);
    if (live_.empty()) return check();
    const SequenceId id = any(op);
    if (op.kind == Kind::kStep) append({id}, op);
    if (op.kind == Kind::kStepAll && pool_.blocks == 0) {
      std::vector<SequenceId> all;
      for (const auto& [each, live] : live_) all.push_back(each);
      append(all, op);
    }
    if (op.kind == Kind::kFork && has_room()) fork(id);
    if (op.kind == Kind::kTruncate) truncate(id, op);
    if (op.kind == Kind::kSave) save(id);
    if (op.kind == Kind::kShare && prefixes_) share(id);
    if (op.kind == Kind::kRelease) release(id);
    check();
  }

  // At last the FP64 policy keeps the same tokens, and nothing is left of what all the others held.
  void end() {
    if (!live_.empty()) check_policy(*cache_, live_.rbegin()->first, live_.rbegin()->second.history);
    while (!live_.empty()) release(live_.begin()->first);
    if (prefixes_) evict(INT64_MAX);
    check();
    require(blocks_.owners.empty(), "blocks are left over");
    prefixes_.reset();
    cache_.reset();
    for (const memory::Ledger::Count& count :
         {ledger_.payload(), ledger_.metadata(), ledger_.workspace(), ledger_.disk()})
      require(count.current_bytes == 0, "bytes are left over");
  }

  std::string log;

 private:
  struct Live {
    History history;
    std::vector<std::vector<int>> blocks;  // [layers, placed heads]
    Ids uses;                              // the longest held prefix that it has
    std::shared_ptr<Replay> replay;        // shared with its forks until one goes on
    std::string state;
  };
  using Saved = std::pair<Text, Live>;

  void say(const std::string& what) { log += (log.empty() ? "" : "; ") + what; }
  bool has_room() const { return std::ssize(live_) < shape_.max_sequences; }
  SequenceId any(const Operation& op) const {
    return std::next(live_.begin(), static_cast<int64_t>(op.which % live_.size()))->first;
  }
  std::string state_of(Cache& cache, SequenceId id) const { return state(cache, id, has_tiers(spec_)); }
  void replay(Live& live) const {
    live.replay = std::make_shared<Replay>(plain_, shape_, gpu_, live.history);
    live.state = state_of(*live.replay->cache, live.replay->id);
  }

  // Rows of a placed head of a sequence, those in the codec's residual buffer left out.
  int64_t placed(SequenceId id, const History& of, int head) const {
    if (retention_.traded_rows) return std::ssize(cache_->kept(id, 0, head));
    return placed_rows(spec_, shape_, of.tokens(), of.prompt())[static_cast<size_t>(head)];
  }
  int64_t blocks_of(int64_t rows) const { return (rows + block_rows_ - 1) / block_rows_; }
  // Gives a sequence the blocks of its history, once rows before `before` tokens were there.
  void write_blocks(Blocks& blocks, SequenceId id, Live& live, const History& before) const {
    if (block_rows_ == 0) return;
    live.blocks.resize(static_cast<size_t>(shape_.layers * placed_heads_));
    for (size_t i = 0; i < live.blocks.size(); ++i) {
      const int head = static_cast<int>(i) % placed_heads_;
      const int64_t first = retention_.keeps_all ? placed(id, before, head) / block_rows_ : 0;
      blocks.write(live.blocks[i], first, blocks_of(placed(id, live.history, head)));
    }
  }
  // True if it was done; a refusal must be due.
  template <class Refusal>
  bool attempt(bool is_due, const std::function<void()>& change) {
    try {
      change();
    } catch (const Refusal&) {
      require(is_due, "what can be done is refused");
      say("(refused)");
      return false;
    }
    require(!is_due, "what cannot be done is not refused");
    return true;
  }
  bool fits(const Blocks& blocks) const { return pool_.blocks == 0 || blocks.count() <= pool_.blocks; }

  void add(const Operation& op) {
    if (!has_room()) return;
    Live fresh;
    Ids wanted;
    if (!live_.empty()) wanted = live_.at(any(op)).history.ids;
    if (op.number % 2 > 0 && !shared_.empty()) wanted = shared_[op.which % shared_.size()];
    fresh.uses = held_.longest(wanted);
    const SequenceId id = prefixes_ ? prefixes_->add_sequence(wanted) : cache_->add_sequence();
    say("add " + std::to_string(id) +
        (fresh.uses.empty() ? "" : " of a prefix of " + std::to_string(fresh.uses.size())));
    fresh.history.append(fresh.uses);
    fresh.blocks = held_.adopt(fresh.uses, static_cast<size_t>(shape_.layers * placed_heads_), blocks_);
    mixed_ |= !fresh.uses.empty();
    replay(fresh);
    live_[id] = std::move(fresh);
  }

  void append(const std::vector<SequenceId>& ids, const Operation& op) {
    const std::vector<int64_t> lengths = lengths_of(shape_);
    int64_t n = lengths[op.number % lengths.size()];
    if (ids.size() > 1) n = std::min<int64_t>(n, 3);
    for (const SequenceId id : ids) n = std::min(n, shape_.max_tokens - live_.at(id).history.tokens());
    if (n == 0) return;
    std::map<SequenceId, Live> after;
    Batch inputs;
    for (const SequenceId id : ids) {
      after[id] = live_.at(id);
      after[id].history.append(Ids(static_cast<size_t>(n),
                                   static_cast<int32_t>((op.number >> 32) % 4 + (ids.size() > 1 ? id : 0))));
      inputs.emplace_back(id, after[id].history.ids);
      say("step " + std::to_string(id) + " by " + std::to_string(n));
    }
    std::vector<std::vector<float>> out;
    const auto change = [&] { out = step(*cache_, inputs, n); };
    if (pool_.blocks > 0) {
      const SequenceId id = ids[0];
      const bool may_evict = prefixes_ && op.number / 8 % 2 > 0;
      const auto would_fit = [&] {
        Blocks blocks = blocks_;
        Live live = after[id];
        write_blocks(blocks, id, live, live_.at(id).history);
        return fits(blocks);
      };
      bool fit = would_fit();
      while (!fit && may_evict && evict_one()) fit = would_fit();
      const auto attempted = [&] { may_evict ? prefixes_->make_room_for(change) : change(); };
      if (!attempt<OutOfBlocks>(!fit, attempted)) return;
    } else {
      change();
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const SequenceId id = ids[i];
      Live& live = live_.at(id);
      const History before = std::exchange(live.history, after[id].history);
      write_blocks(blocks_, id, live, before);
      after.erase(id);
      if (live.replay.use_count() > 1) live.replay = std::make_shared<Replay>(plain_, shape_, gpu_, before);
      const auto want = step(*live.replay->cache, {{live.replay->id, live.history.ids}}, n)[0];
      live.state = state_of(*live.replay->cache, live.replay->id);
      require(std::memcmp(out[i].data(), want.data(), want.size() * sizeof(float)) == 0,
              "outputs of " + std::to_string(id) + " are not the replay's");
      check_attention(*cache_, id, live.history, out[i], tolerance_);
    }
  }

  void fork(SequenceId from) {
    const SequenceId to = cache_->fork(from);
    say("fork " + std::to_string(from) + " to " + std::to_string(to));
    Live& live = live_[to] = live_.at(from);
    live.uses.clear();
    mixed_ = true;
    for (std::vector<int>& list : live.blocks)
      for (const int block : list) ++blocks_.owners.at(block);
  }

  void truncate(SequenceId id, const Operation& op) {
    Live& live = live_.at(id);
    const int64_t tokens = live.history.tokens(), number = static_cast<int64_t>(op.number >> 8),
                  n = op.number % 3 == 0   ? std::max<int64_t>(0, tokens - number % 8)
                      : op.number % 3 == 1 ? number % (tokens / 16 + 1) * 16
                                           : number % (tokens + 1);
    say("truncate " + std::to_string(id) + " to " + std::to_string(n));
    const std::string reason = cache_->refuses_truncation(id, n),
                      expected = live.replay->cache->refuses_truncation(live.replay->id, n);
    const bool by_row = codec_.unit_rows() == 1 && codec_.residual == 0;
    require(by_row ? reason == expected : expected.empty() || !reason.empty(),
            "it can" + std::string(reason.empty() ? "" : "not") + " be truncated");
    require(!by_row || !retention_.keeps_all || reason.empty(), "rows stored one by one can be forgotten");
    if (!attempt<std::invalid_argument>(!reason.empty(), [&] { cache_->truncate(id, n); })) return;
    live.history.cut(n);
    for (size_t i = 0; block_rows_ > 0 && i < live.blocks.size(); ++i)
      blocks_.cut(live.blocks[i], blocks_of(placed(id, live.history, static_cast<int>(i) % placed_heads_)));
    replay(live);
    cut_ |= mixed_;
  }

  void save(SequenceId id) {
    say("save " + std::to_string(id));
    saved_.emplace_back(Text(), live_.at(id));
    cache_->write(saved_.back().first, id);
  }

  void load(const Saved& saved) {
    if (!has_room()) return;
    auto [text, live] = saved;
    live.blocks.clear();
    live.uses.clear();
    Live trial = live;
    Blocks blocks = blocks_;
    if (pool_.blocks > 0) write_blocks(blocks, -1, trial, {});
    SequenceId id = -1;
    say("load");
    if (!attempt<OutOfBlocks>(!fits(blocks), [&, &text = text] { id = cache_->read(text, "it"); })) return;
    say("(as " + std::to_string(id) + ")");
    write_blocks(blocks_, id, live, {});
    live_[id] = std::move(live);
  }

  void release(SequenceId id) {
    say("release " + std::to_string(id));
    prefixes_ ? prefixes_->release(id) : cache_->release(id);
    for (std::vector<int>& list : live_.at(id).blocks) blocks_.cut(list, 0);
    const Ids uses = live_.at(id).uses;
    live_.erase(id);
    held_.touch(uses);
    mixed_ &= !live_.empty() || held_.count() > 0;
    cut_ &= mixed_;
  }

  void compact() {
    say("compact");
    const int64_t moved = cache_->compact();
    require(pool_.segment_blocks > 0 || moved == 0, "something moves that cannot");
    compacted_ = true;
  }

  void share(SequenceId id) {
    say("share " + std::to_string(id));
    Live& live = live_.at(id);
    prefixes_->share(id, live.history.ids);
    shared_.push_back(live.history.ids);
    mixed_ |= held_.share(live.history.ids, live.blocks, live.uses, blocks_);
  }
  bool evict_one() {
    std::set<Ids> uses;
    for (const auto& [id, live] : live_) uses.insert(live.uses);
    return held_.evict(uses, blocks_);
  }
  void evict(int64_t most) {
    say("evict " + std::to_string(most));
    int64_t expected = 0;
    while (expected < most && evict_one()) ++expected;
    require(prefixes_->evict(most) == expected, std::to_string(expected) + " can be evicted");
    for (size_t i = 0; i < shared_.size() && has_room(); ++i) {  // the others are still found
      const Ids found = held_.longest(shared_[i]);
      const SequenceId id = prefixes_->add_sequence(shared_[i]);
      require(cache_->tokens(id, 0) == std::ssize(found), "another prefix was evicted");
      prefixes_->release(id);
      for (int touches = 0; touches < 2; ++touches) held_.touch(found);
    }
  }

  void check() {
    for (const auto& [id, live] : live_) {
      for (int layer = 0; layer < shape_.layers; ++layer)
        require(cache_->tokens(id, layer) == live.history.tokens(), "another length");
      require(state_of(*cache_, id) == live.state,
              "the state of " + std::to_string(id) + " is not the replay's");
    }
    require(!prefixes_ || prefixes_->blocks() == held_.count(), "other blocks are held");
    require(cache_->blocks_in_use() == (pool_.block_rows > 0 ? blocks_.count() : 0),
            "other blocks are in use");
    check_bytes();
  }

  // The closed form of sequences that share nothing, less what they do share.
  void check_bytes() {
    std::vector<int64_t> lengths, prompts;
    int64_t apart = 0;
    for (const auto& [id, live] : live_) {
      lengths.push_back(live.history.tokens());
      prompts.push_back(live.history.prompt());
      for (const std::vector<int>& list : live.blocks) apart += std::ssize(list);
    }
    const int64_t segment = std::max<int64_t>(1, pool_.segment_blocks);
    const auto whole = [&](int64_t blocks) {
      const int64_t rounded = (blocks + segment - 1) / segment * segment;
      return pool_.blocks > 0 ? std::min(rounded, pool_.blocks) : rounded;
    };
    const int64_t held = ledger_.payload().current_bytes + ledger_.metadata().current_bytes,
                  closed = predicted_bytes(spec_, shape_, lengths, prompts),
                  wanted = closed - (whole(apart) - whole(blocks_.count())) * block_bytes_;
    const std::string both = std::to_string(held) + " bytes, not " + std::to_string(wanted);
    ledger_.assert_balanced();
    require(gpu_ || ledger_.device().peak_bytes == 0, "a cache of the CPU has bytes on a GPU");
    require(!gpu_ || has_tiers(spec_) || ledger_.device().current_bytes >= ledger_.payload().current_bytes,
            "rows are not on the GPU");
    if (has_tiers(spec_)) {
      const TierBytes tiers = predicted_tiers(spec_, shape_, lengths, prompts);
      require(mixed_ || ledger_.tiers() == tiers, "tiers have other bytes");
      // A shared chunk lies where the oldest of its owners has it, in whole pages of the file; one that an owner cuts is copied.
      const bool pads = mixed_ && block_bytes_ % 4096 != 0;
      require(cut_ || pads || held + ledger_.disk().current_bytes == wanted + tiers.disk, both);
    } else if (segment > 1 && !compacted_) {
      require(held >= wanted, both);
    } else {
      require(held == wanted, both);
    }
  }

  const Spec spec_;
  const CacheShape shape_;
  cuda::Gpu* const gpu_;
  const RetentionEntry& retention_ = retention_of(spec_);
  const Codec codec_ = codec_of(spec_).make(spec_.codec);
  const int placed_heads_ = retention_.ragged ? shape_.kv_heads : 1;
  // The tests' own where rows are few; a GPU's kernels do not round queries.
  const double tolerance_ = gpu_                      ? 1e-5
                            : shape_.max_tokens > 300 ? kernel_error_bound(spec_)
                                                      : attention_tolerance(spec_);
  Spec plain_;  // the replays'
  PoolSettings pool_{.block_rows = 0};
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  std::optional<PrefixCache> prefixes_;
  int64_t block_rows_ = 0, block_bytes_ = 0;  // that sequences share, and that come and go
  std::map<SequenceId, Live> live_;
  std::vector<Saved> saved_;
  Held held_;
  std::vector<Ids> shared_;  // once; they may have been evicted
  Blocks blocks_;
  bool compacted_ = false;            // nothing has changed since
  bool mixed_ = false, cut_ = false;  // sequences have shared rows, and one of them went back since
};

// The fault after these operations, with the operations; or nothing.
inline std::string failure(const Spec& spec, const std::vector<Operation>& operations,
                           cuda::Gpu* gpu = nullptr) {
  Machine machine(spec, gpu);
  try {
    for (const Operation& operation : operations) machine.run(operation);
    machine.end();
  } catch (const std::exception& error) {
    return machine.log + "\n  " + error.what();
  }
  return "";
}

// Leaves out operations as long as the rest still fails.
inline std::string shortest_failure(const Spec& spec, std::vector<Operation> operations,
                                    cuda::Gpu* gpu = nullptr) {
  static int shortened = 0;
  std::string found = failure(spec, operations, gpu);
  if (!found.empty() && ++shortened > 3)
    return found;  // a bug that many specs have takes long to shorten for all
  for (size_t before = operations.size() + 1; !found.empty() && operations.size() < before;) {
    before = operations.size();
    for (size_t i = operations.size(); i-- > 0;) {
      std::vector<Operation> fewer = operations;
      fewer.erase(fewer.begin() + static_cast<int64_t>(i));
      if (std::string shorter = failure(spec, fewer, gpu); !shorter.empty()) {
        operations = std::move(fewer);
        found = std::move(shorter);
      }
    }
  }
  return found;
}

}  // namespace kv::cache_machine
