// Linear layers: the state that a gated DeltaNet layer keeps, against FP64, and as layers of a model's cache.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "harness/config/geometry.h"
#include "harness/verify/reference/delta_rule.h"
#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::linear_test {
namespace {

using namespace contract;

// Tokens of one linear layer, as a layer of the model makes them: keys of length 1, scaled queries, gates in (0, 1).
struct LinearTokens {
  LinearShape shape;
  int64_t n;
  std::vector<float> q, k, v, alpha, beta;

  LinearTokens(const LinearShape& of, int64_t tokens, uint64_t seed) : shape(of), n(tokens) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> gate(0.05f, 0.999f);
    q.resize(static_cast<size_t>(shape.key_heads * n * shape.key_dim));
    k.resize(q.size());
    v.resize(static_cast<size_t>(shape.value_heads * n * shape.value_dim));
    alpha.resize(static_cast<size_t>(shape.value_heads * n));
    beta.resize(alpha.size());
    const float unit = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));  // about: of normal values
    for (float& x : q) x = normal(rng) * unit;
    for (float& x : k) x = normal(rng) * unit;
    for (float& x : v) x = normal(rng);
    for (float& x : alpha) x = gate(rng);
    for (float& x : beta) x = gate(rng);
  }

  // Steps tokens [first, first + count); returns the outputs [value_heads, count, value_dim].
  std::vector<float> step(Cache& cache, SequenceId id, int layer, int64_t first, int64_t count) const {
    const auto cut = [&](const std::vector<float>& from, int heads, int dim) {
      std::vector<float> part;
      for (int h = 0; h < heads; ++h) {
        const auto at = from.begin() + (h * n + first) * dim;
        part.insert(part.end(), at, at + count * dim);
      }
      return part;
    };
    const auto q1 = cut(q, shape.key_heads, shape.key_dim), k1 = cut(k, shape.key_heads, shape.key_dim),
               v1 = cut(v, shape.value_heads, shape.value_dim), a1 = cut(alpha, shape.value_heads, 1),
               b1 = cut(beta, shape.value_heads, 1);
    std::vector<float> out(v1.size(), NAN);
    const StepInput in{.sequence = id,
                       .n = count,
                       .q = q1.data(),
                       .k = k1.data(),
                       .v = v1.data(),
                       .out = out.data(),
                       .alpha = a1.data(),
                       .beta = b1.data()};
    cache.step(layer, {&in, 1});
    return out;
  }

  // The FP64 outputs of all heads, [value_heads, n, value_dim].
  std::vector<float> reference() const {
    std::vector<float> all;
    const auto head_of = [&](const std::vector<float>& from, int head, int dim) {
      return std::span(from).subspan(static_cast<size_t>(head * n * dim), static_cast<size_t>(n * dim));
    };
    for (int h = 0; h < shape.value_heads; ++h) {
      const int key_head = h / (shape.value_heads / shape.key_heads);
      const auto result = reference::run_delta_rule({.key_dim = shape.key_dim,
                                                     .value_dim = shape.value_dim,
                                                     .q = head_of(q, key_head, shape.key_dim),
                                                     .k = head_of(k, key_head, shape.key_dim),
                                                     .v = head_of(v, h, shape.value_dim),
                                                     .alpha = head_of(alpha, h, 1),
                                                     .beta = head_of(beta, h, 1)});
      for (const double x : result.out) all.push_back(static_cast<float>(x));
    }
    return all;
  }
};

constexpr int64_t kMaxTokens = 300;
constexpr LinearShape kSmall{.key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 40};

// Linear, linear, full, linear, full that shares: what a hybrid may have.
ModelShape hybrid(const LinearShape& linear = kSmall) {
  const ModelLayer state{.kind = "linear"};
  return {{.layers = 5,
           .q_heads = 4,
           .kv_heads = 2,
           .head_dim = 32,
           .max_tokens = kMaxTokens,
           .max_sequences = 4},
          {state, state, {}, state, {.shares = 2}},
          linear};
}

