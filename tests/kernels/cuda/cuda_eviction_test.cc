// Policies that score by attention, with their state on the GPU (the shim): at every step, and after a fork, snapshot or file,
// they choose the victims of the CPU's cache. cuda_cache_test has their batches and bytes.
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/cpu/isa.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 160, .max_sequences = 4};

// Compares with the CPU's plain path, whose sums the GPU repeats; the vector kernels round queries of some codecs.
struct CudaEviction : testing::Test {
  CudaEviction() { cpu::force_isa("scalar"); }
  ~CudaEviction() override { cpu::force_isa("auto"); }
};

// One spec on the CPU and on the GPU, with the same steps.
struct Pair {
  explicit Pair(const std::string& text, const CacheShape& shape = kShape)
      : gpu_ledger(INT64_MAX, &gpu),
        on_cpu(build_cache(parse_spec(text), shape, cpu_ledger)),
        on_gpu(build_cache(parse_spec(text), shape, gpu_ledger)) {}

  SequenceId add_sequence() {
    EXPECT_EQ(on_cpu->add_sequence(), on_gpu->add_sequence());
    return last_++;
  }
  // Returns the outputs' largest difference.
  double step(SequenceId id, const Tokens& part) {
    return relative_l2(drive(*on_gpu, id, part, {&part.n, 1}), drive(*on_cpu, id, part, {&part.n, 1}));
  }
  void expect_same_tokens(SequenceId id) const {
    for (int head = 0; head < on_cpu->shape().kv_heads; ++head)
      ASSERT_EQ(on_gpu->kept(id, 0, head), on_cpu->kept(id, 0, head)) << "head " << head;
  }

  test::SimtGpu gpu;
  memory::Ledger cpu_ledger, gpu_ledger;
  std::unique_ptr<Cache> on_cpu, on_gpu;

 private:
  SequenceId last_ = 0;
};

// Compares victims at every step of `chunks`, then of single tokens.
void expect_same_victims(const std::string& text, const CacheShape& shape, const Tokens& all,
                         std::vector<int64_t> chunks, bool outputs = true) {
  SCOPED_TRACE(text);
  Pair pair(text, shape);
  const SequenceId id = pair.add_sequence();
  for (int64_t first = 0; first < all.n;) {
    const int64_t n = chunks.empty() ? 1 : chunks.front();
    if (!chunks.empty()) chunks.erase(chunks.begin());
    const double error = pair.step(id, slice(shape, all, first, n));
    if (outputs) {
      ASSERT_LT(error, 1e-5) << "tokens " << first << " to " << first + n;
    }
    pair.expect_same_tokens(id);
    if (testing::Test::HasFatalFailure()) return;
    first += n;
  }
  EXPECT_GT(pair.gpu.choices, 0);
}

TEST_F(CudaEviction, VictimsAreTheCpusForEveryPolicyAndPlacement) {
  const Tokens all = make_tokens(kShape, 125, 3);
  for (const char* text :
       {"contiguous/f16/h2o(heavy=16,recent=16)", "contiguous(layout=bshd)/q8_0/h2o(heavy=1,recent=40)",
        "paged/f16/h2o(heavy=40,recent=1)", "paged(block=1)/f32/h2o(heavy=16,recent=16)",
        "paged(order=shuffled)/token(bits=4)/tova(budget=40)",
        "segmented(rows=32)/fp8/h2o(heavy=20,recent=20)", "concat/bf16/tova(budget=32)",
        "doubling(read=copy)/f32/h2o(heavy=16,recent=16)", "doubling/split(k=q8_0,v=q4_0)/tova(budget=32)",
        "contiguous/f32/tova(budget=1)"}) {
    expect_same_victims(text, kShape, all, {60, 1, 38});
    if (HasFatalFailure()) return;
  }
}

// One head; every query's score of token t is score[t].
Tokens scored_tokens(const CacheShape& shape, const std::vector<float>& score) {
  Tokens t = make_tokens(shape, static_cast<int64_t>(score.size()), 6);
  std::fill(t.q.begin(), t.q.end(), 0.0f);
  std::fill(t.k.begin(), t.k.end(), 0.0f);
  for (size_t i = 0; i < score.size(); ++i) {
    const size_t first = i * static_cast<size_t>(shape.head_dim);
    t.q[first] = std::sqrt(static_cast<float>(shape.head_dim));
    t.k[first] = score[i];
  }
  return t;
}

constexpr CacheShape kOneHead{.head_dim = 64, .max_tokens = 160};

// Weights of 0 in both arithmetics are exact ties, also among more slots than a block has threads.
TEST_F(CudaEviction, OfEqualScoresTheLowestSlotGoes) {
  std::vector<float> score;
  for (int i = 0; i < 158; ++i) score.push_back(i % 3 == 1 ? 5.0f : -2000.0f);
  const Tokens all = scored_tokens(kOneHead, score);
  for (const char* text : {"contiguous/h2o(heavy=4,recent=1)", "paged/h2o(heavy=20,recent=4)",
                           "paged/h2o(heavy=130,recent=10)", "contiguous/tova(budget=24)"}) {
    expect_same_victims(text, kOneHead, all, {3});
    if (HasFatalFailure()) return;
  }
}

// A NaN row makes every score NaN while it is kept; afterwards NaN scores and numbers are mixed.
TEST_F(CudaEviction, ScoresThatAreNotNumbersGiveTheCpusVictims) {
  Tokens all = make_tokens(kOneHead, 90, 7);
  all.k[static_cast<size_t>(40 * kOneHead.head_dim + 5)] = NAN;
  for (const char* text : {"contiguous/f16/h2o(heavy=6,recent=10)", "contiguous/f32/tova(budget=16)"}) {
    expect_same_victims(text, kOneHead, all, {10}, false);
    if (HasFatalFailure()) return;
  }
}

// Scores travel with a fork, a snapshot and a file, bit for bit.
TEST_F(CudaEviction, WhatWasSetAsideGoesOnExactly) {
  const std::string path = passing_path("cuda_eviction.kv");
  for (const char* text : {"paged/f16/h2o(heavy=16,recent=16)", "contiguous/f32/tova(budget=64)"}) {
    SCOPED_TRACE(text);
    Pair pair(text);
    const Tokens all = make_tokens(kShape, 90, 9);
    const SequenceId id = pair.add_sequence();
    pair.step(id, slice(kShape, all, 0, 60));
    Cache& cache = *pair.on_gpu;
    cache.save(id, path);
    const SequenceId others[] = {cache.fork(id), cache.restore(cache.snapshot(id)), cache.load(path)};
    std::filesystem::remove(path);
    const Tokens rest = slice(kShape, all, 60, 20);
    const std::vector<float> stayed = drive(cache, id, rest, std::vector<int64_t>(20, 1));
    for (const SequenceId other : others) {
      EXPECT_EQ(drive(cache, other, rest, std::vector<int64_t>(20, 1)), stayed);
      for (int head = 0; head < kShape.kv_heads; ++head)
        EXPECT_EQ(cache.kept(other, 0, head), cache.kept(id, 0, head));
    }
  }
}

}  // namespace
}  // namespace kv
