// Blocks that are found by their tokens: the bits of what was computed, the bytes of distinct blocks, what is evicted, and
// that equal hashes are not taken for equal tokens.
#include "variants/cache/prefix_cache.h"
#include "tests/normal.h"

#include <numeric>

#include "tests/message_of.h"
#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::prefix_cache_test {
namespace {

using namespace contract;
using Ids = std::vector<int32_t>;

constexpr CacheShape kShape{
    .layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 400, .max_sequences = 4};

std::vector<Spec> specs_that(bool share) {
  std::vector<Spec> specs;
  for (const Spec& spec : supported_specs()) {
    if (unshareable_reason(spec).empty() == share) specs.push_back(spec);
  }
  return specs;
}

// Rows of tokens with these ids, each the same wherever it is made.
Tokens tokens_of(const CacheShape& shape, const Ids& ids) {
  Tokens all = make_tokens(shape, std::ssize(ids), 1);
  const auto fill = [&](std::vector<float>& rows, int heads, int side) {
    for (int h = 0; h < heads; ++h) {
      for (size_t t = 0; t < ids.size(); ++t) {
        const auto row = test::gaussian(shape.head_dim, static_cast<uint64_t>((ids[t] * 8 + h) * 3 + side));
        std::copy(row.begin(), row.end(),
                  rows.begin() + (h * std::ssize(ids) + static_cast<int64_t>(t)) * shape.head_dim);
      }
    }
  };
  fill(all.q, shape.q_heads, 0);
  fill(all.k, shape.kv_heads, 1);
  fill(all.v, shape.kv_heads, 2);
  return all;
}

// Computes what a sequence has not of `ids`; the outputs of the last layer.
std::vector<float> compute(Cache& cache, SequenceId id, const Ids& ids) {
  const int64_t first = cache.tokens(id, 0), n = std::ssize(ids) - first;
  const Tokens part = slice(cache.shape(), tokens_of(cache.shape(), ids), first, n);
  std::vector<float> out;
  for (int layer = 0; layer < cache.shape().layers; ++layer) out = drive(cache, id, part, {&n, 1}, layer);
  return out;
}

Ids counted(int64_t n, int32_t first = 0) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}
Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(UnsharedPrefix, IsRefusedWithAReason) {
  memory::Ledger ledger;
  const auto reason = [&](const Spec& spec) {
    const auto cache = build_cache(spec, kShape, ledger);
    EXPECT_THROW(cache->hold(cache->add_sequence(), 0), std::logic_error);
    return message_of([&] { PrefixCache prefixes(*cache); });
  };
  for (const Spec& spec : specs_that(false))
    EXPECT_EQ(reason(spec).find("prefixes cannot be shared: "), 0u) << spec.print();
  EXPECT_EQ(reason(parse_spec("paged/f32/ring(window=24)")),
            "prefixes cannot be shared: retention 'ring' overwrites rows, but shared rows must not change");
  EXPECT_EQ(reason(parse_spec("paged(block=32)/kivi")),
            "prefixes cannot be shared: codec 'kivi' keeps raw rows outside the blocks");
  EXPECT_EQ(reason(parse_spec("contiguous")),
            "prefixes cannot be shared: placement 'contiguous' has no blocks that sequences can share");
}

// Blocks of 4 tokens in a pool of so many for each layer.
struct Pool {
  explicit Pool(int64_t blocks, PrefixCache::Hash hash = PrefixCache::hash)
      : cache(build_cache(parse_spec("paged(block=4,pool=" + std::to_string(2 * blocks) + ")"), kShape,
                          ledger)),
        prefixes(*cache, hash) {}
  // Computes and shares a sequence of these ids; makes room for it where there is none.
  SequenceId live(const Ids& ids) {
    const SequenceId id = prefixes.add_sequence(ids);
    if (cache->tokens(id, 0) < std::ssize(ids)) {
      const int64_t first = cache->tokens(id, 0);
      prefixes.make_room_for([&] {
        cache->truncate(id, first);  // a layer may have had room where another had none
        compute(*cache, id, ids);
      });
    }
    prefixes.share(id, ids);
    return id;
  }
  void finish(const Ids& ids) { prefixes.release(live(ids)); }
  // Tokens of `ids` that are held.
  int64_t found(const Ids& ids) {
    const SequenceId id = prefixes.add_sequence(ids);
    const int64_t tokens = cache->tokens(id, 0);
    prefixes.release(id);
    return tokens;
  }
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  PrefixCache prefixes;
};

TEST(PrefixCache, TellsPrefixesOfEqualHashesApart) {
  Pool pool(50, [](uint64_t, std::span<const int32_t>) -> uint64_t { return 7; });
  const Ids a = counted(8), b = counted(8, 50), c = joined(counted(4), counted(4, 50)),
            d = joined(counted(4, 50), counted(4, 54));
  for (const Ids& ids : {a, b, c}) pool.finish(ids);
  EXPECT_EQ(pool.prefixes.blocks(), 2 + 2 + 1);
  for (const Ids& ids : {a, b, c, d}) EXPECT_EQ(pool.found(ids), 8);
  EXPECT_EQ(pool.found(joined(counted(4), counted(4, 54))), 4);
  const SequenceId id = pool.prefixes.add_sequence(b);
  const SequenceId oracle = pool.cache->add_sequence();
  compute(*pool.cache, oracle, b);
  EXPECT_EQ(read_back(*pool.cache, id, 1, 1).k, read_back(*pool.cache, oracle, 1, 1).k);
  EXPECT_EQ(pool.prefixes.evict(9), 3) << "a live sequence has the two of b";
}

TEST(PrefixCacheOfModels, SharesWhereAllGroupsDo) {
  const ModelShape shape(kShape, {});
  memory::Ledger ledger;
  const auto cache =
      build_cache(parse_layer_specs("paged(block=16)/q8_0 + 1:segmented(rows=16)"), shape, ledger);
  PrefixCache prefixes(*cache);
  const SequenceId first = prefixes.add_sequence(counted(40));
  compute(*cache, first, counted(40));
  prefixes.share(first, counted(40));
  const SequenceId second = prefixes.add_sequence(counted(40));
  EXPECT_EQ(cache->tokens(second, 0), 32);
  EXPECT_EQ(cache->tokens(second, 1), 32);
  compute(*cache, second, counted(40));
  for (int layer = 0; layer < 2; ++layer)
    EXPECT_EQ(read_back(*cache, second, layer, 1).v, read_back(*cache, first, layer, 1).v);
  const auto uneven = build_cache(parse_layer_specs("paged(block=16) + 1:segmented(rows=32)"), shape, ledger);
  EXPECT_EQ(uneven->refuses_sharing(), "layers have blocks of 16 and of 32 tokens");
  const auto sliding = build_cache(parse_layer_specs("paged + 1:paged/f32/ring(window=24)"), shape, ledger);
  EXPECT_NE(sliding->refuses_sharing().find("retention 'ring'"), std::string::npos);
}

}  // namespace
}  // namespace kv::prefix_cache_test
