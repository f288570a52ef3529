// Bytes of whole models: against arithmetic written out here, against published figures, and against the
// ledger of real caches.
#include "harness/tables/model_memory.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kv {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

int64_t predicted(const config::Geometry& g, const char* spec, int64_t tokens, int batch = 1) {
  const tables::ModelMemory cache(g, parse_layer_specs(spec), {tokens, batch});
  EXPECT_EQ(cache.unsupported(), "") << g.name << " " << spec;
  return cache.predicted_bytes();
}

int64_t predicted(const char* model, const char* spec, int64_t tokens, int batch = 1) {
  return predicted(config::preset_geometry(model), spec, tokens, batch);
}

config::Geometry small() {
  config::Geometry g;
  g.layers = g.model_layers = 3;
  g.q_heads = 4;
  g.kv_heads = 2;
  g.head_dim = 64;
  return g;
}

TEST(ModelMemory, Llama2KeepsHalfAMebibyteATokenInF16) {
  EXPECT_EQ(predicted("llama-2-7b", "contiguous/f16", 1), kMiB / 2);
  EXPECT_EQ(predicted("llama-2-7b", "contiguous/f16", 4096), 2048 * kMiB);
  EXPECT_EQ(predicted("llama-2-7b", "contiguous", 4096, 3), 3 * 4096 * kMiB);
}

// DeepSeek-AI, "Insights into DeepSeek-V3" (arXiv:2505.09343), table 1: KV cache per token in BF16, in KB of
// 1000.
TEST(ModelMemory, DeepSeeksTableOfThreeModels) {
  EXPECT_EQ(predicted("deepseek-v3", "contiguous/bf16", 1), 70272);
  EXPECT_EQ(predicted("qwen2.5-72b", "contiguous/bf16", 1), 327680);
  EXPECT_EQ(predicted("llama-3.1-405b", "contiguous/bf16", 1), 516096);
}

TEST(ModelMemory, ALatentIsOneRowOfTheKeysCodec) {
  const config::Geometry g = config::preset_geometry("deepseek-v2");
  constexpr int64_t kLayers = 60, kValues = 512 + 64, kTokens = 1000;
  EXPECT_EQ(predicted(g, "contiguous", kTokens), kLayers * kValues * kTokens * 4);
  // ggml: blocks of 32 with an f16 scale.
  EXPECT_EQ(predicted(g, "contiguous/q8_0", kTokens), kLayers * (kValues / 32) * 34 * kTokens);
  EXPECT_EQ(predicted(g, "contiguous/q4_0", kTokens), kLayers * (kValues / 32) * 18 * kTokens);
  EXPECT_EQ(predicted(g, "contiguous/split(k=f16,v=f32)", kTokens), kLayers * kValues * kTokens * 2);
  // 1000 tokens are 63 blocks of 16, each with an int32 in the table, one in the free list and one in the
  // reference counts.
  EXPECT_EQ(predicted(g, "paged(block=16)/f16", kTokens), kLayers * 63 * (16 * kValues * 2 + 3 * 4));
}

TEST(ModelMemory, AWindowBoundsWhatItsLayersHold) {
  const config::Geometry g = config::preset_geometry("gemma-3-27b");
  constexpr int64_t kRow = 2 * 16 * 128 * 2;  // K and V, 16 heads of 128, f16
  for (const int64_t tokens : {int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1025}, int64_t{131072}}) {
    EXPECT_EQ(predicted(g, "contiguous/f16", tokens),
              kRow * (10 * tokens + 52 * std::min<int64_t>(tokens, 1024)));
  }
  // Gemma 2 alternates. Mistral's layers are all windowed: its cache stops growing.
  EXPECT_EQ(predicted("gemma-2-9b", "contiguous/f16", 8192), 21 * (4096 + 8192) * int64_t{2 * 8 * 256 * 2});
  EXPECT_EQ(predicted("mistral-7b", "contiguous/f16", 4096),
            predicted("mistral-7b", "contiguous/f16", 1 << 20));
}

TEST(ModelMemory, AWindowedLayerKeepsWhicheverIsLess) {
  config::Geometry g = small();
  g.kinds = {{}, {.kind = "sliding", .window = 100}, {.kind = "sliding", .window = 100}};
  constexpr int64_t kRow = 2 * 2 * 64 * 4;
  EXPECT_EQ(predicted(g, "concat/f32/ring(window=64)", 1000), 3 * 64 * kRow);
  EXPECT_EQ(predicted(g, "concat/f32/ring(window=300,sinks=4)", 1000), (304 + 2 * 100) * kRow);
  // KIVI's raw rows and a group need 191: refused as soon as the window drops a token.
  EXPECT_EQ(tables::ModelMemory(g, parse_spec("contiguous/kivi"), {100, 1}).unsupported(), "");
  EXPECT_NE(tables::ModelMemory(g, parse_spec("contiguous/kivi"), {101, 1}).unsupported(), "");
}

