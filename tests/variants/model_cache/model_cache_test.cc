// The contract of a cache of layers that differ: to the bit what single caches of the same specs give, at the bytes of
// the closed form.
#include "variants/model_cache/model_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/variants/contract.h"
#include "variants/model_cache/resolve.h"

namespace kv::model_cache_test {
namespace {

using namespace contract;

constexpr int64_t kTokens = 150;
const ModelLayer kSliding{.kind = "sliding", .window = 40};

ModelShape shape_of_layers(std::vector<ModelLayer> kinds) {
  const int layers = static_cast<int>(kinds.size());
  return {{.layers = layers,
           .q_heads = 4,
           .kv_heads = 2,
           .head_dim = 32,
           .max_tokens = kTokens,
           .max_sequences = 4},
          std::move(kinds)};
}

Tokens tokens_of(const ModelShape& shape, int layer, int sequence = 0) {
  return make_tokens(shape, kTokens, 7 + static_cast<uint64_t>(layer + 100 * sequence));
}

// A prompt, several tokens, then one by one.
std::vector<int64_t> chunks_to(int64_t from, int64_t to) {
  std::vector<int64_t> chunks;
  if (from == 0) chunks = {35, 12};
  for (int64_t at = from == 0 ? 47 : from; at < to; ++at) chunks.push_back(1);
  return chunks;
}

const char* const kSpecs[] = {
    "contiguous/f16 + 0:contiguous/f32 + 2:doubling/q8_0",
    "contiguous/kivi(bits=2) + 0,3:contiguous/f16 + sliding:contiguous/q4_0/ring(window=model)",
    "paged(block=16)/f16 + full:segmented/token(bits=4)",
    "concat/f16/h2o(heavy=8,recent=8) + 2:contiguous/f16/tova(budget=12)",
    "contiguous/ring(window=20,positions=cache) + 0:concat/f16/ring(window=12,sinks=2,positions=cache)",
};

class ModelCaches : public testing::TestWithParam<const char*> {
 protected:
  const LayerSpecs specs_ = parse_layer_specs(GetParam());
  const ModelShape shape_ = shape_of_layers({{}, kSliding, {}, kSliding, kSliding, {}});
};

TEST_P(ModelCaches, EqualSingleCachesBitForBit) {
  memory::Ledger ledger;
  const auto cache = build_cache(specs_, shape_, ledger);
  const SequenceId id = cache->add_sequence();
  const auto resolved = resolve(specs_, shape_.kinds, kTokens);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    ASSERT_EQ(cache->spec(layer).print(), resolved[static_cast<size_t>(layer)].spec.print());
    CacheShape one = shape_;
    one.layers = 1;
    memory::Ledger other;
    const auto single = build_cache(resolved[static_cast<size_t>(layer)].spec, one, other);
    const SequenceId there = single->add_sequence();
    const Tokens tokens = tokens_of(shape_, layer);
    EXPECT_EQ(drive(*cache, id, tokens, chunks_to(0, kTokens), layer),
              drive(*single, there, tokens, chunks_to(0, kTokens)))
        << layer;
    EXPECT_EQ(cache->tokens(id, layer), kTokens);
    for (int head = 0; head < shape_.kv_heads; ++head) {
      EXPECT_EQ(cache->kept(id, layer, head), single->kept(there, 0, head));
      EXPECT_EQ(read_back(*cache, id, layer, head).k, read_back(*single, there, 0, head).k);
    }
  }
}

TEST_P(ModelCaches, HoldWhatTheClosedFormSays) {
  memory::Ledger ledger;
  const auto cache = build_cache(specs_, shape_, ledger);
  const SequenceId a = cache->add_sequence(), b = cache->add_sequence();
  for (int64_t n = 1; n <= kTokens; ++n) {
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (const SequenceId id : {a, b}) {
        const Tokens token = make_tokens(shape_, 1, static_cast<uint64_t>(n));
        drive(*cache, id, token, std::array<int64_t, 1>{1}, layer);
      }
    }
    const int64_t lengths[] = {n, n};
    ASSERT_EQ(held_bytes(ledger), predicted_bytes(specs_, shape_, lengths)) << n;
  }
  cache->release(a);
  const int64_t one = kTokens;
  EXPECT_EQ(held_bytes(ledger), predicted_bytes(specs_, shape_, {&one, 1}));
  ledger.assert_balanced();
}

// Outputs of every layer, from token 90 on.
std::vector<std::vector<float>> go_on(Cache& cache, SequenceId id, const ModelShape& shape) {
  std::vector<std::vector<float>> outputs;
  for (int layer = 0; layer < shape.layers; ++layer) {
    const Tokens rest = slice(shape, tokens_of(shape, layer), 90, kTokens - 90);
    outputs.push_back(drive(cache, id, rest, std::vector<int64_t>(kTokens - 90, 1), layer));
  }
  return outputs;
}

