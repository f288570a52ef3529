// Models of every family over caches: what a cache keeps exactly changes no logit, what it rounds changes them a little, and
// what a cache cannot do is refused.
#include <gtest/gtest.h>

#include "harness/experiments/experiment.h"
#include "harness/experiments/plan.h"
#include "harness/measure/teacher_forcing.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/codebooks.h"
#include "harness/model/sampling.h"
#include "tests/harness/model/family_cases.h"
#include "variants/cache/cache.h"
#include "variants/cache/spec.h"

namespace kv {
namespace {

using test::contains;
using test::TempFolder;

constexpr int kTokens = 40;

std::vector<std::string> one_a_family() {
  return {"llama_saved", "mistral", "qwen2_mixed", "qwen3",    "gemma2",
          "gemma3",      "gpt2",    "gpt_oss",     "nanochat", "qwen3_5"};
}

// A family's model, with a window that all its tokens fit, unless another is asked for. `all_experts`: each token goes to each.
class Loaded {
 public:
  explicit Loaded(const std::string& name, int window = kTokens, bool all_experts = false) {
    test::TinyHuggingFace tiny = test::family_model(name);
    if (tiny.config.contains("sliding_window")) tiny.config["sliding_window"] = window;
    if (all_experts && tiny.config.contains("num_local_experts"))
      tiny.config["num_experts_per_tok"] = tiny.config["num_local_experts"];
    load(tiny);
  }
  explicit Loaded(const test::TinyHuggingFace& tiny, bool in_halves = false) {
    load(tiny);
    if (in_halves) model_->order_in_halves();
  }
  const model::Model& operator*() const { return *model_; }
  const model::ModelConfig& config() const { return model_->config(); }

  std::vector<float> with_full_attention() const {
    return test::run_in_chunks(*model_, test::family_tokens(), kTokens);
  }

