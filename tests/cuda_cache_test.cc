// Caches in a GPU's memory, on the shim, against the same caches in the CPU's: the same bytes, the same
// bookkeeping, and outputs within rounding.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/isa.h"
#include "tests/contract.h"
#include "tests/simt_gpu.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 128, .max_sequences = 4};

// A cache in either memory. The ledger is the real one.
struct Side {
  Side(const Spec& spec, cuda::Gpu* gpu) : ledger(INT64_MAX, gpu), cache(build_cache(spec, kShape, ledger)) {}
  std::vector<float> step(SequenceId id, const Tokens& part) {
    std::vector<float> out(part.q.size(), NAN);
    const StepInput in{id, part.n, part.q.data(), part.k.data(), part.v.data(), out.data()};
    cache->step(0, {&in, 1});
    return out;
  }
  Ledger ledger;
  std::unique_ptr<Cache> cache;
};

// One spec, driven alike on both devices.
struct Pair {
  explicit Pair(const Spec& spec) : cpu(spec, nullptr), on_gpu(spec, &gpu) {}

  void step(SequenceId id, const Tokens& all, int64_t first, int64_t n) {
    const Tokens part = slice(kShape, all, first, n);
    const std::vector<float> want = cpu.step(id, part), got = on_gpu.step(id, part);
    ASSERT_LT(relative_l2(got, want), 1e-5) << "tokens " << first << " to " << first + n;
  }
  void expect_same_rows(SequenceId id) {
    ASSERT_EQ(cpu.cache->tokens(id, 0), on_gpu.cache->tokens(id, 0));
    for (int head = 0; head < kShape.kv_heads; ++head) {
      ASSERT_EQ(cpu.cache->kept(id, 0, head), on_gpu.cache->kept(id, 0, head));
      const Stored want = read_back(*cpu.cache, id, 0, head), got = read_back(*on_gpu.cache, id, 0, head);
      ASSERT_EQ(got.rows, want.rows);
      ASSERT_EQ(std::memcmp(got.k.data(), want.k.data(), want.k.size() * sizeof(float)), 0);
      ASSERT_EQ(std::memcmp(got.v.data(), want.v.data(), want.v.size() * sizeof(float)), 0);
    }
  }

  test::SimtGpu gpu;
  Side cpu, on_gpu;
};

