// The model of a cache with sequences that live beside each other: what each holds, by its tokens alone, and which blocks they have in
// common.
#pragma once

#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "tests/normal.h"
#include "tests/variants/retention_scene.h"
#include "variants/cache/prefill.h"

namespace kv::cache_machine {

using namespace contract;
using Ids = std::vector<int32_t>;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

enum class Kind { kAdd, kStep, kStepAll, kFork, kTruncate, kSave, kLoad, kShare, kEvict, kCompact, kRelease };

// `which` chooses among the sequences that live, `number` says how far, so that an operation still means something once others
// before it are left out.
struct Operation {
  Kind kind;
  uint64_t which, number;
};

inline std::vector<Operation> random_operations(uint64_t seed, size_t count) {
  constexpr Kind kKinds[] = {Kind::kAdd,   Kind::kStep,     Kind::kStep,    Kind::kStep,    Kind::kStep,
                             Kind::kStep,  Kind::kStepAll,  Kind::kFork,    Kind::kFork,    Kind::kTruncate,
                             Kind::kSave,  Kind::kTruncate, Kind::kLoad,    Kind::kCompact, Kind::kShare,
                             Kind::kEvict, Kind::kRelease,  Kind::kRelease, Kind::kRelease};
  std::mt19937_64 random(seed);
  std::vector<Operation> all{{Kind::kAdd, 0, 0}, {Kind::kStep, random(), random()}};
  while (all.size() < count) all.push_back({kKinds[random() % std::size(kKinds)], random(), random()});
  return all;
}

// Rows that move to another tier within this many tokens take as many; a pool that can be used up is filled by few.
inline CacheShape shape_of(const Spec& spec) {
  const auto tiers = tier_settings(spec);
  if (tiers && tiers->hot_rows + tiers->piece_rows < 2600)
    return {.q_heads = 2, .kv_heads = 2, .head_dim = 32, .max_tokens = 2600, .max_sequences = 4};
  const auto pool = pool_settings(spec);
  if (pool && pool->blocks > 0) return {.head_dim = 8, .max_tokens = 48, .max_sequences = 8};
  return {.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 224, .max_sequences = 4};
}

// The registry's product, and what moves rows between tiers, uses up a pool or empties its segments within a few tokens.
inline std::vector<Spec> machines(cuda::Gpu* gpu = nullptr) {
  std::vector<std::string> more{"tiered(hot=1,warm=0)/q8_0",
                                "tiered(hot=600,warm=0)/kivi",
                                "tiered(hot=100,warm=600)/f16",
                                "tiered(hot=700,warm=0)/token",
                                "tiered(hot=100,warm=400,chunk=1024)/q8_0",
                                "tiered(hot=100,warm=400,chunk=1536)",
                                "tiered(hot=100,warm=400,io=direct)/f16",
                                "paged(block=4,pool=20)",
                                "paged(block=4,pool=12)",
                                "paged(block=4,pool=20,segment=5)",
                                "paged(block=4,pool=20,segment=5,order=shuffled)"};
  for (const auto* codec : kCodecs)
    for (const std::string& form : codec_forms(*codec)) more.push_back("tiered(hot=100,warm=400)/" + form);
  std::vector<Spec> specs = supported_specs();
  for (const std::string& text : more) specs.push_back(parse_spec(text));
  std::erase_if(specs, [&](const Spec& spec) {
    return !unsupported_reason(spec, shape_of(spec).head_dim, gpu).empty();
  });
  return specs;
}

// Steps, around every border that caches have at these sizes.
inline std::vector<int64_t> lengths_of(const CacheShape& shape) {
  if (shape.max_tokens > 300) return {1, 1, 100, 257, 511, 700, 1025, 1537};
  if (shape.max_tokens < 100) return {1, 2, 3, 4, 5, 6};
  return {1, 1, 2, 5, 8, 16, 17, 31, 32, 33, 48, 64, 65, 97};
}

// Tokens [first, ids.size()) of a layer. A row depends on all ids up to its own, as a model's do, so that another prefix's rows
// are noticed.
inline Tokens rows_of(const CacheShape& shape, const Ids& ids, int64_t first, int layer) {
  static const std::vector<float> noise = test::gaussian(1 << 16, 7);
  const int64_t n = std::ssize(ids) - first, d = shape.head_dim;
  Tokens rows{n, {}, {}, {}};
  const std::pair<std::vector<float>*, int> sides[] = {
      {&rows.q, shape.q_heads}, {&rows.k, shape.kv_heads}, {&rows.v, shape.kv_heads}};
  for (const auto& [to, heads] : sides) to->resize(static_cast<size_t>(heads * n * d));
  const auto mix = [](uint64_t x) { return (x ^ (x >> 31)) * 0x9e3779b97f4a7c15; };
  uint64_t prefix = 1;
  for (int64_t t = 0; t < std::ssize(ids); ++t) {
    prefix = mix(prefix + static_cast<uint64_t>(ids[static_cast<size_t>(t)]) + 1);
    uint64_t own = mix(prefix + static_cast<uint64_t>(layer));
    for (const auto& [to, heads] : sides) {
      for (int h = 0; t >= first && h < heads; ++h) {
        own = mix(own + 1);
        std::copy_n(noise.begin() + static_cast<int64_t>((own >> 32) % (noise.size() - 64)), d,
                    to->begin() + (h * n + t - first) * d);
      }
    }
  }
  return rows;
}

struct Text : Writer, Reader {
  std::string bytes;
  size_t at = 0;
  void write(const std::byte* data, size_t n) override {
    bytes.append(reinterpret_cast<const char*>(data), n);
  }
  void read(std::byte* data, size_t n) override {
    require(at + n <= bytes.size(), "more is read than was written");
    std::memcpy(data, bytes.data() + std::exchange(at, at + n), n);
  }
};

// All that a sequence holds, without the names of its stages; of tiers, which write in another order, the rows and their tokens.
inline std::string state(Cache& cache, SequenceId id, bool tiers) {
  Text text;
  if (!tiers) {
    cache.write(text, id);
    text.get_text(1 << 16);
    return text.bytes.substr(text.at);
  }
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    for (int head = 0; head < cache.shape().kv_heads; ++head) {
      const Stored stored = read_back(cache, id, layer, head);
      text.put(std::span<const int64_t>(cache.kept(id, layer, head)));
      text.put(std::span<const float>(stored.k));
      text.put(std::span<const float>(stored.v));
    }
  }
  return text.bytes;
}

