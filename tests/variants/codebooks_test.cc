// Learned codebooks in caches: each layer, head and side has its own, whatever lies between; and what is refused.
#include "variants/core/codebooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "kernels/math.h"
#include "tests/message_of.h"
#include "tests/normal.h"
#include "tests/temp.h"
#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv {
namespace {

using namespace contract;
using test::contains;
using test::refusal;

constexpr int kBookLayers = 3, kBookHeads = 2, kBookDim = 32;
const CacheShape kBookShape{.layers = kBookLayers,
                            .q_heads = 4,
                            .kv_heads = kBookHeads,
                            .head_dim = kBookDim,
                            .max_tokens = 160,
                            .max_sequences = 2};

Codebooks random_codebooks(int codebooks = 2) {
  Codebooks books;
  books.model = "a model";
  books.text = "a text";
  books.ids = {1, 2, 3};
  books.layers = kBookLayers;
  books.kv_heads = kBookHeads;
  books.head_dim = kBookDim;
  books.codebooks = codebooks;
  books.words = test::gaussian(int64_t{kBookLayers} * kBookHeads * 2 * codebooks * kBookDim * 256, 4);
  for (size_t i = 0; i < books.words.size(); ++i)
    if (i / 8 % 256 == 255) books.words[i] = NAN;
  return books;
}

// Tokens whose rows f16 holds, as a residual buffer does.
Tokens make_half_tokens(int64_t n, uint64_t seed) {
  Tokens all = make_tokens(kBookShape, n, seed);
  for (std::vector<float>* rows : {&all.k, &all.v})
    for (float& x : *rows) x = f16_to_f32(f32_to_f16(x));
  return all;
}

class CodebooksInCaches : public testing::Test {
 protected:
  CodebooksInCaches() { write_codebooks(path_, books_); }
  std::string vq(const std::string& bits = "2", const std::string& more = "") const {
    return "vq(bits=" + bits + ",file=" + path_ + more + ")";
  }
  // One row of a head's side as its codebooks store it, in FP64.
  std::vector<double> stored(int layer, int head, int is_v, int bits, const float* row) const {
    std::vector<double> sum(kBookDim);
    for (int group = 0; group < kBookDim / 8; ++group) {
      for (int book = 0; book < bits; ++book) {
        const int64_t first =
            (((((int64_t{layer} * kBookHeads + head) * 2 + is_v) * 2 + book) * kBookDim / 8) + group) * 2048;
        double least = INFINITY, nearest[8] = {};
        for (int64_t word = first; word < first + 255 * 8; word += 8) {
          double distance = 0.0, values[8];
          for (int i = 0; i < 8; ++i) {
            values[i] = double{books_.words[static_cast<size_t>(word + i)]};
            distance +=
                std::pow(double{row[8 * group + i]} - sum[static_cast<size_t>(8 * group + i)] - values[i], 2);
          }
          if (distance < least) std::copy_n(values, 8, nearest);
          least = std::min(least, distance);
        }
        for (int i = 0; i < 8; ++i) sum[static_cast<size_t>(8 * group + i)] += nearest[i];
      }
    }
    return sum;
  }
  void expect_stored(Cache& cache, SequenceId id, const Tokens& all, int k_bits, int v_bits, int64_t from,
                     int64_t to) const {
    for (int layer = 0; layer < kBookLayers; ++layer) {
      for (int head = 0; head < kBookHeads; ++head) {
        const Stored rows = read_back(cache, id, layer, head);
        for (int64_t token = from; token < to; ++token) {
          const auto check = [&](const std::vector<float>& got, const std::vector<float>& came, int bits,
                                 int is_v) {
            const auto want =
                stored(layer, head, is_v, bits, came.data() + (head * all.n + token) * kBookDim);
            for (int i = 0; i < kBookDim; ++i)
              ASSERT_NEAR(got[static_cast<size_t>(token * kBookDim + i)], want[static_cast<size_t>(i)], 1e-5)
                  << "layer " << layer << " head " << head << " token " << token << (is_v ? " V" : " K");
          };
          if (k_bits > 0) check(rows.k, all.k, k_bits, 0);
          if (v_bits > 0) check(rows.v, all.v, v_bits, 1);
        }
      }
    }
  }

