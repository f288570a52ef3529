// tiered on a GPU, on the shim: rows of the host's memory and of the file pass through the GPU's piece by
// piece, in a queue beside the kernels' own. The outputs are those of rows that lie there, to the bit,
// whether copies come as late as they may or as early; and without any one of the queues' waits they are not.
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/cpu/isa.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "tests/variants/contract.h"
#include "variants/storage/gpu_pieces.h"

namespace kv {
namespace {

using namespace contract;
using test::SimtGpu;
using Late = SimtGpu::Late;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 3000, .max_sequences = 4};
constexpr int64_t kLengths[] = {1900, 20, 1200};

struct Cached {
  Cached(const Spec& spec, cuda::Gpu* gpu, const CacheShape& shape = kShape)
      : ledger(INT64_MAX, gpu), cache(build_cache(spec, shape, ledger)) {}
  void fill(SequenceId id, const Tokens& all, int64_t n) {
    const Tokens part = slice(kShape, all, cache->tokens(id, 0), n);
    const StepInput in{id, n, part.q.data(), part.k.data(), part.v.data(), nullptr};
    cache->step(0, {&in, 1});
  }
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
};

// The outputs of `n` tokens of each sequence of a ragged batch.
std::vector<float> outputs(const Spec& spec, cuda::Gpu* gpu, int64_t n) {
  Cached cached(spec, gpu);
  std::vector<Tokens> parts;
  std::vector<std::vector<float>> out;
  for (const int64_t length : kLengths) {
    const Tokens all = make_tokens(kShape, length + n, static_cast<uint64_t>(length));
    cached.fill(cached.cache->add_sequence(), all, length);
    parts.push_back(slice(kShape, all, length, n));
    out.emplace_back(parts.back().q.size(), NAN);
  }
  std::vector<StepInput> inputs;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tokens& p = parts[i];
    inputs.push_back({static_cast<SequenceId>(i), n, p.q.data(), p.k.data(), p.v.data(), out[i].data()});
  }
  cached.cache->step(0, inputs);
  cached.ledger.assert_balanced();
  std::vector<float> all;
  for (const auto& o : out) all.insert(all.end(), o.begin(), o.end());
  return all;
}

std::vector<float> outputs_on_gpu(const std::string& spec, Late late, int64_t n) {
  SimtGpu gpu(1, late);
  return outputs(parse_spec(spec), &gpu, n);
}

// Second pool alone, file alone, both; whole units, a raw tail, f32 copies, and the plain kernel.
TEST(CudaTiers, ChangeNoBit) {
  for (const auto& [tiers, rest] :
       std::vector<std::pair<std::string, std::string>>{{"hot=1", "/f16"},
                                                        {"hot=1,warm=0", "/f16"},
                                                        {"hot=600,warm=512", "/q8_0"},
                                                        {"hot=1,warm=513,io=direct", "/kivi"},
                                                        {"hot=512,warm=512", "/token(read=copy)"},
                                                        {"hot=1,warm=512", "/token(bits=3)"}}) {
    const std::string spec = "tiered(" + tiers + ")" + rest;
    if (!unsupported_reason(parse_spec(spec)).empty()) continue;  // a disk without direct reads
    for (const int64_t n : rest == "/f16" ? std::vector<int64_t>{1, 9} : std::vector<int64_t>{1}) {
      const auto want = outputs_on_gpu("contiguous" + rest, Late::kPrefetch, n);
      EXPECT_EQ(outputs_on_gpu(spec, Late::kBoth, n), want) << spec << " " << n;
      cpu::force_isa("scalar");
      EXPECT_LT(relative_l2(want, outputs(parse_spec(spec), nullptr, n)), 1e-5) << spec << " " << n;
      cpu::force_isa("auto");
    }
  }
}

TEST(CudaTiers, NoticeEveryWaitThatIsMissing) {
  const Spec spec = parse_spec("tiered(hot=1,warm=0)/f16");
  SimtGpu whole;
  const auto want = outputs(spec, &whole, 1);
  ASSERT_GT(whole.waits, 3 + 2);  // for each piece of both long sequences, and for a slot that is used again
  for (int64_t skipped = 0; skipped < whole.waits; ++skipped) {
    bool noticed = false;
    for (const auto late : {Late::kPrefetch, Late::kMain}) {
      SimtGpu gpu(1, late);
      gpu.skipped_wait = skipped;
      noticed = noticed || outputs(spec, &gpu, 1) != want;
    }
    EXPECT_TRUE(noticed) << "wait " << skipped;
  }
}