using Batch = std::vector<std::pair<SequenceId, Ids>>;

// The last `n` ids of each sequence through every layer, as one batch. Outputs by sequence, the layers' one behind the other; of long
// chunks the last token's alone, since attention of all is work that grows with the square of n.
inline std::vector<std::vector<float>> step(Cache& cache, const Batch& batch, int64_t n,
                                            bool answers = true) {
  if (n > 100 && answers) {
    Batch before = batch;
    for (auto& [id, ids] : before) ids.pop_back();
    step(cache, before, n - 1, false);
    n = 1;
  }
  std::vector<std::vector<float>> outputs(batch.size());
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    std::vector<Tokens> rows;
    for (const auto& [id, ids] : batch)
      rows.push_back(rows_of(cache.shape(), ids, std::ssize(ids) - n, layer));
    std::vector<std::vector<float>> out(batch.size(), std::vector<float>(rows.front().q.size(), NAN));
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < batch.size(); ++i)
      inputs.push_back({batch[i].first, n, rows[i].q.data(), rows[i].k.data(), rows[i].v.data(),
                        answers ? out[i].data() : nullptr});
    cache.step(layer, inputs);
    for (size_t i = 0; i < out.size(); ++i) outputs[i].insert(outputs[i].end(), out[i].begin(), out[i].end());
  }
  return outputs;
}

// The tokens of a sequence, in the chunks that they came in.
struct History {
  Ids ids;
  std::vector<int64_t> chunks;
  int64_t tokens() const { return std::ssize(ids); }
  int64_t prompt() const { return chunks.empty() ? 0 : chunks[0]; }
  void append(const Ids& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    if (!more.empty()) chunks.push_back(std::ssize(more));
  }
  void cut(int64_t to) {
    ids.resize(static_cast<size_t>(to));
    for (int64_t excess = std::accumulate(chunks.begin(), chunks.end(), -to); excess > 0;) {
      const int64_t from_last = std::min(excess, chunks.back());
      excess -= from_last;
      if ((chunks.back() -= from_last) == 0) chunks.pop_back();
    }
  }
};