TEST_P(ModelCaches, ForksSnapshotsAndFilesGoOnBitForBit) {
  memory::Ledger ledger;
  const auto cache = build_cache(specs_, shape_, ledger);
  const SequenceId id = cache->add_sequence();
  for (int layer = 0; layer < shape_.layers; ++layer)
    drive(*cache, id, slice(shape_, tokens_of(shape_, layer), 0, 90), chunks_to(0, 90), layer);
  const std::string path = passing_path("model_cache");
  cache->save(id, path);
  const Snapshot snapshot = cache->snapshot(id);
  const SequenceId fork = cache->fork(id);
  const auto want = go_on(*cache, id, shape_);
  EXPECT_EQ(go_on(*cache, fork, shape_), want);
  EXPECT_EQ(go_on(*cache, cache->restore(snapshot), shape_), want);
  memory::Ledger other;
  const auto again = build_cache(specs_, shape_, other);
  EXPECT_EQ(go_on(*again, again->load(path), shape_), want);
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(LayersThatDiffer, ModelCaches, testing::ValuesIn(kSpecs));

TEST(ModelCache, LayersThatAreAlikeAreOnePlainCache) {
  const ModelShape shape = shape_of_layers({{}, {}, {}});
  EXPECT_EQ(groups_of(parse_layer_specs("concat + 0-2:contiguous/f16"), shape).size(), 1u);
  memory::Ledger ledger;
  EXPECT_EQ(dynamic_cast<ModelCache*>(build_cache(parse_spec("concat"), shape, ledger).get()), nullptr);
}

// Four layers of 80 rows on average keep 320 of a prompt of 100, which the first layer's budget of 141 exceeds.
TEST(ModelCache, APyramidKeepsAllItsRowsOfAShortPrompt) {
  const ModelShape shape = shape_of_layers({{}, {}, {}, {}});
  const LayerSpecs specs = parse_layer_specs("paged/f32/pyramid(budget=80,window=16)");
  memory::Ledger ledger, other;
  const auto cache = build_cache(specs, shape, ledger), again = build_cache(specs, shape, other);
  const SequenceId id = cache->add_sequence();
  for (int layer = 0; layer < shape.layers; ++layer) {
    const Tokens tokens = slice(shape, tokens_of(shape, layer), 0, 101);
    drive(*cache, id, tokens, std::array<int64_t, 2>{100, 1}, layer);
  }
  const SequenceId copy = again->restore(cache->snapshot(id));
  int64_t kept = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    kept += std::ssize(cache->kept(id, layer, 1));
    EXPECT_EQ(again->kept(copy, layer, 1), cache->kept(id, layer, 1));
  }
  EXPECT_EQ(kept, 4 * 80 + 4);
  const int64_t length[] = {101}, prompt[] = {100};
  EXPECT_EQ(held_bytes(ledger), predicted_bytes(specs, shape, length, prompt));
  EXPECT_EQ(held_bytes(other), held_bytes(ledger));
}

TEST(ModelCache, AFileOfOtherLayersIsRefusedAndChangesNothing) {
  const ModelShape shape = shape_of_layers({{}, kSliding, {}});
  memory::Ledger ledger, other;
  const auto cache = build_cache(parse_layer_specs("contiguous + 0:concat/f16"), shape, ledger);
  const std::string path = passing_path("other_layers");
  cache->save(cache->add_sequence(), path);
  for (const char* spec :
       {"contiguous + 2:concat/f16", "contiguous + 0:concat/f32", "contiguous/f16 + 0:concat/f16"}) {
    const auto reader = build_cache(parse_layer_specs(spec), shape, other);
    EXPECT_THROW(reader->load(path), std::invalid_argument) << spec;
    EXPECT_EQ(reader->add_sequence(), 0) << spec;  // no sequence is left over in any group
  }
  // Bytes behind the end are noticed, with nothing left over.
  std::filesystem::remove(path);
}

TEST(ModelCache, AShortageInOneGroupLeavesNoSequenceInAnother) {
  const ModelShape shape = shape_of_layers({{}, {}});
  const LayerSpecs specs = parse_layer_specs("contiguous + 0:concat");
  const int64_t none[] = {0};
  memory::Ledger ledger(predicted_bytes(specs, shape, none) * 3 / 2);
  const auto cache = build_cache(specs, shape, ledger);
  const SequenceId id = cache->add_sequence();
  const int64_t before = held_bytes(ledger);
  EXPECT_THROW(cache->add_sequence(), std::bad_alloc);
  EXPECT_EQ(held_bytes(ledger), before);
  cache->release(id);
  EXPECT_NO_THROW(cache->add_sequence());
}

}  // namespace
}  // namespace kv::model_cache_test
