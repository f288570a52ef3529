// Caches in a GPU's memory, on the shim: the product of all variants as state machines, and what needs sizes of its own, against the
// same caches in the CPU's memory.
#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "tests/variants/cache_machine.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 128, .max_sequences = 4};

// A cache in either memory. The ledger is the real one.
struct Side {
  Side(const Spec& spec, cuda::Gpu* gpu) : ledger(INT64_MAX, gpu), cache(build_cache(spec, kShape, ledger)) {}
  std::vector<float> step(SequenceId id, const Tokens& part) {
    std::vector<float> out(part.q.size(), NAN);
    const StepInput in{id, part.n, part.q.data(), part.k.data(), part.v.data(), out.data()};
    cache->step(0, {&in, 1});
    return out;
  }
  memory::Ledger ledger;
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

  test::SimtGpu gpu;
  Side cpu, on_gpu;
};

// The CPU's vector kernels round queries and weights to 16 bits for some codecs; its plain path does not, as
// the GPU's kernels do not.
struct PlainCpu {
  PlainCpu() { cpu::force_isa("scalar"); }
  ~PlainCpu() { cpu::force_isa("auto"); }
};
struct CudaCache : testing::Test {
  PlainCpu plain;
};

std::vector<Spec> gpu_specs() {
  test::SimtGpu gpu;
  return cache_machine::machines(&gpu);
}

// The whole product of the registry, as a state machine whose memory is the shim's.
class CudaContract : public testing::TestWithParam<Spec> {};
INSTANTIATE_TEST_SUITE_P(All, CudaContract, testing::ValuesIn(sampled(gpu_specs())), test_name);

TEST_P(CudaContract, EverySequenceIsThatOfAReplay) {
  test::SimtGpu gpu;
  EXPECT_EQ(cache_machine::shortest_failure(GetParam(), cache_machine::random_operations(1, 10), &gpu), "");
}

// A step like the one before it sends lengths and new rows to the GPU, and no list of pages. All sequences' rows go in one
// launch.
TEST_F(CudaCache, AStepSendsWhatIsNewAndAppendsInOneLaunch) {
  for (const char* text : {"paged(block=2)/f16", "paged(block=32)/kivi(residual=32)"}) {
    SCOPED_TRACE(text);
    test::SimtGpu gpu;
    Side side(parse_spec(text), &gpu);
    const Tokens tokens = make_tokens(kShape, 128, 6);
    const auto step = [&](int64_t first, int64_t n) {
      const Tokens part = slice(kShape, tokens, first, n);
      std::vector<std::vector<float>> out(3, std::vector<float>(part.q.size(), NAN));
      std::vector<StepInput> inputs;
      for (SequenceId id = 0; id < 3; ++id) {
        inputs.push_back(
            {id, n, part.q.data(), part.k.data(), part.v.data(), out[static_cast<size_t>(id)].data()});
      }
      gpu.appends = gpu.uploaded_bytes = 0;
      side.cache->step(0, inputs);
    };
    for (int i = 0; i < 3; ++i) side.cache->add_sequence();
    step(0, 90);
    step(90, 1);
    const int64_t all = gpu.uploaded_bytes;
    step(91, 1);
    EXPECT_EQ(gpu.appends, 1);
    if (std::string_view(text).starts_with("paged(block=2)")) {
      const int64_t lists = int64_t{3} * kShape.kv_heads * 64 * sizeof(cuda::Page);
      EXPECT_GT(all, lists);
      EXPECT_LT(gpu.uploaded_bytes, all - lists * 9 / 10);
    }
    for (int64_t at = 92; at < 95; ++at) step(at, 1);
    step(95, 1);  // residual rows become a unit at 96, of all sequences and heads at once
    EXPECT_LE(gpu.appends, 2);
  }
}

TEST_F(CudaCache, SinkLogitsAndSoftCappingAreRefused) {
  Pair pair(parse_spec("contiguous/f32"));
  const SequenceId id = pair.on_gpu.cache->add_sequence();
  const Tokens part = make_tokens(kShape, 1, 5);
  std::vector<float> out(part.q.size());
  const std::vector<float> sinks(kShape.q_heads);
  StepInput in{id, 1, part.q.data(), part.k.data(), part.v.data(), out.data()};
  in.sink_logits = sinks.data();
  EXPECT_THROW(pair.on_gpu.cache->step(0, {&in, 1}), std::invalid_argument);
  in.sink_logits = nullptr;
  in.score_cap = 50;
  EXPECT_THROW(pair.on_gpu.cache->step(0, {&in, 1}), std::invalid_argument);
}

// A cache that the CPU has and a GPU has no kernels for is refused when it is asked for, with the one reason.
TEST_F(CudaCache, WhatAGpuCannotDoIsKnown) {
  const test::SimtGpu gpu;
  CacheShape long_rows = kShape, latent = kShape;
  long_rows.head_dim = 512;
  latent.q_heads = 4, latent.kv_heads = 1, latent.head_dim = 64, latent.value_dim = 32;
  struct Case {
    const char *spec, *reason;
    const CacheShape& shape = kShape;
  };
  const Case cases[] = {
      {"contiguous", "head_dim 512 is more than the 256 that the GPU's kernels take", long_rows},
      {"contiguous/f16", "latent rows (MLA) are not yet supported on a GPU", latent},
      {"contiguous/q4_1", "q4_1 runs only on the CPU; use --device cpu"},
      {"contiguous/q5_0", "q5_0 runs only on the CPU; use --device cpu"},
      {"contiguous/q5_1", "q5_1 runs only on the CPU; use --device cpu"},
      {"contiguous/q6_0", "q6_0 runs only on the CPU; use --device cpu"},
      {"contiguous/iq4_nl", "iq4_nl runs only on the CPU; use --device cpu"},
      {"contiguous/mxfp8", "mxfp8e4m3 runs only on the CPU; use --device cpu"},
      {"paged/mxfp4", "mxfp4 runs only on the CPU; use --device cpu"},
      {"paged/nvfp4", "nvfp4 runs only on the CPU; use --device cpu"},
      {"paged/turbo(bits=3)", "turbo3 runs only on the CPU; use --device cpu"},
      {"paged/split(k=f16,v=turbo(bits=2))", "turbo2 runs only on the CPU; use --device cpu"},
      {"contiguous/python_codec", "a codec in Python runs only on the CPU; use --device cpu"},
      {"contiguous/f16/full/quest", "selection 'quest' runs only on the CPU; use --device cpu"},
      {"contiguous/f16/full/topk", "selection 'topk' runs only on the CPU; use --device cpu"},
      {"contiguous/q8_0(arithmetic=int8)", "arithmetic=int8 runs only on the CPU; use --device cpu"},
      {"contiguous/q8_0(first=4)", "first=N runs only on the CPU; use --device cpu"},
      {"contiguous/kivi(prefill=full)", "prefill=full runs only on the CPU; use --device cpu"},
      {"contiguous/q4_0(k_mean=removed)", "k_mean=removed runs only on the CPU; use --device cpu"},
      {"paged/f16/duo(recent=24,sinks=4,retrieval=1)",
       "heads that keep different numbers of rows run only on the CPU; use --device cpu"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(unsupported_reason(parse_spec(c.spec), c.shape, &gpu), c.reason) << c.spec;
    EXPECT_EQ(unsupported_reason(parse_spec(c.spec), c.shape), "") << c.spec;
  }
}

}  // namespace
}  // namespace kv
