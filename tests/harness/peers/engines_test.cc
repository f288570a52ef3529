// Commands for serving engines, as they were read in the sources of the versions that the table names.
#include "harness/peers/engines.h"

#include <gtest/gtest.h>
#include <stdexcept>

#include "harness/choose/candidates.h"
#include "variants/list.h"

namespace kv::peers {
namespace {

struct Case {
  const char *spec, *engine, *command;
};
constexpr Case kCases[] = {
    {"contiguous", "llama.cpp", "llama-server -ctk f32 -ctv f32"},
    {"contiguous/q8_0(rotate=hadamard)", "llama.cpp", "llama-server -ctk q8_0 -ctv q8_0 -fa on"},
    {"contiguous/split(k=q8_0,v=q4_0)", "llama.cpp",
     "LLAMA_ATTN_ROT_DISABLE=1 llama-server -ctk q8_0 -ctv q4_0 -fa on"},
    {"contiguous/split(k=q8_0,v=f16)", "llama.cpp",
     "LLAMA_ATTN_ROT_DISABLE=1 llama-server -ctk q8_0 -ctv f16"},
    {"contiguous/split(k=q8_0(rotate=hadamard),v=q4_0)", "llama.cpp", ""},  // it rotates both or none
    {"contiguous/q8_0(residual=32)", "llama.cpp", ""},
    {"contiguous/q6_0", "llama.cpp", ""},
    {"contiguous/f16/ring(window=64)", "llama.cpp", ""},
    {"contiguous(layout=bshd)/f16", "transformers", ""},
    {"paged/f16", "llama.cpp", ""},
    {"paged(block=32)/bf16", "vLLM", "vllm serve --kv-cache-dtype bfloat16 --block-size 32"},
    {"paged/fp8", "vLLM", "vllm serve --kv-cache-dtype fp8_per_token_head --block-size 16"},
    {"paged/token(mode=symmetric)", "vLLM",
     "vllm serve --kv-cache-dtype int8_per_token_head --block-size 16"},
    {"paged/token(bits=4,mode=symmetric)", "vLLM", ""},
    {"paged(order=shuffled)/f16", "vLLM", ""},
    {"concat/bf16", "transformers", "generate(cache_implementation=\"dynamic\")"},
    {"contiguous/kivi(bits=2,group=64)", "transformers",
     "generate(cache_implementation=\"quantized\", cache_config={\"backend\": \"quanto\", \"nbits\": 2, "
     "\"axis_key\": -1, \"axis_value\": 0, \"q_group_size\": 64, \"residual_length\": 128})"},
    {"contiguous/kivi(bits=3)", "transformers", ""},
    {"contiguous/kivi(k_axis=token)", "transformers", ""},
    {"paged/f16/snapkv(budget=64)", "kvpress",
     "SnapKVPress(compression_ratio=1 - 64 / tokens, window_size=32, kernel_size=5)"},
    {"paged/f16/pyramid(budget=0.25,beta=10)", "kvpress",
     "PyramidKVPress(compression_ratio=1 - 0.25, window_size=32, kernel_size=5, beta=10)"},
    {"contiguous/f16/expected(future=512)", "kvpress",
     "ExpectedAttentionPress(compression_ratio=1 - 256 / tokens, n_sink=4, n_future_positions=512)"},
    {"contiguous/f16/h2o", "kvpress", ""},
    {"contiguous/f16 + 0:contiguous", "llama.cpp", ""},
};

TEST(Engines, CommandsAreThoseOfTheirSources) {
  for (const Case& c : kCases)
    EXPECT_EQ(command_of(engine_named(c.engine), parse_layer_specs(c.spec)), c.command) << c.spec;
  EXPECT_EQ(
      commands_of(parse_layer_specs("contiguous/f16")),
      "llama.cpp: llama-server -ctk f16 -ctv f16; transformers: generate(cache_implementation=\"static\")");
  EXPECT_THROW(engine_named("vllm"), std::invalid_argument);
}

// An arm of a whole engine: its text, kvlab's cache of the same bits, and the flags that this cache says.
struct ArmCase {
  const char *written, *text, *cache, *command;
};
constexpr ArmCase kArms[] = {
    {"llama.cpp", "llama.cpp(k=f16,v=f16)", "contiguous/f16", "llama-server -ctk f16 -ctv f16"},
    {"llama.cpp(v=q4_0,k=q8_0,fa=on)", "llama.cpp(k=q8_0,v=q4_0)",
     "contiguous/split(k=q8_0(rotate=hadamard),v=q4_0(rotate=hadamard))",
     "llama-server -ctk q8_0 -ctv q4_0 -fa on"},
    {"llama.cpp(k=iq4_nl,v=iq4_nl,rotate=off)", "llama.cpp(k=iq4_nl,v=iq4_nl,rotate=off)",
     "contiguous/iq4_nl", "LLAMA_ATTN_ROT_DISABLE=1 llama-server -ctk iq4_nl -ctv iq4_nl -fa on"},
    {"llama.cpp(k=q5_1,v=bf16,fa=off)", "llama.cpp(k=q5_1,v=bf16,fa=off)",
     "contiguous/split(k=q5_1(rotate=hadamard),v=bf16)", "llama-server -ctk q5_1 -ctv bf16"},
};

TEST(Engines, AnArmHasTheBitsOfItsCache) {
  for (const ArmCase& c : kArms) {
    const EngineArm arm = parse_arm(c.written);
    EXPECT_EQ(arm.text(), c.text);
    EXPECT_EQ(parse_arm(c.text).values, arm.values);
    EXPECT_EQ(arm.cache(64).print(), c.cache);
    EXPECT_EQ(command_of(engine_named("llama.cpp"), LayerSpecs(arm.cache(128))), c.command);
  }
  EXPECT_EQ(parse_arm("llama.cpp(k=q8_0,v=q8_0)").cache(96).print(), "contiguous/q8_0");
}

// A parameter that changes what a cache stores or keeps, and that no case above names, must not be lost on the way.
TEST(Engines, AParameterThatAnEngineLacksGivesNoCommand) {
  for (const CodecEntry* codec : kCodecs) {
    for (const Parameter& p : codec->parameters) {
      if (p.name != "first" && p.name != "k_mean" && p.name != "prefill") continue;
      const std::string value = p.trial_values().front();
      const std::string spec = "/" + std::string(codec->name) + "(" + std::string(p.name) + "=" + value + ")";
      for (const char* placement : {"contiguous", "concat", "paged"})
        EXPECT_EQ(commands_of(parse_layer_specs(placement + spec)), "") << placement << spec;
    }
  }
}

TEST(Engines, ChooseHasCandidatesForThoseThatKeepEveryToken) {
  const CacheShape layers{.layers = 8, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 1024};
  const ModelShape shape{layers, {}};
  for (const Engine& engine : engines()) {
    const std::vector<std::string> specs = choose::candidate_specs(shape, &engine);
    EXPECT_EQ(specs.empty(), engine.name == "kvpress") << engine.name;
    for (const std::string& spec : specs) EXPECT_NE(command_of(engine, parse_layer_specs(spec)), "") << spec;
  }
}

}  // namespace
}  // namespace kv::peers