// Rows of the last layer are those that the codec makes of their tokens, and the newest token's outputs FP64 attention over them.
inline void check_attention(Cache& cache, SequenceId id, const History& of, const std::vector<float>& out,
                            double tolerance) {
  const CacheShape& shape = cache.shape();
  const int layer = shape.layers - 1, d = shape.head_dim;
  const Tokens all = rows_of(shape, of.ids, 0, layer);
  const int64_t n = std::ssize(out) / (shape.layers * shape.q_heads * d);
  std::vector<float> got, want;
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const auto of_head = [&](const std::vector<float>& rows) {
      const auto first = rows.begin() + kv_head * all.n * d;
      return std::vector<float>(first, first + all.n * d);
    };
    const std::string misplaced =
        verify::misplaced_row(cache, id, layer, kv_head, {of_head(all.k), of_head(all.v)});
    require(misplaced.empty(), misplaced);
    const Stored stored = rows_read(cache, id, layer, kv_head, read_back(cache, id, layer, kv_head));
    for (int h = kv_head * shape.group(); h < (kv_head + 1) * shape.group(); ++h) {
      const std::span q(all.q.data() + ((h + 1) * all.n - 1) * d, static_cast<size_t>(d));
      const auto result = attend_stored(cache, q, stored, cache.kept(id, layer, kv_head));
      const auto last = out.end() - ((shape.q_heads - h - 1) * n + 1) * d;
      for (int x = 0; x < d; ++x) want.push_back(static_cast<float>(result.out[x]));
      got.insert(got.end(), last, last + d);
    }
  }
  // A prompt may attend to rows that are encoded or dropped behind it.
  const Spec& spec = cache.spec(layer);
  if (of.chunks.size() == 1 && n > 1 && (prefills_full(spec) || retention_of(spec).cuts_prompt)) return;
  const double error = relative_l2(got, want);
  require(error < tolerance, "attention of " + std::to_string(id) + " is off by " + std::to_string(error));
}

// The FP64 policy keeps the same tokens. Kernels that round queries order near ties as they like.
inline void check_policy(Cache& cache, SequenceId id, const History& of) {
  const CacheShape& shape = cache.shape();
  const int layer = shape.layers - 1;
  const Spec& spec = cache.spec(layer);
  const RetentionEntry& retention = retention_of(spec);
  if (retention.keeps_all || (!retention.ring && kernel_error_bound(spec) > 1e-5) || of.tokens() == 0 ||
      !reference::find_oracle(spec.retention.name))
    return;
  const Codec codec = codec_of(spec).make(spec.codec);
  const Tokens came = rows_of(shape, of.ids, 0, layer);
  Tokens stored = came;
  stored.k = verify::as_stored(codec, false, shape.kv_heads, shape.head_dim, came.k);
  stored.v = verify::as_stored(codec, true, shape.kv_heads, shape.head_dim, came.v);
  reference::PolicyInput input = retention_tests::input_of(shape, stored);
  input.raw_k = came.k;
  input.raw_v = came.v;
  input.layer = layer;
  input.prompt = retention.cuts_prompt ? of.prompt() : 0;
  const auto policy = verify::policy_of(spec, shape.max_tokens, shape.kv_heads);
  const auto run = reference::run_policy(policy, input);
  for (int h = 0; h < shape.kv_heads; ++h) {
    std::vector<int64_t> kept = cache.kept(id, layer, h);
    if (!policy.groups.are_single()) std::sort(kept.begin(), kept.end());  // groups have no places there
    require(kept == run.kept[static_cast<size_t>(h)].back(), "the FP64 policy keeps other tokens");
  }
}

// A history in a cache of its own.
struct Replay {
  Replay(const Spec& spec, const CacheShape& shape, cuda::Gpu* gpu, const History& of)
      : ledger(INT64_MAX, gpu), cache(build_cache(spec, shape, ledger)), id(cache->add_sequence()) {
    int64_t end = 0;
    for (const int64_t n : of.chunks) {
      end += n;
      step(*cache, {{id, Ids(of.ids.begin(), of.ids.begin() + end)}}, n);
    }
  }
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  SequenceId id;
};