  std::vector<float> over(const std::string& spec, int64_t step) const {
    memory::Ledger ledger(INT64_MAX, nullptr);
    const auto cache = build_cache(parse_layer_specs(spec), cache_shape(config(), 1, kTokens), ledger);
    model::CachedModel cached(*model_, *cache, 1);
    const std::vector<int> ids = test::family_tokens();
    std::vector<float> all;
    for (int64_t first = 0; first < kTokens; first += step) {
      const int64_t n = std::min<int64_t>(step, kTokens - first);
      const auto part =
          cached.step(std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(n)), n);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // A loss for each token of each sequence, [sequences, length], from a reading beside which there is no reference.
  std::vector<double> losses_alone(const LayerSpecs& specs, const measure::Passages& passages) const {
    memory::Ledger ledger(INT64_MAX, nullptr);
    const auto cache = build_cache(specs, cache_shape(config(), passages.sequences, kTokens), ledger);
    model::CachedModel cached(*model_, *cache, passages.sequences);
    std::vector<double> losses(static_cast<size_t>(passages.sequences * passages.length));
    const auto vocab = static_cast<size_t>(config().vocab_size);
    for (int64_t at = 0; at < passages.length; ++at) {
      const auto logits = cached.step(measure::tokens_of_step(passages, at, 1), 1);
      for (int s = 0; s < passages.sequences; ++s) {
        const auto of_one = std::span(logits).subspan(static_cast<size_t>(s) * vocab, vocab);
        losses[static_cast<size_t>(s * passages.length + at)] =
            measure::loss_of(of_one, passages.id(s, at + 1));
      }
    }
    return losses;
  }

 private:
  void load(const test::TinyHuggingFace& tiny) {
    tiny.write(folder_.path());
    model_ = std::make_unique<model::Model>(folder_.path().string());
  }

  TempFolder folder_;
  std::unique_ptr<model::Model> model_;
};

class FamilyOverCaches : public testing::TestWithParam<std::string> {};

// Token by token, in chunks, and as one prompt, which kernels work on otherwise.
TEST_P(FamilyOverCaches, RowsKeptAsTheyAreGiveTheSameLogits) {
  const Loaded model(GetParam());
  const std::vector<float> want = model.with_full_attention();
  for (const char* spec : {"contiguous/f32", "paged/f32", "doubling/f32"}) {
    for (const int64_t step : {1, 7, kTokens}) {
      const double worst = test::largest_difference(model.over(spec, step), want);
      EXPECT_LT(worst, 1e-4) << spec << " " << step;
      EXPECT_GT(worst, 1e-9) << "sums in another order are not this alike; " << spec << " " << step;
    }
  }
}

// Each codec's and each policy's error reaches the logits, and is no larger than its rounding explains.
TEST_P(FamilyOverCaches, RowsThatAreRoundedChangeTheLogitsALittle) {
  const Loaded model(GetParam());
  const std::vector<float> want = model.with_full_attention();
  const std::tuple<const char*, double, double> cases[] = {
      {"contiguous/f16", 3e-4, 0.1},
      {"paged/bf16", 2e-3, 0.8},
      {"contiguous/token(bits=8)", 5e-3, 0.8},
      {"concat/kivi(bits=4,group=8,residual=8)", 0.02, 10}};
  for (const auto& [spec, low, high] : cases) {
    const double worst = test::largest_difference(model.over(spec, 1), want);
    EXPECT_LT(worst, high) << spec;
    EXPECT_GT(worst, low) << spec;
  }
}

// A policy that scores by attention gets the weights as the model's attention has them. With room for all tokens it evicts
// none.
TEST_P(FamilyOverCaches, PoliciesThatEvictNothingGiveTheSameLogits) {
  const Loaded model(GetParam());
  const std::vector<float> want = model.with_full_attention();
  for (const char* spec : {"contiguous/f32/h2o(heavy=20,recent=20)", "contiguous/f32/tova(budget=40)"})
    EXPECT_LT(test::largest_difference(model.over(spec, 1), want), 1e-4) << spec;
  EXPECT_GT(test::largest_difference(model.over("contiguous/f32/h2o(heavy=8,recent=8)", 1), want), 1e-3);
}

// Caches share rows of the residual, angles and gates until their answers differ. Sixteen sequences are enough rows for
// products that do not depend on their number (products_test), experts' too, so that company changes no bit.
TEST_P(FamilyOverCaches, CachesInCompanyPredictWhatTheyPredictAlone) {
  const Loaded model(GetParam(), kTokens, true);
  measure::Passages passages{.sequences = 16, .length = kTokens - 1, .ids = {}};
  for (int sequence = 0; sequence < passages.sequences; ++sequence)
    for (const int id : test::family_tokens()) passages.ids.push_back((id + sequence) % 29);
  const char* const texts[] = {"paged/f32", "contiguous/token(bits=4)", "contiguous/f16",
                               "concat/token(bits=4)", "contiguous/h2o(heavy=8,recent=8)"};
  std::vector<LayerSpecs> specs;
  for (const char* text : texts) specs.emplace_back(parse_spec(text));
  const auto together = measure::read_specs(*model, passages, {}, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<double> alone = model.losses_alone(specs[i], passages);
    ASSERT_EQ(together[i].size(), alone.size());
    for (size_t at = 0; at < alone.size(); ++at)
      ASSERT_EQ(together[i][at].loss, alone[at]) << texts[i] << " " << at;
  }
}

// The way `quality` and `recall` read, and `generate` writes.
TEST_P(FamilyOverCaches, QualityReadsAndGenerateWrites) {
  const Loaded model(GetParam());
  std::vector<int> ids = test::family_tokens();
  const measure::Passages passages{.sequences = 1, .length = kTokens - 1, .ids = ids};
  const std::vector<LayerSpecs> specs = {parse_spec("paged/f32"), parse_spec("contiguous/f16")};
  const auto predictions = measure::read_specs(*model, passages, {}, specs);
  ASSERT_EQ(predictions.size(), 2u);
  double exact = 0, rounded = 0;
  for (size_t at = 0; at < predictions[0].size(); ++at) {
    exact = std::max(exact, std::abs(predictions[0][at].kl));
    rounded = std::max(rounded, std::abs(predictions[1][at].kl));
  }
  EXPECT_LT(exact, 1e-9);
  EXPECT_GT(rounded, 1e-12);
  EXPECT_LT(rounded, 1e-3);

  memory::Ledger ledger(INT64_MAX, nullptr);
  const auto cache =
      build_cache(parse_spec("contiguous/f32"), cache_shape(model.config(), 1, kTokens), ledger);
  model::CachedModel writer(*model, *cache, 1);
  ids.resize(10);
  const std::vector<int> text = continue_prompts(writer, ids, 20, {}, [] { return false; });
  ASSERT_EQ(text.size(), 20u);
  const std::vector<float> logits = test::run_in_chunks(*model, std::span(text).first(19), 19);
  for (size_t at = 9; at < 19; ++at) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(at * 29);
    EXPECT_EQ(text[at + 1], std::max_element(row, row + 29) - row) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FamilyOverCaches, testing::ValuesIn(one_a_family()),
                         [](const auto& tested) { return tested.param; });

std::string refusal_of(const std::string& name, const std::string& spec, int window) {
  const Loaded model(name, window);
  return test::refusal([&] { model.over(spec, 1); });
}

// Texts five times as long as the window: layers that have one keep a ring of it, whatever the spec, and the others all.
TEST(FamiliesOverCaches, AWindowIsTheLayersOwn) {
  for (const char* name : {"mistral", "qwen2_mixed", "gemma2", "gemma3", "gpt_oss"}) {
    const Loaded model(name, 8);
    const std::vector<float> want = model.with_full_attention();
    for (const char* spec :
         {"contiguous/f32", "paged/f32", "contiguous/f32 + sliding:contiguous/f32/ring(window=model)"}) {
      for (const int64_t step : {1, 7, kTokens}) {
        const double worst = test::largest_difference(model.over(spec, step), want);
        EXPECT_LT(worst, 1e-4) << name << " " << spec << " " << step;
        EXPECT_GT(worst, 1e-9) << name << " " << spec << " " << step;
      }
    }
  }
}

// A cache of layers that are all alike knows of no window.
TEST(FamiliesOverCaches, ACacheThatShowsMoreThanAWindowIsRefused) {
  const auto refused = [](const std::string& name, const std::string& spec, int window) {
    const Loaded model(name, window);
    memory::Ledger ledger(INT64_MAX, nullptr);
    const CacheShape alike = cache_shape(model.config(), 1, kTokens);
    const auto cache = build_cache(parse_spec(spec), alike, ledger);
    return test::refusal([&] { model::CachedModel cached(*model, *cache, 1); });
  };
  EXPECT_EQ(refused("gemma3", "paged/f16", 39),
            "layer 0 (sliding) of the model sees the last 39 tokens, but 'paged/f16' shows it all 40; give "
            "the layer "
            "ring(window=39), or shorten the sequences");
  EXPECT_TRUE(
      contains(refused("qwen2_mixed", "contiguous", 8), "layer 1 (sliding) of the model sees the last 8"));
  EXPECT_TRUE(contains(refused("mistral", "contiguous", 8), "the model sees the last 8 tokens, but"));
}

TEST(FamiliesOverCaches, LinearLayersRunButTheirRowsAreNotReplayed) {
  const TempFolder folder;
  test::family_model("qwen3_5").write(folder.path());
  const std::string path = folder.path().string();
  std::ofstream(folder / "ids.u16") << std::string(64, '\0');
  std::ofstream(folder / "test.toml")
      << "experiment = ['decode', 'quality']\n[workload]\nfamily = 'model'\nmodel = '" << path
      << "'\ntext = '" << path << "/ids.u16'\n[sweep]\n"
      << "variants = ['contiguous']\nseq_len = 16\nbatch = 1\n";
  const config::Config config = experiments::load_config((folder / "test.toml").string(), {});
  const memory::RunContext context("cpu", "auto", 1);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  for (const measure::SweepPoint& point : sweep.points) {
    const bool replays = point.experiment->kind == "decode";
    for (const measure::PlannedCell& cell : point.cells)
      EXPECT_EQ(cell.reason, replays ? "linear layers have states, and only rows are replayed" : "");
  }
}

// Rotary pairs lie side by side in GGUF files of Llama's.
test::TinyHuggingFace interleaved(test::TinyHuggingFace tiny) {
  tiny.config["rope_interleave"] = true;
  const int64_t d = tiny.head_dim(), row = tiny.number("hidden_size");
  for (auto& [name, tensor] : tiny.tensors) {
    if (!contains(name, "q_proj") && !contains(name, "k_proj")) continue;
    const std::vector<double> halves = tensor.values;
    for (int64_t at = 0; at < std::ssize(halves); ++at) {
      const int64_t from = at / row, channel = from % d,
                    to = from - channel + channel % (d / 2) * 2 + channel / (d / 2);
      tensor.values[static_cast<size_t>(to * row + at % row)] = halves[static_cast<size_t>(at)];
    }
  }
  return tiny;
}

TEST(FamiliesOverCaches, TheOrderOfKsChannelsMattersToBlocksOfThemAlone) {
  const test::TinyHuggingFace tiny({{"head_dim", 64}, {"vocab_size", 29}, {"max_position_embeddings", 64}});
  const Loaded halves(tiny), file(interleaved(tiny)), ordered(interleaved(tiny), true);
  EXPECT_NE(model::model_checksum(*ordered), model::model_checksum(*file))
      << "codebooks of one fit the other";
  const std::vector<float> want = halves.with_full_attention();
  // Some caches keep rows raw, before RoPE too, and some choose by pairs.
  for (const char* spec :
       {"contiguous/f32", "paged/f32/full(positions=cache)", "contiguous/f32/tova(budget=12)",
        "contiguous/f32/ring(window=8,sinks=4,positions=cache)",
        "contiguous/f32/expected(budget=12,future=16)"}) {
    const std::vector<float> in_halves = halves.over(spec, 20);
    for (const Loaded* other : {&file, &ordered})
      EXPECT_LT(test::largest_difference(other->over(spec, 20), in_halves), 2e-4) << spec;
    EXPECT_EQ(test::largest_difference(want, in_halves) > 1e-2,
              contains(spec, "budget") || contains(spec, "ring"))
        << spec;
  }
  const auto share = [&](const Loaded& model, const std::string& spec) {
    const auto error = [&](const Loaded& of) { return test::largest_difference(of.over(spec, 1), want); };
    return error(model) / error(halves);
  };
  for (const char* spec : {"contiguous/token(bits=4)", "contiguous/token(bits=4)/full(positions=cache)",
                           "contiguous/kivi(bits=2,group=8,residual=8)", "contiguous/q4_0"}) {
    EXPECT_NEAR(share(ordered, spec), 1, 0.02) << spec;
    EXPECT_EQ(std::abs(share(file, spec) - 1) < 0.02, !contains(spec, "q4_0")) << spec;
  }
}

TEST(FamiliesOverCaches, ACacheRotatesAllLayersAlikeOrNone) {
  const std::string spec = "contiguous/f32/ring(window=40,positions=cache)";
  EXPECT_TRUE(contains(refusal_of("gpt2", spec, 40), "the model's positions are learned, not rotary: "));
  EXPECT_TRUE(
      contains(refusal_of("gemma3", spec, 40), "layer 0 (sliding) of the model has a RoPE of its own"));
  // YaRN's amplitude and speeds, the direction and the part of a head are applied by the cache as they are by the model.
  for (const char* name : {"gpt_oss", "nanochat_saved", "qwen3_5_saved"}) {
    const Loaded model(name);
    const double worst = test::largest_difference(model.over(spec, 1), model.with_full_attention());
    EXPECT_LT(worst, 1e-4) << name;
    EXPECT_GT(worst, 1e-9) << name;
  }
}

}  // namespace
}  // namespace kv