  const Codebooks books_ = random_codebooks();
  const test::TempFolder folder_;
  const std::string path_ = (folder_ / "books.vq").string();
};

TEST_F(CodebooksInCaches, EveryHeadsRowsAreStoredByItsOwn) {
  struct Case {
    std::string spec;
    int k_bits, v_bits;
    int64_t raw_first = 0, raw_last = 0;
  };
  const Case cases[] = {
      {"contiguous/" + vq() + "/full(positions=cache)", 2, 2},
      {"contiguous/" + vq("1") + "/full(positions=cache)", 1, 1},
      {"paged/" + vq() + "/full(positions=cache)", 2, 2},
      {"contiguous(layout=bshd)/" + vq("1") + "/full(positions=cache)", 1, 1},
      {"doubling/" + vq("1", ",read=copy") + "/full(positions=cache)", 1, 1},
      {"contiguous/" + vq("2", ",residual=16,first=4") + "/full(positions=cache)", 2, 2, 4, 16},
      {"contiguous/split(k=f16,v=" + vq("1") + ")", 0, 1},
      {"contiguous/split(k=" + vq("1") + ",v=" + vq("2") + ")/full(positions=cache)", 1, 2},
      {"contiguous/" + vq("1") + "/full(positions=cache) + 1:contiguous/" + vq("2") +
           "/full(positions=cache)",
       0, 0},
  };
  const Tokens all = make_half_tokens(40, 8);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.spec);
    memory::Ledger ledger;
    const LayerSpecs specs = parse_layer_specs(c.spec);
    const auto cache = build_cache(specs, ModelShape(kBookShape, {}), ledger);
    const SequenceId id = cache->add_sequence();
    for (int layer = 0; layer < kBookLayers; ++layer)
      drive(*cache, id, all, std::vector<int64_t>{30, 1, 9}, layer);
    expect_stored(*cache, id, all, c.k_bits, c.v_bits, c.raw_first, all.n - c.raw_last);
    const int64_t n = all.n;
    EXPECT_EQ(held_bytes(ledger), predicted_bytes(specs, ModelShape(kBookShape, {}), {&n, 1}));
  }
}

// Layers of other specs are caches of their own, whose layers count from 0.
TEST_F(CodebooksInCaches, LayersOfAModelCacheKeepTheirNumbers) {
  const auto specs = parse_layer_specs("contiguous/f32/full(positions=cache) + 1-2:contiguous/" + vq() +
                                       "/full(positions=cache)");
  const Tokens all = make_tokens(kBookShape, 5, 8);
  memory::Ledger ledger;
  const auto cache = build_cache(specs, ModelShape(kBookShape, {}), ledger);
  const SequenceId id = cache->add_sequence();
  for (int layer = 0; layer < kBookLayers; ++layer) drive(*cache, id, all, std::vector<int64_t>{5}, layer);
  const auto want = stored(2, 1, 0, 2, all.k.data() + (all.n + 3) * kBookDim);
  const Stored rows = read_back(*cache, id, 2, 1);
  for (size_t i = 0; i < kBookDim; ++i) EXPECT_NEAR(rows.k[3 * kBookDim + i], want[i], 1e-5);
}