// The host's waits: before the buffer that a copy comes from is read into again. More pieces than there are buffers.
TEST(CudaTiers, NoticeThatTheHostDoesNotWait) {
  CacheShape shape = kShape;
  shape.max_tokens = 24 * 512;
  const Tokens all = make_tokens(shape, shape.max_tokens, 6);
  const auto output = [&](bool waits) {
    SimtGpu gpu(1, Late::kBoth);
    Cached cached(parse_spec("tiered(hot=1,warm=0)/f16"), &gpu, shape);
    const SequenceId id = cached.cache->add_sequence();
    cached.fill(id, all, shape.max_tokens - 1);
    gpu.host_waits = waits;
    const Tokens last = slice(shape, all, shape.max_tokens - 1, 1);
    std::vector<float> out(last.q.size());
    const StepInput in{id, 1, last.q.data(), last.k.data(), last.v.data(), out.data()};
    cached.cache->step(0, {&in, 1});
    return out;
  };
  const auto want = output(true);
  EXPECT_EQ(output(true), want);
  EXPECT_NE(output(false), want);
}

// Two layers, step after step: what a layer finds in its slots was brought while the one before it ran, unless rows moved
// meanwhile, or another sequence has the id now.
struct Stepped {
  std::vector<std::vector<float>> out;
  std::vector<int64_t> copies;  // ahead of time, of each step
};

Stepped steps(const std::string& spec, SimtGpu& gpu) {
  CacheShape shape = kShape;
  shape.layers = 2;
  Cached cached(parse_spec(spec), &gpu, shape);
  Stepped stepped;
  const auto step = [&](SequenceId id, const Tokens& from, int64_t at, int64_t tokens, bool attends) {
    for (int layer = 0; layer < 2; ++layer) {
      const Tokens part = slice(shape, from, at + layer, tokens);
      if (attends) stepped.out.emplace_back(part.q.size(), NAN);
      float* const out = attends ? stepped.out.back().data() : nullptr;
      const StepInput in{id, tokens, part.q.data(), part.k.data(), part.v.data(), out};
      cached.cache->step(layer, {&in, 1});
    }
  };
  for (const auto& [seed, count] : {std::pair{5, 4}, std::pair{8, 1}}) {
    const Tokens all = make_tokens(shape, 2100, static_cast<uint64_t>(seed));
    const SequenceId id = cached.cache->add_sequence();
    step(id, all, 0, 2046, false);
    for (int i = 0; i < count; ++i) {
      const int64_t before = gpu.copies_ahead;
      step(id, all, 2046 + i, 1, true);
      stepped.copies.push_back(gpu.copies_ahead - before);
    }
    cached.cache->release(id);
  }
  return stepped;
}

TEST(CudaTiers, FetchTheNextLayersFirstPieces) {
  SimtGpu plain;
  const Stepped want = steps("contiguous/f16", plain);
  // A copy for each of both layers' three pieces: in the first step two more for the one after it, later two of them are there.
  // When the third step moves a fourth piece to the host, the prefetched ones are not used, nor when its items are longer
  // and need more slots.
  const std::vector<int64_t> moved = {8, 6, 12, 8, 8}, still = {8, 6, 8, 6, 8};
  const std::vector<std::tuple<std::string, Late, std::vector<int64_t>>> runs = {
      {"hot=1", Late::kBoth, moved},
      {"hot=300,warm=512", Late::kBoth, still},
      {"hot=1,warm=0", Late::kPrefetch, moved},
      {"hot=1,warm=0", Late::kMain, moved}};
  for (const auto& [tiers, late, copies] : runs) {
    SimtGpu gpu(1, late);
    const Stepped is = steps("tiered(" + tiers + ")/f16", gpu);
    EXPECT_EQ(is.out, want.out) << tiers;
    EXPECT_EQ(is.copies, copies) << tiers;
  }
}

