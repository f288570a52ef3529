// Specs of layers that differ: what parses, what it prints as, what each layer gets, and what a mistake is told.
#include "variants/model_cache/layer_specs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/message_of.h"
#include "variants/cache/compatibility.h"
#include "variants/list.h"
#include "variants/model_cache/label.h"
#include "variants/model_cache/layer_groups.h"
#include "variants/model_cache/resolve.h"

namespace kv {
namespace {

std::string parse_error(const std::string& text) {
  return message_of([&] { parse_layer_specs(text); });
}

// The part of a message that stands over its caret.
std::string at_caret(const std::string& message) {
  const size_t caret_line = message.rfind('\n'), text_line = message.rfind('\n', caret_line - 1);
  const size_t column = message.size() - caret_line - 2;
  return message.substr(text_line + 1 + column, caret_line - text_line - 1 - column);
}

// Layers 0 to 5: sliding, sliding, full, sliding, sliding, full.
std::vector<ModelLayer> gemma() {
  const ModelLayer sliding{.kind = "sliding", .window = 40};
  return {sliding, sliding, {}, sliding, sliding, {}};
}

std::vector<std::string> specs_of(const std::string& text, const std::vector<ModelLayer>& layers,
                                  int64_t max_tokens = 100) {
  std::vector<std::string> specs;
  for (const ResolvedLayer& layer : resolve(parse_layer_specs(text), layers, max_tokens))
    specs.push_back(layer.spec.print());
  return specs;
}

TEST(Label, SaysWhatIsKept) {
  const std::pair<const char*, const char*> labels[] = {
      {"contiguous", "contiguous f32"},
      {"contiguous/f16", "contiguous f16"},
      {"contiguous/q8_0", "q8_0"},
      {"paged/q8_0", "paged q8_0"},
      {"paged(block=32)/f16", "paged block 32 f16"},
      {"contiguous/kivi", "kivi 4-bit residual 128"},
      {"contiguous/kivi(bits=2,residual=0)", "kivi 2-bit"},
      {"contiguous/kivi(k_bits=2,v_bits=16,residual=0,k_axis=token)", "kivi K 2-bit V 16-bit K per token"},
      {"contiguous/split(k=q4_0(rotate=hadamard))", "split K q4_0 hadamard V f16"},
      {"contiguous/q4_0(residual=16)", "q4_0 residual 16"},
      {"contiguous/f16/h2o", "f16 h2o 128+128"},
      {"contiguous/q4_0/ring(window=60,sinks=4)", "q4_0 ring 60 sinks 4"},
      {"segmented(rows=16)/f16/snapkv(budget=64,window=16)", "segmented rows 16 f16 snapkv 64 window 16"},
      {"contiguous/f16/topk(rows=128)", "f16 topk 128"},
      {"contiguous/kivi(bits=2,residual=0) + 0-1:contiguous/f16 + full:paged",
       "kivi 2-bit + 0-1: f16 + full: paged f32"},
      {"segmented/f16/ring(window=64) + 5:segmented/f16", "segmented f16 ring 64 + 5: full"},
      {"paged/snapkv(budget=64,window=16) + 3:paged/snapkv(budget=32,window=16)",
       "paged f32 snapkv 64 window 16 + 3: 32"},
      {"contiguous/f16/ring(window=60,sinks=4,positions=cache)", "f16 ring 60 sinks 4 cache positions"}};
  for (const auto& [spec, label] : labels) EXPECT_EQ(label_of(parse_layer_specs(spec)), label) << spec;
}

TEST(Label, DiffersWhereSpecsDo) {
  std::set<std::string> labels;
  size_t specs = 0;
  const auto add = [&](const auto& entries, Stage Spec::*stage) {
    for (const auto* entry : entries) {
      for (const Parameter& p : entry->parameters) {
        for (const std::string& value : p.trial_values()) {
          Spec spec = default_spec();
          spec.*stage = default_stage(*entry);
          (spec.*stage).values[std::string(p.name)] = value;
          ++specs;
          labels.insert(label_of(spec));
        }
      }
    }
  };
  add(kPlacements, &Spec::placement);
  add(kCodecs, &Spec::codec);
  add(kRetentions, &Spec::retention);
  add(kSelections, &Spec::selection);
  EXPECT_EQ(labels.size(), specs);
}

TEST(LayerSpecs, PrintedFormsParseBack) {
  for (const char* text :
       {"contiguous", "contiguous/f16 + 3:contiguous/ring(window=8)",
        "contiguous/kivi(bits=2) + 0-1:contiguous/f16 + sliding:contiguous/f16/ring(window=model)",
        "contiguous/f16 + 0,2-3,9:contiguous/q8_0 + 1:concat + full:contiguous/q4_0 + sliding:paged/f16"}) {
    EXPECT_EQ(parse_layer_specs(text).print(), text);
    EXPECT_EQ(parse_layer_specs(parse_layer_specs(text).print()), parse_layer_specs(text));
  }
}

TEST(LayerSpecs, StagesSayTheDefaultsToo) {
  const auto stages = [](const char* text) { return parse_layer_specs(text).fallback.stages(); };
  const auto exceptions = [](const char* text) { return parse_layer_specs(text).print_exceptions(); };
  const char* mixed = "contiguous/f16/quest(top=0.01,least=16) + 0-1:contiguous/f16";
  EXPECT_EQ(stages(mixed), (StageTexts{"contiguous", "f16", "full", "quest(top=0.01,least=16)"}));
  EXPECT_EQ(exceptions(mixed), "0-1:contiguous/f16");
  EXPECT_EQ(stages("paged(block=8)"), (StageTexts{"paged(block=8)", "f32", "full", "all"}));
  EXPECT_EQ(exceptions("paged(block=8)"), "");
  EXPECT_EQ(
      stages("contiguous/knorm(budget=64)"),
      (StageTexts{"contiguous", "f32", parse_spec("contiguous/knorm(budget=64)").print().substr(11), "all"}));
  EXPECT_EQ(exceptions("concat + sliding:contiguous/f16/ring(window=model) + 7,0-1:contiguous/f16"),
            "0-1,7:contiguous/f16 + sliding:contiguous/f16/ring(window=model)");
}

TEST(LayerSpecs, BitsPerValueAreTheUnitsOfAllLayers) {
  const auto bits = [](const char* text, int value_dim = 0) {
    const CacheShape shape{.layers = 2,
                           .q_heads = 2,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .max_tokens = 1000,
                           .max_sequences = 3,
                           .value_dim = value_dim};
    return bits_per_value(parse_layer_specs(text), ModelShape(shape, {}));
  };
  EXPECT_EQ(bits("contiguous"), 32.0);
  EXPECT_EQ(bits("paged(block=16)/f16/ring(window=100)"), 16.0);
  EXPECT_EQ(bits("contiguous/q8_0"), 8.5);
  EXPECT_EQ(bits("contiguous/q4_0"), 4.5);
  EXPECT_EQ(bits("contiguous/split(k=q8_0,v=q4_0)"), 6.5);
  EXPECT_EQ(bits("contiguous/split(k=kivi(bits=2),v=turbo(bits=4))"), (3.0 + 4.25) / 2);
  EXPECT_EQ(bits("contiguous/q4_0", 32), 4.5);      // latent rows: K alone
  EXPECT_EQ(bits("contiguous/kivi(bits=2)"), 3.0);  // a scale and a zero point of 16 bits for 32 codes
  EXPECT_EQ(bits("contiguous + 1:contiguous/f16"), 24.0);
  EXPECT_EQ(bits("contiguous + 1:contiguous/f16/ring(window=250)"), (1000 * 32.0 + 250 * 16.0) / 1250);
  EXPECT_EQ(bits("tiered(hot=100,warm=0)/q4_0"), 4.5);
}

TEST(LayerSpecs, OneMeaningHasOneForm) {
  EXPECT_EQ(parse_layer_specs("contiguous/f16/full+sliding:concat+2:concat + 0,1:concat/f32").print(),
            "contiguous/f16 + 0-2:concat + sliding:concat");
  EXPECT_EQ(parse_layer_specs("concat + 5:contiguous + 1:contiguous/f16"),
            parse_layer_specs("concat + 1:contiguous/f16 + 5:contiguous"));
}

TEST(LayerSpecs, Int8ArithmeticIsSetInEverySpecWhoseCodecHasIt) {
  const LayerSpecs specs = parse_layer_specs(
      "paged/q8_0(residual=64) + 0:contiguous/f16 + 1:contiguous/q4_0 + "
      "2:contiguous/q4_0(arithmetic=int8)");
  EXPECT_EQ(with_int8_arithmetic(specs),
            parse_layer_specs("paged/q8_0(residual=64,arithmetic=int8) + 0:contiguous/f16 + "
                              "1-2:contiguous/q4_0(arithmetic=int8)"));
}

TEST(LayerSpecs, ATextParameterMayHoldWhatSeparates) {
  const LayerSpecs specs = parse_layer_specs("tiered(dir=/a b + 1:c) + 1:contiguous");
  EXPECT_EQ(specs.fallback.placement.text("dir"), "/a b + 1:c");
  EXPECT_EQ(parse_layer_specs(specs.print()), specs);
}

TEST(LayerSpecs, MistakesAreShownWhereTheyAre) {
  EXPECT_EQ(at_caret(parse_error("contiguous + 0-1:contiguos")), "contiguos");
  EXPECT_EQ(at_caret(parse_error("contiguous + 3-1:concat")), "3-1:concat");
  EXPECT_EQ(at_caret(parse_error("contiguous + 3concat")), "concat");
  EXPECT_EQ(at_caret(parse_error("contiguous + :concat")), ":concat");
  EXPECT_EQ(at_caret(parse_error("contiguous + 10000:concat")), "10000:concat");
  EXPECT_EQ(at_caret(parse_error("contiguous 0:concat")), "0:concat");
  EXPECT_EQ(parse_error("contiguous + 0-3:concat + 2:contiguous"),
            "spec: layer 2 is given two specs\n  contiguous + 0-3:concat + 2:contiguous\n" +
                std::string(28, ' ') + "^");
  EXPECT_EQ(at_caret(parse_error("concat + full:concat + full:doubling")), "full:doubling");
  EXPECT_NE(parse_error("concat + 1,1:concat").find("layer 1 is named twice"), std::string::npos);
  for (const char* text :
       {"contiguous + ", "contiguous +", "contiguous ", "contiguous + 1", "contiguous + 1:", "+ 1:concat"})
    EXPECT_EQ(parse_error(text).substr(0, 6), "spec: ") << text;
}

TEST(LayerSpecs, ANumberComesBeforeAKindBeforeTheDefault) {
  EXPECT_EQ(specs_of("concat + 1,2:doubling + full:contiguous", gemma(), 40),
            (std::vector<std::string>{"concat", "doubling", "doubling", "concat", "concat", "contiguous"}));
}

TEST(LayerSpecs, ALayersWindowBoundsWhatItKeeps) {
  const auto specs = specs_of(
      "contiguous/f16 + 3:contiguous/f16/ring(window=30,sinks=4) + 4:contiguous/ring(window=model)", gemma());
  EXPECT_EQ(specs[0], "contiguous/f16/ring(window=40)");
  EXPECT_EQ(specs[2], "contiguous/f16");
  EXPECT_EQ(specs[3], "contiguous/f16/ring(window=30,sinks=4)");
  EXPECT_EQ(specs[4], "contiguous/ring(window=40)");
  EXPECT_EQ(specs_of("contiguous/ring(window=99,positions=cache)", gemma())[0],
            "contiguous/ring(window=40,positions=cache)");
  EXPECT_EQ(specs_of("contiguous/f16", gemma(), 40)[0], "contiguous/f16");  // nothing is ever past the window
}

// Rows that each layer keeps of a prompt.
std::vector<int64_t> rows_of(const char* spec, const std::vector<ModelLayer>& layers, int64_t prompt) {
  std::vector<int64_t> rows;
  for (const ResolvedLayer& layer : resolve(parse_layer_specs(spec), layers, 1000))
    rows.push_back(retention_of(layer.spec).slots(layer.spec.retention, {1000, prompt, prompt}));
  return rows;
}
using Rows = std::vector<int64_t>;

// The paper's line: 2 · 80 - 4, 125.6, 95.2, 64.8, 34.4 and 80 / 20 rows beside the window's 16.
TEST(LayerSpecs, APyramidsBudgetsFallOnALineAndAddUp) {
  const std::vector<ModelLayer> six(6), one(1);
  EXPECT_EQ(rows_of("contiguous/f16/pyramid(budget=96,window=16)", six, 1000),
            (Rows{172, 142, 111, 81, 50, 20}));
  EXPECT_EQ(specs_of("contiguous/pyramid(budget=96,window=16)", six)[4],
            "contiguous/pyramid(budget=96,window=16,layer=4,layers=6)");
  // A share of the tokens; all alike with beta=1; one layer has the mean.
  EXPECT_EQ(rows_of("contiguous/pyramid(budget=0.5,window=16,beta=1)", six, 1000), Rows(6, 500));
  EXPECT_EQ(specs_of("contiguous/pyramid(budget=96,window=16,positions=cache)", one),
            std::vector<std::string>{"contiguous/pyramid(budget=96,window=16,positions=cache)"});
  EXPECT_EQ(rows_of("contiguous/pyramid(budget=96,window=16)", one, 1000), Rows{96});
  // Layers that keep no rows of their own are not counted; a layer's window holds.
  const std::vector<ModelLayer> mixed{
      {}, {.kind = "linear"}, {.kind = "sliding", .window = 40}, {.shares = 0}};
  const std::vector<ResolvedLayer> resolved =
      resolve(parse_layer_specs("contiguous/pyramid(budget=96,window=16,beta=4)"), mixed, 1000);
  EXPECT_EQ(resolved[0].spec.print(), "contiguous/pyramid(budget=96,window=16,beta=4,layers=2)");
  EXPECT_EQ(resolved[2].spec.print(), "contiguous/pyramid(budget=96,window=16,beta=4,layer=1,layers=2)");
  EXPECT_EQ(resolved[3].spec, resolved[0].spec);
  EXPECT_EQ(message_of([&] { resolve(parse_layer_specs("contiguous/pyramid(budget=50)"), six, 1000); }),
            "pyramid: budget (50 rows) leaves the last layer no row beside its window (32): window + beta = "
            "52 rows would");
  EXPECT_EQ(
      message_of([&] { resolve(parse_layer_specs("contiguous/pyramid(layer=3,layers=3)"), one, 1000); }),
      "pyramid: layer (3) must be below layers (3)");
}

// kvpress's PyramidKVPress: the first of four layers has 100 - 16 rows, the last 2 · 64 - 84, a third of 40 between each.
TEST(LayerSpecs, APyramidGivesWhatAShortPromptHasNotToItsLaterLayers) {
  const std::vector<ModelLayer> four(4);
  const char* const spec = "contiguous/pyramid(budget=80,window=16)";
  EXPECT_EQ(rows_of(spec, four, 100), (Rows{100, 87, 73, 60}));
  for (const int64_t prompt : {81, 90, 100, 130, 141, 200, 1000}) {
    const Rows rows = rows_of(spec, four, prompt);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), 4 * 80) << prompt;
    EXPECT_LE(rows.front(), prompt);
  }
  EXPECT_EQ(rows_of(spec, four, 80), Rows(4, 80)) << "nothing is cut";
}

