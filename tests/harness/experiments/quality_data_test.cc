// The numbers of ../shared/data/README.md, through the caches: perplexities, windows, and the table of
// quantised K and V.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "harness/experiments/reading_run.h"
#include "harness/experiments/recall/passages.h"
#include "harness/io/model_files.h"
#include "harness/model/sampling.h"
#include "harness/model/token_ids.h"
#include "kernels/encode.h"
#include "kernels/format/encoding.h"
#include "tests/harness/model/model_support.h"

namespace kv {
namespace {

using test::data_path;

class QualityData : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "too slow in a debug build";
#endif
    if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  }
};

// A model, and the stories that it was trained on, packed.
struct Real {
  model::Model model;
  std::vector<int> stories;
  Real(const std::string& name, size_t count) : model(test::converted(name)) {
    const test::TempFile some(first_stories(count));
    stories =
        model::read_tokens(some.path(), test::converted(name) + "/tokenizer.json", model.config().vocab_size);
  }

  static std::string first_stories(size_t count) {
    const std::string all = test::read_all(data_path("text/tinystories_1000.txt")), mark = "<|endoftext|>";
    size_t end = 0;
    for (size_t i = 0; i < count; ++i) end = all.find(mark, end) + mark.size();
    return all.substr(0, end);
  }
};
Real stories260k(size_t count) { return {"stories260K", count}; }
Real babyllama105(size_t count) { return {"babyllama105", count}; }

double mean_loss(const std::vector<measure::Prediction>& predictions) {
  double sum = 0;
  for (const measure::Prediction& p : predictions) sum += p.loss;
  return sum / static_cast<double>(predictions.size());
}

std::vector<double> perplexities(const model::Model& model, const measure::Passages& p,
                                 const measure::StepSchedule& schedule,
                                 std::initializer_list<const char*> texts) {
  std::vector<LayerSpecs> specs;
  for (const char* text : texts) specs.push_back(parse_spec(text));
  std::vector<double> out;
  for (const auto& predictions : measure::read_specs(model, p, schedule, specs))
    out.push_back(std::exp(mean_loss(predictions)));
  return out;
}

constexpr double kFourDigits = 0.0006;  // for a perplexity below 10

TEST_F(QualityData, PerplexityOfPackedStories) {
  const Real stories = stories260k(200), baby = babyllama105(60);
  const measure::StepSchedule chunked{.prompt = 0, .step = 64};
  EXPECT_NEAR(perplexities(stories.model, experiments::text_windows(stories.stories, 60, 512), chunked,
                           {"contiguous"})[0],
              5.260, kFourDigits);
  EXPECT_NEAR(
      perplexities(baby.model, experiments::text_windows(baby.stories, 80, 256), chunked, {"contiguous"})[0],
      2.112, kFourDigits);
}

TEST_F(QualityData, WindowsOnBooks) {
  const model::Model model(KVLAB_SOURCE_DIR "/configs/models/kvlab-recall-1m");
  const auto grimm = model::read_token_file(data_path("text/grimms_fairy_tales.tok512.u16"), 512),
             alice = model::read_token_file(data_path("text/alice_in_wonderland.tok512.u16"), 512);
  const auto read = [&](std::span<const int> ids, const measure::StepSchedule& schedule) {
    return perplexities(model, experiments::text_windows(ids, 8, 1024), schedule,
                        {"contiguous", "contiguous/ring(window=256)", "contiguous/ring(window=64)"});
  };
  const std::vector<double> from_grimm = read(std::span(grimm).subspan(5000), {}),
                            from_alice = read(alice, {.prompt = 0, .step = 32});
  const std::vector<double> want_grimm = {10.401, 10.416, 10.589}, want_alice = {9.150, 9.148, 9.309};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(from_grimm[i], want_grimm[i], kFourDigits);
    EXPECT_NEAR(from_alice[i], want_alice[i], kFourDigits);
  }
}

