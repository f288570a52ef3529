// The split by cause names the cause: one fault is planted at a time in a cache made for it.
#include "harness/verify/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "harness/verify/reference/attention.h"

namespace kv {
namespace {

constexpr int64_t kTokens = 40;
constexpr int kLayers = 2, kQHeads = 4, kKvHeads = 2, kDim = 16;

// Holds rows of its own that a test may falsify; f32, one span a head.
class FakeCache : public Cache {
 public:
  explicit FakeCache(const workload::Workload& workload) {
    shape_ = {.layers = kLayers, .q_heads = kQHeads, .kv_heads = kKvHeads, .head_dim = kDim};
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<float> k(kKvHeads * kTokens * kDim), v(k.size());
      workload.read(0, layer, 0, kTokens, nullptr, k.data(), v.data());
      for (int h = 0; h < kKvHeads; ++h) {
        Head head;
        head.k.assign(k.begin() + h * kTokens * kDim, k.begin() + (h + 1) * kTokens * kDim);
        head.v.assign(v.begin() + h * kTokens * kDim, v.begin() + (h + 1) * kTokens * kDim);
        head.kept.resize(kTokens);
        std::iota(head.kept.begin(), head.kept.end(), 0);
        heads_.push_back(std::move(head));
      }
    }
  }

  struct Head {
    std::vector<float> k, v;  // [rows, head_dim]
    std::vector<int64_t> kept;
  };
  Head& head(int layer, int kv_head) { return heads_[static_cast<size_t>(layer * kKvHeads + kv_head)]; }
  std::vector<Head>& heads() { return heads_; }

  const CacheShape& shape() const override { return shape_; }
  std::vector<Span> spans(SequenceId, int layer, int kv_head) override {
    Head& h = head(layer, kv_head);
    const auto side = [](std::vector<float>& rows) {
      Side s;
      s.data = reinterpret_cast<const std::byte*>(rows.data());
      s.stride = kDim * sizeof(float);
      return s;
    };
    return {{.k = side(h.k), .v = side(h.v), .rows = static_cast<int64_t>(h.k.size()) / kDim}};
  }
  std::vector<int64_t> kept(SequenceId, int layer, int kv_head) const override {
    return heads_[static_cast<size_t>(layer * kKvHeads + kv_head)].kept;
  }
  std::vector<int64_t> read_slots(SequenceId, int layer, int kv_head) const override {
    std::vector<int64_t> slots(kept(0, layer, kv_head).size());
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
  }
  const Spec& spec(int) const override { return spec_; }

  // Nobody who verifies steps a cache.
  std::span<const Span> resident_spans(SequenceId, int, int) override { throw std::logic_error("not here"); }
  SequenceId add_sequence() override { throw std::logic_error("not here"); }
  SequenceId fork(SequenceId) override { throw std::logic_error("not here"); }
  void write(Writer&, SequenceId) const override {}
  SequenceId read(Reader&, const std::string&) override { throw std::logic_error("not here"); }
  void release(SequenceId) override {}
  std::string refuses_truncation(SequenceId, int64_t) const override { return "not here"; }
  std::function<void()> prepare_truncation(SequenceId, int64_t) override {
    return [] {};
  }
  void append(int, std::span<const StepInput>) override {}
  void view(int, std::span<const StepInput>) override {}
  void attend(int, std::span<const StepInput>) override {}
  void step(int, std::span<const StepInput>) override {}
  int64_t tokens(SequenceId, int) const override { return kTokens; }
  std::string kernel() const override { return "none"; }

 private:
  Memory& memory() const override { throw std::logic_error("not here"); }
  const Spec spec_ = parse_spec("contiguous");
  CacheShape shape_;
  std::vector<Head> heads_;
};

class Verify : public testing::Test {
 protected:
  // The result of an exact kernel over the rows as stored.
  void attend() {
    q_.assign(kLayers * kQHeads * kDim, 0.0f);
    out_ = q_;
    for (int layer = 0; layer < kLayers; ++layer) {
      float* q = q_.data() + layer * kQHeads * kDim;
      workload_->read(0, layer, kTokens - 1, 1, q, nullptr, nullptr);
      for (int h = 0; h < kQHeads; ++h) {
        const FakeCache::Head& rows = cache_.head(layer, h / (kQHeads / kKvHeads));
        const auto result =
            reference::attend({q + h * kDim, kDim}, rows.k, rows.v, static_cast<int64_t>(rows.kept.size()));
        for (int c = 0; c < kDim; ++c)
          out_[static_cast<size_t>((layer * kQHeads + h) * kDim + c)] = static_cast<float>(result.out[c]);
      }
    }
  }