TEST(LayerSpecs, WhatTheModelLacksIsRefusedWithWhatItHas) {
  const auto refused = [](const char* text, const std::vector<ModelLayer>& layers = gemma()) {
    return message_of([&] { resolve(parse_layer_specs(text), layers, 100); });
  };
  EXPECT_EQ(refused("contiguous + slidin:concat"),
            "spec: the model has no layers of kind 'slidin'; it has sliding (4 layers), full (2 layers); did "
            "you mean "
            "'sliding'?\n  contiguous + slidin:concat\n" +
                std::string(15, ' ') + "^");
  EXPECT_EQ(at_caret(refused("contiguous + 1:concat + 4-6:doubling")), "4-6:doubling");
  EXPECT_NE(refused("contiguous + 4-6:doubling").find("layers 0 to 5"), std::string::npos);
  EXPECT_EQ(at_caret(refused("contiguous + full:concat/ring(window=model)")),
            "full:concat/ring(window=model)");
  EXPECT_NE(refused("concat/ring(window=model)").find("layer 2 is of kind 'full'"), std::string::npos);
  EXPECT_EQ(at_caret(refused("contiguous + 5:contiguous/ring(positions=cache)")),
            "5:contiguous/ring(positions=cache)");
  const std::vector<ModelLayer> hybrid{{.kind = "linear"}, {}, {.shares = 1}};
  EXPECT_EQ(at_caret(refused("concat + 0-1:doubling", hybrid)), "0-1:doubling");
  EXPECT_EQ(at_caret(refused("concat + linear:doubling", hybrid)), "linear:doubling");
  EXPECT_NE(refused("concat + 2:doubling", hybrid).find("reads the cache of layer 1"), std::string::npos);
}

TEST(LayerSpecs, LayersThatCannotBeAreRefused) {
  const auto refused = [](const std::vector<ModelLayer>& layers) {
    return message_of([&] { resolve(parse_spec("contiguous"), layers, 100); });
  };
  EXPECT_NE(refused({{.kind = "sliding"}}).find("no window"), std::string::npos);
  EXPECT_NE(refused({{}, {.shares = 1}}).find("an earlier one"), std::string::npos);
  EXPECT_NE(refused({{}, {.shares = 0}, {.shares = 1}}).find("one of its own"), std::string::npos);
  EXPECT_NE(refused({{.kind = "linear"}, {.shares = 0}}).find("one of its own"), std::string::npos);
  EXPECT_NE(refused({{}, {.kind = "sliding", .window = 8, .shares = 0}}).find("same window"),
            std::string::npos);
}

TEST(LayerSpecs, WithoutAModelThereIsNoWindowToTake) {
  EXPECT_NE(unsupported_reason(parse_spec("contiguous/ring(window=model)")).find("give a number"),
            std::string::npos);
}

}  // namespace
}  // namespace kv