// A piece is asked for before the output of the layer before it is fetched.
TEST(CudaTiers, FetchWhileTheLayerBeforeComputes) {
  struct Watched : SimtGpu {
    using SimtGpu::SimtGpu;
    void copy(void* to, const void* from, size_t bytes) override {
      fetched_before_copy.push_back(copies_ahead);
      SimtGpu::copy(to, from, bytes);
    }
    std::vector<int64_t> fetched_before_copy;
  } gpu;
  steps("tiered(hot=1,warm=0)/f16", gpu);
  // The last copy of all is the last step's output, layer 1's: by then all of its own pieces and two of the next step's.
  ASSERT_GT(gpu.fetched_before_copy.size(), 1u);
  EXPECT_EQ(gpu.fetched_before_copy.back(), gpu.copies_ahead);
}

// Wherever a step's copies break off, some blocks have counted themselves by then; the next step reads right rows and merges all.
TEST(CudaTiers, GoOnAfterAStepThatFailed) {
  const Tokens all = make_tokens(kShape, 2102, 3);
  const auto last = [&](const std::string& spec, int64_t failing_copy) {
    SimtGpu gpu(1, Late::kPrefetch);
    Cached cached(parse_spec(spec), &gpu);
    const SequenceId id = cached.cache->add_sequence();
    cached.fill(id, all, 2099);
    std::vector<float> out;
    for (int64_t at = 2099; at < 2102; ++at) {
      const Tokens one = slice(kShape, all, at, 1);
      out.assign(one.q.size(), NAN);
      const StepInput in{id, 1, one.q.data(), one.k.data(), one.v.data(), out.data()};
      if (at == 2100 && failing_copy >= 0) {
        gpu.failing_copy = gpu.copies_ahead + failing_copy;
        EXPECT_THROW(cached.cache->step(0, {&in, 1}), std::runtime_error) << failing_copy;
      } else {
        cached.cache->step(0, {&in, 1});
      }
    }
    return out;
  };
  const auto want = last("contiguous/q8_0", -1);
  EXPECT_EQ(last("tiered(hot=1)/q8_0", -1), want);
  for (int64_t copy = 0; copy < 4; ++copy) EXPECT_EQ(last("tiered(hot=1)/q8_0", copy), want) << copy;
}

// K's and V's codes lie side by side, and so do their scales; in the file, all four planes.
TEST(CudaTiers, BringPlanesThatLieSideBySideInOneCopy) {
  for (const auto& [spec, copies] : {std::pair{"tiered(hot=1)/f16", 1},
                                     {"tiered(hot=1)/q8_0", 2},
                                     {"tiered(hot=1,warm=0)/f16", 1},
                                     {"tiered(hot=1,warm=0)/q8_0", 1}}) {
    SimtGpu gpu;
    Cached cached(parse_spec(spec), &gpu);
    const Tokens all = make_tokens(kShape, 1901, 3);
    cached.fill(cached.cache->add_sequence(), all, 1900);
    const Tokens last = slice(kShape, all, 1900, 1);
    std::vector<float> out(last.q.size());
    const StepInput in{0, 1, last.q.data(), last.k.data(), last.v.data(), out.data()};
    cached.cache->step(0, {&in, 1});
    constexpr int kPieces = 1900 / kPieceRows + kPrefetchedPieces;  // and the next step's first ones
    EXPECT_EQ(gpu.copies_ahead, copies * kPieces) << spec;
  }
}

TEST(CudaTiers, HoldAFewPiecesAtATime) {
  SimtGpu gpu;
  const Tokens all = make_tokens(kShape, 2901, 3);
  int64_t held[2];
  for (const bool tiers : {false, true}) {
    Cached cached(parse_spec(tiers ? "tiered(hot=1)/f16" : "contiguous/f16"), &gpu);
    const SequenceId id = cached.cache->add_sequence();
    for (int i = 0; i < 29; ++i) cached.fill(id, all, 100);
    const Tokens last = slice(kShape, all, 2900, 1);
    std::vector<float> out(last.q.size());
    const StepInput in{id, 1, last.q.data(), last.k.data(), last.v.data(), out.data()};
    cached.cache->step(0, {&in, 1});
    held[tiers] = cached.ledger.device().peak_bytes;
  }
  EXPECT_GT(gpu.copies_ahead, 0);
  const int64_t chunk = 512 * 2 * 64 * 2 * 2;  // rows, heads, head_dim, bytes, K and V
  EXPECT_LT(held[1], held[0]);
  EXPECT_LT(held[1], 7 * chunk);  // one hot and being moved, slots for four, and outputs
}

}  // namespace
}  // namespace kv