  verify::Errors verify(int64_t window = 0) {
    std::vector<verify::Output> outputs;
    for (int layer = 0; layer < kLayers; ++layer) {
      outputs.push_back({.sequence = 0,
                         .workload_sequence = 0,
                         .layer = layer,
                         .q = q_.data() + layer * kQHeads * kDim,
                         .out = out_.data() + layer * kQHeads * kDim,
                         .window = window});
    }
    return verify::verify(cache_, *workload_, kTokens, outputs);
  }

  // Drops one row of every head.
  void evict(int64_t row) {
    for (FakeCache::Head& h : cache_.heads()) {
      h.k.erase(h.k.begin() + row * kDim, h.k.begin() + (row + 1) * kDim);
      h.v.erase(h.v.begin() + row * kDim, h.v.begin() + (row + 1) * kDim);
      h.kept.erase(h.kept.begin() + row);
    }
  }

  std::unique_ptr<workload::Workload> workload_ = workload::make_synthetic(
      "gaussian", {.layers = kLayers, .q_heads = kQHeads, .kv_heads = kKvHeads, .head_dim = kDim}, 3);
  FakeCache cache_{*workload_};
  std::vector<float> q_, out_;
};

constexpr double kRounding = 1e-7;  // rounding an output to f32

TEST_F(Verify, AnExactCacheHasNoError) {
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.failure(), "");
  EXPECT_LT(e.metric("err_rel_l2"), kRounding);
  EXPECT_GT(e.metric("err_rel_l2"), 0);
  EXPECT_LT(e.kernel_rel_l2, kRounding);
  EXPECT_EQ(e.codec_rel_l2, 0);
  EXPECT_EQ(e.retention_rel_l2, 0);
  EXPECT_NEAR(e.metric("err_attn_kl"), 0, 1e-12);
  EXPECT_NEAR(e.metric("err_cosine"), 1, 1e-12);
}

// Tokens hidden by a window count as no error of a cache that forgets them; a cache that attends to more is
// compared with all tokens.
TEST_F(Verify, AModelsWindowIsNoErrorOfItsCache) {
  evict(0), evict(0);
  attend();
  EXPECT_EQ(verify(kTokens - 2).failure(), "");
  EXPECT_EQ(verify(kTokens - 2).retention_rel_l2, 0);
  EXPECT_LT(verify(kTokens - 2).metric("err_rel_l2"), kRounding);
  EXPECT_NEAR(verify(kTokens - 2).metric("err_attn_kl"), 0, 1e-12);
  EXPECT_GT(verify(kTokens - 1).retention_rel_l2, 1e-3) << "one row that the window holds was dropped";
  EXPECT_GT(verify().retention_rel_l2, 1e-3);
  EXPECT_EQ(verify(kTokens - 3).metrics, verify().metrics) << "it attends to more than the window holds";
}

TEST_F(Verify, AWrongOutputIsTheKernels) {
  attend();
  out_[5] += 0.01f;
  const verify::Errors e = verify();
  EXPECT_NE(e.failure(), "");
  EXPECT_GT(e.kernel_rel_l2, e.kernel_bound);
  EXPECT_NEAR(e.metric("err_max_abs"), 0.01, 1e-6);
  EXPECT_EQ(e.codec_rel_l2, 0);
  EXPECT_EQ(e.retention_rel_l2, 0);
}

TEST_F(Verify, OneWrongHeadOfTheLastLayerIsFound) {
  attend();
  for (int c = 0; c < kDim; ++c) out_[out_.size() - 1 - static_cast<size_t>(c)] *= 1.001f;
  EXPECT_NE(verify().failure(), "");
}