// 004's hybrid: "DeltaNet state per layer: 16 groups x 128 x 128 x 4 bytes = 1 MB (fixed, context-independent)", and "KV
// cache per layer per position: 2 KV heads x 256 dim x 4 bytes x 2 (K+V) = 4 KB".
TEST(ModelMemory, HybridsCountTheStatesOfTheirLinearLayers) {
  for (const int64_t tokens : {int64_t{1}, int64_t{1000}})
    EXPECT_EQ(predicted("qwen3.5-0.8b", "contiguous", tokens), 18 * kMiB + 6 * 4096 * tokens);
  EXPECT_EQ(predicted("qwen3.5-0.8b", "contiguous", 10, 3), 3 * (18 * kMiB + 6 * 4096 * 10));
  EXPECT_EQ(predicted("qwen3-next-80b-a3b", "contiguous/bf16", 1),
            36 * 32 * 128 * 128 * 4 + 12 * 2 * 2 * 256 * 2);
  // Nothing is known here about Mamba's state.
  EXPECT_EQ(predicted("jamba-v0.1", "contiguous/bf16", 1), 4 * 2 * 8 * 128 * 2);
  config::Geometry g = config::preset_geometry("qwen3.5-0.8b");
  for (const int64_t state : {18 * kMiB, int64_t{0}}) {
    const tables::ModelMemory cache(g, parse_spec("contiguous"), {1000, 2});
    EXPECT_EQ(cache.ledger_bytes(), 2 * (state + 6 * 4096 * 1000));
    g.linear = {};  // a config that does not say its heads
  }
}

// Two of 5 layers read another's cache: tables and the ledger count three.
TEST(ModelMemory, LayersThatShareHoldNothing) {
  const ModelLayer sliding{.kind = "sliding", .window = 100};
  config::Geometry g = small();
  g.model_layers = 5;
  g.kinds = {sliding, {}, sliding, sliding, {}};
  g.kinds[3].shares = 2;
  g.kinds[4].shares = 1;
  constexpr int64_t kRow = 2 * 2 * 64 * 2;
  EXPECT_EQ(predicted(g, "contiguous/f16", 1000), (1000 + 2 * 100) * kRow);
  const tables::ModelMemory cache(g, parse_layer_specs("contiguous/f16 + sliding:concat/q8_0"), {1000, 2});
  EXPECT_EQ(cache.ledger_bytes(), cache.predicted_bytes());
}

TEST(ModelMemory, LayersMayHaveSpecsOfTheirOwn) {
  constexpr int64_t kRow = 2 * 16 * 128;  // values of a token in a layer of gemma-3-27b
  // Every sixth of its 62 layers is global; layers 0 and 1 are sliding.
  EXPECT_EQ(predicted("gemma-3-27b",
                      "contiguous/bf16 + 0-1:contiguous + sliding:contiguous/f16/ring(window=model)", 5000),
            kRow * (10 * 5000 * 2 + 50 * 1024 * 2 + 2 * 1024 * 4));
  EXPECT_THROW(predicted("gemma-3-27b", "contiguous + linear:contiguous/f16", 10), std::invalid_argument);
  EXPECT_THROW(predicted("llama-2-7b", "contiguous + 32:contiguous/f16", 10), std::invalid_argument);
}

TEST(ModelMemory, TheLedgerOfARealCacheAgrees) {
  const config::Geometry plain = small();
  config::Geometry local = plain;
  local.kinds = {{}, {.kind = "sliding", .window = 100}, {.kind = "sliding", .window = 100}};
  for (const config::Geometry& g : {plain, local}) {
    for (const char* spec : {"contiguous", "concat/f16", "doubling/q8_0", "segmented/q4_0",
                             "paged(block=16)/token(bits=4)", "contiguous/f16/ring(window=64,sinks=4)",
                             "paged/f16/h2o(heavy=32,recent=32)", "contiguous/f16/snapkv"}) {
      for (const int64_t tokens : {int64_t{1}, int64_t{99}, int64_t{1100}}) {
        const tables::ModelMemory cache(g, parse_spec(spec), {tokens, 2});
        ASSERT_EQ(cache.unsupported(), "") << spec;
        EXPECT_EQ(cache.ledger_bytes(), cache.predicted_bytes()) << spec << " at " << tokens;
      }
    }
  }
  const tables::ModelMemory kivi(plain, parse_spec("contiguous/kivi(bits=2)"), {1100, 2});
  EXPECT_EQ(kivi.ledger_bytes(), kivi.predicted_bytes());
  EXPECT_THROW(kivi.ledger_bytes(1000), std::bad_alloc);
}

TEST(ModelMemory, WhatFitsNowhereDoesNotOverflow) {
  EXPECT_EQ(predicted("llama-3.1-405b", "contiguous", 1 << 30, 1 << 20), int64_t{1} << 62);
}

}  // namespace
}  // namespace kv
