// A gated DeltaNet layer between its projections, against a plain FP64 transcription; and a model with such layers, with
// and without a cache.
#include "harness/model/linear_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/random_weights.h"
#include "harness/model/uncached_model.h"
#include "harness/verify/state_check.h"
#include "harness/verify/verify.h"
#include "tests/harness/model/model_support.h"
#include "tests/harness/model/tiny_geometry.h"
#include "variants/cache/spec.h"

namespace kv {
namespace {

constexpr LinearShape kShape{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 6};
constexpr int kKeys = 2 * 8, kValues = 4 * 6, kChannels = 2 * kKeys + kValues, kKernel = 4;
constexpr int kWidth = kChannels + kValues + 2 * 4;

std::vector<float> normal(std::mt19937& random, size_t n) {
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  for (float& x : values) x = distribution(random);
  return values;
}

model::LayerWeights weights_of(std::mt19937& random) {
  model::LayerWeights w;
  w.convolution = normal(random, kKernel * kChannels);
  w.decay_rate = {0.1f, 0.3f, 0.7f, 1.5f};
  w.decay_bias = normal(random, 4);
  w.state_norm = normal(random, 6);
  return w;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One sequence from its first token on, as the equations have it: [n, kValues].
std::vector<double> transcription(const model::LayerWeights& w, const std::vector<float>& projected, int n,
                                  double epsilon) {
  const auto at = [&](int t, int c) { return double{projected[static_cast<size_t>(t * kWidth + c)]}; };
  const auto mixed = [&](int t, int c) {
    double sum = 0;
    for (int back = 0; back < kKernel && back <= t; ++back)
      sum +=
          double{w.convolution[static_cast<size_t>((kKernel - 1 - back) * kChannels + c)]} * at(t - back, c);
    return sum * sigmoid(sum);
  };
  std::vector<double> all(static_cast<size_t>(n * kValues));
  for (int head = 0; head < 4; ++head) {
    double state[8][6] = {};
    for (int t = 0; t < n; ++t) {
      double q[8], k[8], v[6], q2 = 1e-6, k2 = 1e-6;
      for (int i = 0; i < 8; ++i) {
        q[i] = mixed(t, head / 2 * 8 + i);
        k[i] = mixed(t, kKeys + head / 2 * 8 + i);
        q2 += q[i] * q[i];
        k2 += k[i] * k[i];
      }
      for (int j = 0; j < 6; ++j) v[j] = mixed(t, 2 * kKeys + head * 6 + j);
      const double beta = sigmoid(at(t, kChannels + kValues + head)),
                   shifted = at(t, kChannels + kValues + 4 + head) +
                             double{w.decay_bias[static_cast<size_t>(head)]},
                   alpha = std::exp(-double{w.decay_rate[static_cast<size_t>(head)]} *
                                    std::log1p(std::exp(shifted)));
      double out[6], squares = 0;
      for (int j = 0; j < 6; ++j) {
        double seen = 0;
        for (int i = 0; i < 8; ++i) seen += alpha * state[i][j] * k[i] / std::sqrt(k2);
        out[j] = 0;
        for (int i = 0; i < 8; ++i) {
          state[i][j] = alpha * state[i][j] + beta * k[i] / std::sqrt(k2) * (v[j] - seen);
          out[j] += state[i][j] * q[i] / std::sqrt(q2) / std::sqrt(8.0);
        }
        squares += out[j] * out[j];
      }
      for (int j = 0; j < 6; ++j) {
        const double gate = at(t, kChannels + head * 6 + j);
        all[static_cast<size_t>(t * kValues + head * 6 + j)] = out[j] / std::sqrt(squares / 6 + epsilon) *
                                                               double{w.state_norm[static_cast<size_t>(j)]} *
                                                               gate * sigmoid(gate);
      }
    }
  }
  return all;
}

// Two sequences of 9 tokens, in steps of 5, 1, 2 and 1.
TEST(LinearRows, AreThoseOfTheEquations) {
  std::mt19937 random(3);
  const model::LayerWeights w = weights_of(random);
  const std::vector<std::vector<float>> projected{normal(random, 9 * kWidth), normal(random, 9 * kWidth)};
  memory::Ledger ledger;
  CacheShape shape;
  shape.layers = 1;
  shape.max_tokens = 9;
  shape.max_sequences = 2;
  const auto cache = build_linear_cache(kShape, shape, ledger);
  const std::vector<SequenceId> ids{cache->add_sequence(), cache->add_sequence()};
  std::vector<model::ConvolutionWindow> windows(2);
  model::LinearRows rows;
  verify::StateCheck check(kShape, 1);
  std::vector<std::vector<double>> got(2);
  int at = 0;
  for (const int n : {5, 1, 2, 1}) {
    std::vector<float> step, out(static_cast<size_t>(2 * n * kValues));
    for (const auto& sequence : projected)
      step.insert(step.end(), sequence.begin() + at * kWidth, sequence.begin() + (at + n) * kWidth);
    const std::span<StepInput> inputs = rows.lay_out(kShape, w, ids, n, step.data(), windows);
    cache->step(0, inputs);
    check.record(0, inputs.front());
    rows.copy_out(kShape, w, 1e-5f, step.data(), out.data());
    for (size_t s = 0; s < 2; ++s) {
      const auto from = out.begin() + static_cast<int64_t>(s) * n * kValues;
      got[s].insert(got[s].end(), from, from + n * kValues);
    }
    at += n;
  }
  for (size_t s = 0; s < 2; ++s) {
    const std::vector<double> want = transcription(w, projected[s], 9, 1e-5);
    ASSERT_EQ(got[s].size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[s][i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
  }
  EXPECT_LT(check.error().value(), 1e-6);
}

// Recorded values are compared: another output, and other inputs.
TEST(StateCheck, SeesWhatDiffers) {
  std::mt19937 random(4);
  const std::vector<float> q = normal(random, 2 * 8), k = normal(random, 2 * 8), v = normal(random, 4 * 6),
                           alpha(4, 0.5f), beta(4, 0.25f);
  std::vector<float> out(4 * 6);
  memory::Ledger ledger;
  CacheShape shape;
  shape.layers = 1;
  shape.max_tokens = 4;
  shape.max_sequences = 1;
  const auto cache = build_linear_cache(kShape, shape, ledger);
  StepInput in{.sequence = cache->add_sequence(), .q = q.data(), .k = k.data(), .v = v.data()};
  in.out = out.data();
  in.alpha = alpha.data();
  in.beta = beta.data();
  cache->step(0, {&in, 1});
  verify::StateCheck right(kShape, 1), wrong(kShape, 1), none(kShape, 1);
  right.record(0, in);
  EXPECT_LT(right.error().value(), verify::StateCheck::kBound);
  out[7] += 1e-3f;
  wrong.record(0, in);
  EXPECT_GT(wrong.error().value(), verify::StateCheck::kBound);
  EXPECT_FALSE(none.error().has_value());
  verify::Errors errors;
  errors.state_rel_l2 = wrong.error();
  EXPECT_TRUE(test::contains(errors.failure(), "a linear layer's state differs")) << errors.failure();
}

// Two sequences that become four on the way.
TEST(LinearRows, SayTheSameWithAndWithoutACache) {
  const test::TempFile file(test::tiny_hybrid().dump());
  const model::Model model(
      model::random_weights(config::read_geometry(file.path()), model::WeightMatrix::Type::kF32, 1, 1 << 30));
  memory::Ledger with, without;
  const auto cache = build_cache(parse_spec("contiguous"), cache_shape(model.config(), 4, 12), with);
  model::CachedModel cached(model, *cache, 2);
  model::UncachedModel uncached(model, without, 2, 12);
  std::mt19937 random(5);
  for (const int n : {4, 1, 3, 1, 1}) {
    if (cached.tokens() == 8) {
      cached.fork(2);
      uncached.fork(2);
    }
    std::vector<int> ids(static_cast<size_t>(n * cached.sequence_count()));
    for (int& id : ids) id = static_cast<int>(random() % 100);
    const std::vector<float> want = cached.step(ids, n), got = uncached.step(ids, n);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-4f * (1 + std::abs(want[i])))
          << "after " << cached.tokens() << " tokens";
  }
  EXPECT_EQ(without.payload().current_bytes, 0);
  EXPECT_THROW(model.forward(std::vector<int>{1}, 0, model::full_attention(model.config())),
               std::logic_error);
}

}  // namespace
}  // namespace kv