TEST_F(Verify, WrongStoredRowsAreTheCodecs) {
  for (FakeCache::Head& h : cache_.heads()) {
    for (float& x : h.k) x *= 1.01f;
  }
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.failure(), "K of token 0 is not as f32 stores it (layer 0, kv head 0)");
  EXPECT_GT(e.codec_rel_l2, 1e-4);
  EXPECT_LT(e.codec_rel_l2, 1e-1);
  EXPECT_NEAR(e.metric("err_rel_l2"), e.codec_rel_l2, 2 * kRounding);
  EXPECT_EQ(e.retention_rel_l2, 0);
  EXPECT_LT(e.kernel_rel_l2, kRounding);
  EXPECT_GT(e.metric("err_attn_kl"), 0);
}

// f32 holds every value that came.
TEST_F(Verify, AnInfiniteRowIsNotTheCodecsRange) {
  cache_.head(0, 1).v[3 * kDim] = std::numeric_limits<float>::infinity();
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.overflow, "");
  EXPECT_NE(e.failure().find("attention differs from FP64"), std::string::npos) << e.failure();
}

TEST_F(Verify, DroppedTokensAreRetentions) {
  evict(7);
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.failure(), "");
  EXPECT_GT(e.retention_rel_l2, 1e-4);
  EXPECT_NEAR(e.metric("err_rel_l2"), e.retention_rel_l2, 2 * kRounding);
  EXPECT_EQ(e.codec_rel_l2, 0);
  EXPECT_LT(e.kernel_rel_l2, kRounding);
  EXPECT_TRUE(std::isfinite(e.metric("err_attn_kl")) && e.metric("err_attn_kl") > 0);
}

// A cache that says it kept one token and holds another's row: the rows are not those tokens'.
TEST_F(Verify, AWrongKeptSetShowsAsWrongRows) {
  evict(7);
  for (FakeCache::Head& h : cache_.heads()) h.kept[7] = 7;  // it is 8's row that lies there
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.failure(), "K of token 7 is not as f32 stores it (layer 0, kv head 0)");
  EXPECT_GT(e.codec_rel_l2, 1e-4);
  EXPECT_GT(e.retention_rel_l2, 1e-4);
}

TEST_F(Verify, RowsMayLieInAnyOrder) {
  for (FakeCache::Head& h : cache_.heads()) {
    std::swap_ranges(h.k.begin(), h.k.begin() + kDim, h.k.begin() + 9 * kDim);
    std::swap_ranges(h.v.begin(), h.v.begin() + kDim, h.v.begin() + 9 * kDim);
    std::swap(h.kept[0], h.kept[9]);
  }
  attend();
  const verify::Errors e = verify();
  EXPECT_EQ(e.failure(), "");
  EXPECT_LT(e.metric("err_rel_l2"), kRounding);
  EXPECT_LT(e.codec_rel_l2, 1e-12);
}

TEST_F(Verify, WhatIsNotFiniteFails) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF}) {
    attend();
    out_[17] = bad;
    EXPECT_NE(verify().failure(), "") << bad;
  }
}

TEST_F(Verify, StoredNaNFails) {
  cache_.head(1, 1).v[3] = std::numeric_limits<float>::quiet_NaN();
  attend();
  EXPECT_NE(verify().failure(), "");
}

// No set of tokens at all: the cache has a bug, and no figure would mean anything.
TEST_F(Verify, AnImpossibleKeptSetIsABug) {
  attend();
  std::vector<int64_t>& kept = cache_.head(0, 0).kept;
  const std::vector<int64_t> right = kept;
  kept[3] = 4;  // twice
  EXPECT_THROW(verify(), std::logic_error);
  for (const int64_t token : {int64_t{-1}, kTokens}) {
    kept = right;
    kept[3] = token;
    EXPECT_THROW(verify(), std::logic_error) << token;
  }
  kept = right;
  kept.pop_back();  // fewer than there are rows
  EXPECT_THROW(verify(), std::logic_error);
}

TEST(Sample, IsSpreadOverFewKvHeads) {
  EXPECT_EQ(verify::sampled_heads(6, 8, 4, 2), (std::vector<int>{0, 1, 2, 16, 17, 18}));
  EXPECT_EQ(verify::sampled_heads(2, 8, 4, 4), (std::vector<int>{0, 16}));
  EXPECT_EQ(verify::sampled_heads(32, 8, 4, 2), (std::vector<int>{0, 1, 2, 3, 16, 17, 18, 19}));
  EXPECT_EQ(verify::sampled_heads(1, 1, 1, 1), std::vector<int>{0});
}

}  // namespace
}  // namespace kv