TEST_F(CodebooksInCaches, AttentionEqualsFp64OnTheStoredRowsAndSequencesForkAndReturn) {
  const Spec spec = parse_spec("contiguous/" + vq() + "/full(positions=cache)");
  const Tokens all = make_tokens(kBookShape, 70, 8);
  memory::Ledger ledger;
  const auto cache = build_cache(spec, kBookShape, ledger);
  const SequenceId id = cache->add_sequence();
  const auto out = drive(*cache, id, all, std::vector<int64_t>{69, 1}, 2);
  const Tokens last = slice(kBookShape, all, 69, 1);
  std::vector<float> want;
  for (int h = 0; h < kBookShape.q_heads; ++h) {
    const Stored rows = read_back(*cache, id, 2, h / 2);
    const auto result =
        attend_stored(*cache, {last.q.data() + h * kBookDim, kBookDim}, rows, cache->kept(id, 2, h / 2));
    for (int i = 0; i < kBookDim; ++i) want.push_back(static_cast<float>(result.out[static_cast<size_t>(i)]));
  }
  EXPECT_LT(relative_l2(out, want), 2e-6);
  const SequenceId child = cache->fork(id);
  const Tokens more = make_tokens(kBookShape, 3, 9);
  const auto from_child = drive(*cache, child, more, std::vector<int64_t>{1, 1, 1}, 2);
  EXPECT_EQ(drive(*cache, id, more, std::vector<int64_t>{1, 1, 1}, 2), from_child);
}

TEST_F(CodebooksInCaches, TheFileComesBackAsItWasWritten) {
  const auto read = read_codebooks(path_);
  EXPECT_EQ(read->of(), books_.of());
  EXPECT_EQ(read->ids, books_.ids);
  ASSERT_EQ(read->words.size(), books_.words.size());
  EXPECT_EQ(std::memcmp(read->words.data(), books_.words.data(), 4 * read->words.size()), 0);
  EXPECT_EQ(read_codebooks(path_), read);  // once in memory
}

TEST_F(CodebooksInCaches, FilesThatAreNotWholeAreRefused) {
  const auto message = [&](const std::string& file) {
    return refusal([&] {
      codec_of(parse_spec("contiguous/vq(file=" + file + ")"))
          .make(parse_spec("contiguous/vq(file=" + file + ")").codec);
    });
  };
  std::ifstream from(path_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(from)), {});
  const auto changed = [&](const std::string& other) {
    const std::string to = (folder_ / "other.vq").string();
    std::ofstream(to, std::ios::binary) << other;
    return message(to);
  };
  EXPECT_TRUE(contains(changed("short"), "too short to be codebooks"));
  EXPECT_TRUE(contains(changed(bytes.substr(0, bytes.size() - 5)), "damaged or cut short"));
  std::string flipped = bytes;
  flipped[bytes.size() / 2] ^= 1;
  EXPECT_TRUE(contains(changed(flipped), "damaged or cut short"));
  EXPECT_TRUE(contains(changed("kvlabseq" + bytes.substr(8)), "it is not codebooks"));
}

TEST_F(CodebooksInCaches, WhatTheyDoNotFitIsRefused) {
  const auto built = [&](const std::string& spec, const CacheShape& shape) {
    return refusal([&] {
      memory::Ledger ledger;
      build_cache(parse_spec(spec), shape, ledger);
    });
  };
  const std::string whole = "contiguous/" + vq() + "/full(positions=cache)";
  for (int CacheShape::*size : {&CacheShape::layers, &CacheShape::kv_heads, &CacheShape::head_dim}) {
    CacheShape other = kBookShape;
    other.*size *= 2;
    EXPECT_TRUE(contains(built(whole, other), "codebooks are of a model: 3 layers of 2 heads of 32, not of"));
  }
  EXPECT_TRUE(contains(built("contiguous/" + vq(), kBookShape), "positions=cache"));
  EXPECT_TRUE(contains(built("tiered/split(k=f16,v=" + vq() + ")", kBookShape), "tiers"));
  const std::string none =
      "contiguous/vq(bits=2,file=" + (folder_ / "none.vq").string() + ")/full(positions=cache)";
  EXPECT_TRUE(contains(built(none, kBookShape), "No such file"));
  EXPECT_EQ(predicted_bytes(parse_spec(none), kBookShape, std::vector<int64_t>{7}),
            predicted_bytes(parse_spec(whole), kBookShape, std::vector<int64_t>{7}));
  const std::string one = (folder_ / "one.vq").string();
  write_codebooks(one, random_codebooks(1));
  EXPECT_TRUE(contains(built("contiguous/vq(bits=2,file=" + one + ")/full(positions=cache)", kBookShape),
                       "has 1 codebook for every 8 values"));
}

}  // namespace
}  // namespace kv