TEST_F(QualityData, Stories260kTellsTheReferenceStory) {
  const std::string folder = test::converted("stories260K");
  const model::Model model(folder);
  for (const char* spec : {"contiguous", "paged(order=shuffled)", "contiguous/f16"}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), cache_shape(model.config(), 1, 201), ledger);
    model::CachedModel writer(model, *cache, 1);
    const std::vector<int> bos = {1};
    const std::vector<int> ids =
        model::continue_prompts(writer, bos, 201, {.temperature = 0}, [] { return false; });
    // llama2.c, test_all.py: the text of 200 steps at temperature 0.
    EXPECT_EQ(
        io::texts_of_tokens(folder + "/tokenizer.json", ids, 201, 0)[0].rest,
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One "
        "day, "
        "she saw a big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, "
        "let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I want to play with "
        "your "
        "ball, but I can't find it.\"\nLily was sad and didn't know what to do. She said, \"I'm sorry, Lily. "
        "I "
        "didn't know what to do.\"\nLily didn't want to help her mom, so she")
        << spec;
  }
}

// A way to store rows [n, head_dim] that gives them back changed.
using Storage = std::function<std::vector<float>(const float* rows, int64_t n, int head_dim)>;

Storage codec(const Encoding& encoding) {
  return [=](const float* rows, int64_t n, int head_dim) {
    std::vector<std::byte> data(static_cast<size_t>(unit_data_bytes(encoding, head_dim))),
        meta(static_cast<size_t>(unit_meta_bytes(encoding, head_dim)));
    std::vector<float> out(static_cast<size_t>(n * head_dim));
    for (int64_t first = 0; first < n; first += encoding.group) {
      encode_unit(encoding, head_dim, rows + first * head_dim, data.data(), meta.data());
      for (int row = 0; row < encoding.group; ++row)
        decode_row(encoding, head_dim, data.data(), meta.data(), row, out.data() + (first + row) * head_dim);
    }
    return out;
  };
}
Storage token_codec(int bits) {
  return codec({.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .group = 1, .affine = true});
}
Storage channel_codec(int bits) {
  return codec({.format = Format::kChannel, .bits = static_cast<uint8_t>(bits), .group = 32, .affine = true});
}

// The README's quantiser in so many words: `count` values, `stride` apart, under one f32 scale from their
// least to their largest.
void quantise(float* values, int64_t count, int64_t stride, int bits) {
  float low = values[0], high = values[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, values[i * stride]);
    high = std::max(high, values[i * stride]);
  }
  const float scale = (high - low) / static_cast<float>((1 << bits) - 1);
  if (scale == 0) return;
  for (int64_t i = 0; i < count; ++i)
    values[i * stride] = low + scale * std::nearbyint((values[i * stride] - low) / scale);
}
Storage per_token(int bits) {
  return [=](const float* rows, int64_t n, int head_dim) {
    std::vector<float> out(rows, rows + n * head_dim);
    for (int64_t row = 0; row < n; ++row) quantise(out.data() + row * head_dim, head_dim, 1, bits);
    return out;
  };
}
Storage per_channel(int bits) {
  return [=](const float* rows, int64_t n, int head_dim) {
    std::vector<float> out(rows, rows + n * head_dim);
    for (int64_t row = 0; row < n; row += 32) {
      for (int i = 0; i < head_dim; ++i) quantise(out.data() + row * head_dim + i, 32, head_dim, bits);
    }
    return out;
  };
}

// The README's protocol: a window as one step, in which every query sees all rows quantised, its own and
// those of its group included. A cache that decodes cannot do that: the rows of an unfinished group are raw.
double quantised_perplexity(const model::Model& model, const measure::Passages& p, const Storage& k_storage,
                            const Storage& v_storage) {
  const int head_dim = model.config().head_dim();
  double loss = 0;
  for (int s = 0; s < p.sequences; ++s) {
    const model::Model::Attention full = model::full_attention(model.config());
    const auto attention = [&](int layer, int64_t n, const float* q, const float* k, const float* v,
                               float* out) {
      const int64_t rows = model.config().kv_heads * n;
      full(layer, n, q, k_storage(k, rows, head_dim).data(), v_storage(v, rows, head_dim).data(), out);
    };
    std::vector<int> ids;
    for (int64_t t = 0; t < p.length; ++t) ids.push_back(p.id(s, t));
    const std::vector<float> logits = model.forward(ids, 0, attention);
    const size_t vocab = logits.size() / ids.size();
    for (int64_t t = 0; t < p.length; ++t) {
      const auto row = std::span(logits).subspan(static_cast<size_t>(t) * vocab, vocab);
      loss -= measure::distribution_of(row).log_p[static_cast<size_t>(p.id(s, t + 1))];
    }
  }
  return std::exp(loss / static_cast<double>(p.sequences * p.length));
}