// The blocks that a placement would hold: who has which, in numbers alone.
struct Blocks {
  std::map<int, int> owners;  // by block
  int next = 0;
  int64_t count() const { return std::ssize(owners); }
  void own(std::vector<int>& list, int block) {
    ++owners[block];
    list.push_back(block);
  }
  void drop(int block) {
    if (--owners.at(block) == 0) owners.erase(block);
  }
  void cut(std::vector<int>& list, int64_t blocks) {
    for (; std::ssize(list) > blocks; list.pop_back()) drop(list.back());
  }
  // Blocks [first, end) are written: a shared one is replaced by a copy.
  void write(std::vector<int>& list, int64_t first, int64_t end) {
    for (int64_t b = first; b < end; ++b) {
      if (b == std::ssize(list)) {
        own(list, next++);
      } else if (int& block = list[static_cast<size_t>(b)]; owners.at(block) > 1) {
        drop(block);
        owners[block = next++] = 1;
      }
    }
  }
};

// The blocks that a prefix cache holds, as vLLM and SGLang do: whole blocks, each found by all ids before its end. The least recently used goes
// first of those that no longer prefix and no sequence needs.
class Held {
 public:
  using Lists = std::vector<std::vector<int>>;  // [layers, placed heads] of a sequence's blocks

  explicit Held(int64_t block_tokens = 0) : tokens_(block_tokens) {}
  int64_t count() const { return std::ssize(held_); }
  Ids longest(const Ids& wanted) const {
    Ids found;
    for (int64_t n = tokens_; n > 0 && n <= std::ssize(wanted) && held_.contains(head(wanted, n));
         n += tokens_)
      found = head(wanted, n);
    return found;
  }
  void touch(const Ids& last) {
    ++now_;
    for (int64_t n = tokens_; n > 0 && n <= std::ssize(last); n += tokens_)
      held_.at(head(last, n)).used = now_;
  }
  Lists adopt(const Ids& prefix, size_t lists, Blocks& blocks) {
    Lists owned(lists);
    for (int64_t n = tokens_; n > 0 && n <= std::ssize(prefix); n += tokens_)
      for (size_t i = 0; i < lists; ++i) blocks.own(owned[i], held_.at(head(prefix, n)).blocks[i]);
    touch(prefix);
    return owned;
  }
  // True if a block is held that was not before; `uses` is then the longest such prefix.
  bool share(const Ids& ids, const Lists& lists, Ids& uses, Blocks& blocks) {
    bool any = false;
    Ids last;
    for (int64_t n = tokens_; n <= std::ssize(ids); n += tokens_) {
      last = head(ids, n);
      if (held_.contains(last)) continue;
      for (const std::vector<int>& list : lists)
        blocks.own(held_[last].blocks, list[static_cast<size_t>(n / tokens_ - 1)]);
      uses = last;
      any = true;
    }
    touch(last);
    return any;
  }
  bool evict(const std::set<Ids>& uses, Blocks& blocks) {
    auto oldest = held_.end();
    for (auto at = held_.begin(); at != held_.end(); ++at) {
      const auto next = std::next(at);
      const bool leads = next != held_.end() && head(next->first, std::ssize(at->first)) == at->first;
      if (!leads && !uses.contains(at->first) &&
          (oldest == held_.end() || at->second.used < oldest->second.used))
        oldest = at;
    }
    if (oldest == held_.end()) return false;
    blocks.cut(oldest->second.blocks, 0);
    held_.erase(oldest);
    return true;
  }

 private:
  struct Prefix {
    std::vector<int> blocks;  // [layers, placed heads]
    int64_t used = 0;
  };
  static Ids head(const Ids& ids, int64_t n) {
    return {ids.begin(), ids.begin() + std::min(n, std::ssize(ids))};
  }

  int64_t tokens_, now_ = 0;
  std::map<Ids, Prefix> held_;
};

}  // namespace kv::cache_machine