TEST(LinearLayers, StatesFollowFP64) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_layer_specs("contiguous/f16"), hybrid(), ledger);
  const SequenceId id = cache->add_sequence();
  for (const int layer : {0, 1, 3}) {
    const LinearTokens tokens(kSmall, kMaxTokens, 11 + static_cast<uint64_t>(layer));
    const std::vector<float> out = tokens.step(*cache, id, layer, 0, kMaxTokens);
    EXPECT_LT(relative_l2(out, tokens.reference()), 1e-6) << layer;
    EXPECT_EQ(cache->tokens(id, layer), kMaxTokens);
    EXPECT_FALSE(cache->keeps_rows(layer));
    EXPECT_TRUE(cache->spans(id, layer, 0).empty());
  }
}

// The published geometry: 16 heads of 128 x 128 in 18 of 24 layers.
TEST(LinearLayers, ThePublishedGeometryHolds18MiB) {
  const config::Geometry g = config::preset_geometry("qwen3.5-0.8b");
  const ModelShape shape({.layers = 24,
                          .q_heads = g.q_heads,
                          .kv_heads = g.kv_heads,
                          .head_dim = g.head_dim,
                          .max_tokens = 64,
                          .max_sequences = 2},
                         g.kinds, g.linear);
  memory::Ledger ledger;
  const auto cache = build_cache(parse_layer_specs("concat"), shape, ledger);
  const SequenceId id = cache->add_sequence();
  EXPECT_EQ(held_bytes(ledger), 18 << 20);
  const LinearTokens tokens(g.linear, 20, 3);
  EXPECT_LT(relative_l2(tokens.step(*cache, id, 0, 0, 20), tokens.reference()), 1e-6);
  EXPECT_EQ(held_bytes(ledger), 18 << 20);  // it does not grow
  const int64_t length = 64, none = 0;
  EXPECT_EQ(predicted_bytes(parse_layer_specs("concat"), shape, {&none, 1}), 18 << 20);
  EXPECT_EQ(predicted_bytes(parse_layer_specs("concat"), shape, {&length, 1}),
            (18 << 20) + 6 * 4096 * length);
  cache->fork(id);
  EXPECT_EQ(held_bytes(ledger), 2 * (18 << 20));
}

TEST(LinearLayers, ChunksAppendsAndAttendsAgreeBitForBit) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_layer_specs("contiguous/f16"), hybrid(), ledger);
  const SequenceId whole = cache->add_sequence(), single = cache->add_sequence();
  const LinearTokens tokens(kSmall, 9, 2);
  const std::vector<float> out = tokens.step(*cache, whole, 1, 0, 9);
  std::vector<float> last;
  for (int64_t t = 0; t < 8; ++t) tokens.step(*cache, single, 1, t, 1);
  last = tokens.step(*cache, single, 1, 8, 1);
  for (int h = 0; h < kSmall.value_heads; ++h) {
    for (int j = 0; j < kSmall.value_dim; ++j)
      EXPECT_EQ(last[static_cast<size_t>(h * kSmall.value_dim + j)],
                out[static_cast<size_t>((h * 9 + 8) * kSmall.value_dim + j)]);
  }
  std::vector<float> q(tokens.q.size(), 0.5f), answer(tokens.v.size(), NAN);
  const StepInput two{.sequence = whole,
                      .n = 2,
                      .q = q.data(),
                      .k = q.data(),
                      .v = q.data(),
                      .out = answer.data(),
                      .alpha = q.data(),
                      .beta = q.data()};
  EXPECT_THROW(cache->append(1, {&two, 1}), std::logic_error);
  const StepInput without{
      .sequence = whole, .n = 1, .q = q.data(), .k = q.data(), .v = q.data(), .out = answer.data()};
  EXPECT_THROW(cache->step(1, {&without, 1}), std::logic_error);
}

TEST(LinearLayers, ForksSnapshotsAndFilesGoOnBitForBit) {
  memory::Ledger ledger;
  const ModelShape shape = hybrid();
  const LayerSpecs specs = parse_layer_specs("concat/f16");
  const auto cache = build_cache(specs, shape, ledger);
  const SequenceId id = cache->add_sequence();
  const LinearTokens tokens(kSmall, 40, 4);
  const Tokens rows = make_tokens(shape, 40, 8);
  tokens.step(*cache, id, 0, 0, 30);
  drive(*cache, id, slice(shape, rows, 0, 30), std::array<int64_t, 1>{30}, 2);
  const std::string path = passing_path("hybrid");
  cache->save(id, path);
  const SequenceId fork = cache->fork(id), restored = cache->restore(cache->snapshot(id)),
                   loaded = cache->load(path);
  const int64_t lengths[] = {30, 30, 30, 30};
  EXPECT_EQ(held_bytes(ledger), predicted_bytes(specs, shape, lengths));
  const std::vector<float> want = tokens.step(*cache, id, 0, 30, 10);
  for (const SequenceId other : {fork, restored, loaded}) {
    EXPECT_EQ(tokens.step(*cache, other, 0, 30, 10), want);
    EXPECT_EQ(cache->tokens(other, 2), 30);
  }
  LinearShape wider = kSmall;
  wider.value_dim = 48;
  memory::Ledger second;
  EXPECT_THROW(build_cache(specs, hybrid(wider), second)->load(path), std::invalid_argument);
  std::filesystem::remove(path);
}