struct Quantised {
  int bits;
  double token, channel;  // perplexity with K so; V is always per token
};

// Rounding is amplified where much is lost; the codecs' scales of channels are f16, which moves more.
void expect_table(const model::Model& model, const measure::Passages& p, double f16,
                  const std::vector<Quantised>& table) {
  const Storage half = codec({.format = Format::kF16, .bits = 16, .group = 1, .affine = false});
  EXPECT_NEAR(quantised_perplexity(model, p, half, half), f16, kFourDigits);
  for (const auto& [bits, token, channel] : table) {
    SCOPED_TRACE(bits);
    const Storage v = per_token(bits), v_codec = token_codec(bits);
    EXPECT_NEAR(quantised_perplexity(model, p, per_token(bits), v), token, kFourDigits + 0.002 * token);
    EXPECT_NEAR(quantised_perplexity(model, p, per_channel(bits), v), channel, kFourDigits + 0.002 * channel);
    EXPECT_NEAR(quantised_perplexity(model, p, token_codec(bits), v_codec), token,
                kFourDigits + 0.01 * token);
    EXPECT_NEAR(quantised_perplexity(model, p, channel_codec(bits), v_codec), channel,
                kFourDigits + 0.02 * channel);
  }
}

TEST_F(QualityData, TableOfQuantisedKAndVOfStories260k) {
  const Real real = stories260k(30);
  expect_table(real.model, experiments::text_windows(real.stories, 12, 512), 3.874,
               {{8, 3.875, 3.874}, {4, 5.567, 4.023}, {3, 14.40, 4.765}, {2, 58.60, 12.45}});
}

TEST_F(QualityData, TableOfQuantisedKAndVOfBabyllama105) {
  const Real real = babyllama105(30);
  expect_table(real.model, experiments::text_windows(real.stories, 24, 256), 2.110,
               {{8, 2.110, 2.110}, {4, 2.184, 2.144}, {3, 2.608, 2.270}, {2, 6.104, 3.554}});
}

// A cache encodes tokens one by one as the table does; groups of channels it encodes when they are full, so
// that up to 31 rows are still raw, and it does better.
TEST_F(QualityData, CachesQuantiseAsTheTableDoes) {
  const Real real = stories260k(30);
  const measure::Passages p = experiments::text_windows(real.stories, 12, 512);
  const std::vector<double> got =
      perplexities(real.model, p, {},
                   {"contiguous/f16", "contiguous/token(bits=4)", "contiguous/token(bits=3)",
                    "contiguous/kivi(bits=3,residual=0)", "contiguous/kivi(bits=2,residual=0)"});
  EXPECT_NEAR(got[0], 3.874, kFourDigits);
  EXPECT_NEAR(got[1], 5.567, 0.06);
  EXPECT_NEAR(got[2], 14.40, 0.15);
  EXPECT_LT(got[3], 4.765);
  EXPECT_GT(got[3], 3.88);
  EXPECT_LT(got[4], 12.45);
  EXPECT_GT(got[4], 4.2);
}

TEST_F(QualityData, ScalesPerChannelSpareKAndNotByChance) {
  const Real real = stories260k(30);
  const measure::Passages p = experiments::text_windows(real.stories, 4, 512);
  const std::vector<LayerSpecs> specs = {
      parse_spec("contiguous/kivi(k_bits=3,v_bits=16,residual=0,k_axis=token)"),
      parse_spec("contiguous/kivi(k_bits=3,v_bits=16,residual=0)")};
  std::vector<std::vector<measure::Prediction>> got = measure::read_specs(real.model, p, {}, specs);
  for (size_t i = 0; i < got[0].size(); ++i) got[0][i].loss_change = got[0][i].loss - got[1][i].loss;
  const measure::Mean worse = measure::summarise(got[0], p.length, 0, p.length).loss_change;
  EXPECT_GT(worse.interval.low, 0.1);
  EXPECT_LT(worse.interval.high, 2);
}

}  // namespace
}  // namespace kv