void drive(const Spec& spec) {
  SCOPED_TRACE(spec.print());
  Pair pair(spec);
  const Tokens tokens = make_tokens(kShape, 90, 5);
  ASSERT_EQ(pair.cpu.cache->add_sequence(), pair.on_gpu.cache->add_sequence());
  int64_t at = 0;
  for (const int64_t n : {36, 1, 1, 28, 1}) {  // a prompt, tokens, a chunk
    pair.step(0, tokens, at, n);
    if (testing::Test::HasFatalFailure()) return;
    at += n;
  }
  pair.expect_same_rows(0);
  if (testing::Test::HasFatalFailure()) return;
  // A fork grows apart, and what was set aside comes back.
  ASSERT_EQ(pair.cpu.cache->fork(0), pair.on_gpu.cache->fork(0));
  pair.step(1, tokens, at, 1);
  const Snapshot cpu_snapshot = pair.cpu.cache->freeze(1), gpu_snapshot = pair.on_gpu.cache->freeze(1);
  ASSERT_EQ(pair.cpu.cache->unfreeze(cpu_snapshot), pair.on_gpu.cache->unfreeze(gpu_snapshot));
  pair.step(0, tokens, at, 1);
  pair.step(2, tokens, at + 1, 1);
  for (const SequenceId id : {0, 1, 2}) {
    pair.expect_same_rows(id);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The CPU's vector kernels round queries and weights to 16 bits for some codecs; its plain path does not, as
// the GPU's kernels do not.
struct CudaCache : testing::Test {
  CudaCache() { force_isa("scalar"); }
  ~CudaCache() override { force_isa("auto"); }
};

std::vector<Spec> gpu_specs() {
  std::vector<Spec> specs;
  for (const char* text :
       {"contiguous", "contiguous/f16", "concat/bf16", "doubling/fp8", "segmented(rows=32)/q8_0",
        "paged/q4_0", "paged(block=1)/token(bits=4)", "paged(order=shuffled)/token(bits=8,mode=symmetric)",
        "contiguous/token(bits=3)", "paged(block=32)/kivi", "contiguous/kivi(bits=2,residual=32)",
        "segmented(rows=64)/kivi(bits=8,group=8,residual=0)", "paged/f16/ring(window=30,sinks=2)",
        "contiguous/q8_0/ring(window=30)", "paged/f16/h2o(heavy=16,recent=16)",
        "contiguous/f32/tova(budget=32)", "contiguous/f32/knorm", "contiguous/f32/random",
        "contiguous/split(k=q8_0,v=q4_0)"}) {
    specs.push_back(parse_spec(text));
  }
  return specs;
}

TEST_F(CudaCache, StoresAndAttendsAsTheCpuDoes) {
  for (const Spec& spec : gpu_specs()) {
    ASSERT_EQ(gpu_unsupported_reason(spec, kShape.head_dim), "") << spec.print();
    drive(spec);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaCache, RaggedBatchesGoInOneLaunch) {
  for (const char* text : {"paged/f16", "contiguous/f16", "paged(block=32)/kivi(residual=32)"}) {
    Pair pair(parse_spec(text));
    const Tokens tokens = make_tokens(kShape, 100, 6);
    std::vector<Tokens> parts;
    for (const int64_t length : {70, 3, 33}) {
      const SequenceId id = pair.cpu.cache->add_sequence();
      ASSERT_EQ(pair.on_gpu.cache->add_sequence(), id);
      pair.step(id, tokens, 0, length);
      parts.push_back(slice(kShape, tokens, length, 1));
    }
    for (Side* side : {&pair.cpu, &pair.on_gpu}) {
      std::vector<std::vector<float>> out(parts.size(), std::vector<float>(parts.front().q.size(), NAN));
      std::vector<StepInput> inputs;
      for (size_t i = 0; i < parts.size(); ++i) {
        inputs.push_back({static_cast<SequenceId>(i), 1, parts[i].q.data(), parts[i].k.data(),
                          parts[i].v.data(), out[i].data()});
      }
      side->cache->step(0, inputs);
      static std::vector<std::vector<float>> want;
      if (side == &pair.cpu) want = out;
      for (size_t i = 0; i < parts.size(); ++i) EXPECT_LT(relative_l2(out[i], want[i]), 1e-5) << text;
    }
  }
}

TEST_F(CudaCache, RowsAreCountedWhereTheyAre) {
  for (const char* text : {"contiguous/f16", "paged/q8_0", "contiguous/kivi(residual=32)"}) {
    Pair pair(parse_spec(text));
    const Tokens tokens = make_tokens(kShape, 60, 7);
    pair.cpu.cache->add_sequence();
    pair.on_gpu.cache->add_sequence();
    pair.step(0, tokens, 0, 60);
    const Ledger &cpu = pair.cpu.ledger, &gpu = pair.on_gpu.ledger;
    EXPECT_EQ(gpu.payload().current_bytes, cpu.payload().current_bytes) << text;
    EXPECT_EQ(gpu.metadata().current_bytes, cpu.metadata().current_bytes) << text;
    EXPECT_EQ(cpu.device().peak_bytes, 0);
    EXPECT_GE(gpu.device().current_bytes, gpu.payload().current_bytes);
    gpu.assert_balanced();
    const int64_t lengths[] = {60};
    EXPECT_EQ(gpu.payload().current_bytes + gpu.metadata().current_bytes,
              predicted_bytes(parse_spec(text), kShape, lengths));
  }
}

// Chunks that are no longer hot lie in the host's memory, and the kernels read them there.
TEST_F(CudaCache, WarmTiersAreReadFromTheHostsMemory) {
  const Spec spec = parse_spec("tiered(hot=1)/f16");
  const CacheShape shape{.q_heads = 1, .kv_heads = 1, .head_dim = 64, .max_tokens = 1100};
  test::SimtGpu gpu;
  Ledger on_cpu(INT64_MAX, nullptr), on_gpu(INT64_MAX, &gpu);
  const auto cpu_cache = build_cache(spec, shape, on_cpu), gpu_cache = build_cache(spec, shape, on_gpu);
  const Tokens tokens = make_tokens(shape, 1100, 8);
  const int64_t chunks[] = {1099, 1};
  std::vector<float> out[2];
  for (Cache* cache : {cpu_cache.get(), gpu_cache.get()}) {
    const SequenceId id = cache->add_sequence();
    int64_t first = 0;
    for (const int64_t n : chunks) {
      const Tokens part = slice(shape, tokens, first, n);
      std::vector<float>& to = out[cache == gpu_cache.get()];
      to.assign(64, NAN);
      const StepInput in{id, n, part.q.data(), part.k.data(), part.v.data(), n == 1 ? to.data() : nullptr};
      cache->step(0, {&in, 1});
      first += n;
    }
  }
  EXPECT_LT(relative_l2(out[1], out[0]), 1e-5);
  EXPECT_EQ(on_gpu.payload().current_bytes, on_cpu.payload().current_bytes);
  // Two of the three chunks of 512 rows of K and V are the host's.
  EXPECT_EQ(gpu.pinned_bytes, 2 * 512 * 64 * 2 * 2);
}

TEST_F(CudaCache, WhatAGpuCannotDoIsKnown) {
  EXPECT_NE(gpu_unsupported_reason(parse_spec("contiguous/token(read=copy)"), 64), "");
  EXPECT_NE(gpu_unsupported_reason(parse_spec("contiguous"), 512), "");
  EXPECT_NE(gpu_unsupported_reason(parse_spec("contiguous/f32/ring(window=8,positions=cache)"), 64), "");
  test::SimtGpu gpu;
  Ledger ledger(INT64_MAX, &gpu);
  EXPECT_THROW(build_cache(parse_spec("tiered(hot=16,warm=16)"), kShape, ledger), std::invalid_argument);
}

}  // namespace
}  // namespace kv