TEST(LinearLayers, ShapesThatCannotBeAreRefused) {
  memory::Ledger ledger;
  for (const LinearShape& shape : {LinearShape{}, LinearShape{2, 3, 8, 8}, LinearShape{2, 4, 0, 8}})
    EXPECT_THROW(build_cache(parse_layer_specs("contiguous"), hybrid(shape), ledger), std::invalid_argument);
  ModelShape mamba = hybrid();
  mamba.kinds[0].kind = "mamba";
  EXPECT_THROW(build_cache(parse_layer_specs("contiguous"), mamba, ledger), std::invalid_argument);
}

// ---- layers that read another's cache ----

TEST(SharedLayers, ReadTheOthersRowsAndStoreNothing) {
  for (const char* spec : {"contiguous/f16", "paged(block=16)/q8_0", "contiguous/kivi(bits=4)"}) {
    memory::Ledger ledger;
    const ModelShape shape = hybrid();
    const LayerSpecs specs = parse_layer_specs(spec);
    const auto cache = build_cache(specs, shape, ledger);
    const SequenceId id = cache->add_sequence();
    const Tokens rows = make_tokens(shape, 100, 8), others = make_tokens(shape, 100, 9);
    for (int64_t t = 0; t < 100; ++t) {
      const Tokens token = slice(shape, rows, t, 1);
      drive(*cache, id, token, std::array<int64_t, 1>{1}, 2);
      const Tokens other = slice(shape, others, t, 1);
      const std::vector<float> out = drive(*cache, id, other, std::array<int64_t, 1>{1}, 4);
      const int64_t n = t + 1;
      ASSERT_EQ(held_bytes(ledger), predicted_bytes(specs, shape, {&n, 1})) << spec << " at " << n;
      if (t % 33 != 0) continue;
      const std::vector<int64_t> kept = cache->kept(id, 4, 0);
      EXPECT_EQ(kept.size(), static_cast<size_t>(n));
      for (int h = 0; h < shape.q_heads; ++h) {
        const Stored stored = read_back(*cache, id, 2, h / 2);
        const auto want = reference::attend(std::span(other.q).subspan(static_cast<size_t>(h * 32), 32),
                                            stored.k, stored.v, stored.rows);
        const std::vector<float> expected(want.out.begin(), want.out.end());
        EXPECT_LT(relative_l2(std::span(out).subspan(static_cast<size_t>(h * 32), 32), expected),
                  attention_tolerance(specs.fallback));
      }
    }
    EXPECT_EQ(cache->tokens(id, 4), 100);
  }
}

TEST(SharedLayers, APromptOfEvictedRowsIsRefused) {
  memory::Ledger ledger;
  const ModelLayer sliding{.kind = "sliding", .window = 40};
  ModelLayer reader = sliding;
  reader.shares = 0;
  const ModelShape shape({.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 100},
                         {sliding, reader});
  const auto cache = build_cache(parse_layer_specs("contiguous/f16"), shape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens tokens = make_tokens(shape, 60, 1);
  drive(*cache, id, tokens, std::array<int64_t, 1>{60}, 0);
  EXPECT_THROW(drive(*cache, id, tokens, std::array<int64_t, 1>{60}, 1), std::logic_error);
  const Tokens next = make_tokens(shape, 1, 2);
  drive(*cache, id, next, std::array<int64_t, 1>{1}, 0);
  EXPECT_NO_THROW(drive(*cache, id, next, std::array<int64_t, 1>{1}, 1));
}

}  // namespace
}  // namespace kv::linear_test
