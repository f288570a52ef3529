// Streams past the trained context: the re-computed window, and what caches say at positions the model never
// had.
#include "harness/experiments/stream/recomputed_losses.h"

#include <cmath>

#include "harness/measure/prediction.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "tests/harness/model/tiny_hugging_face.h"
#include "variants/cache/cache.h"

namespace kv {
namespace {

using test::TinyModel;

class Stream : public testing::Test {
 protected:
  Stream() {
    std::mt19937 bits(3);
    for (int i = 0; i <= 100; ++i) ids_.push_back(static_cast<int>(bits() % 40));
  }

  // The loss of the token after ids[last], if the model sees ids[first … last] from position 0 on.
  double loss_alone(int64_t first, int64_t last) const {
    const auto n = static_cast<size_t>(last - first + 1);
    const std::vector<float> logits = model_.forward(std::span(ids_).subspan(static_cast<size_t>(first), n),
                                                     0, model::full_attention(model_.config()));
    const measure::Distribution d = measure::distribution_of(std::span(logits).subspan((n - 1) * 40));
    return -d.log_p[static_cast<size_t>(ids_[static_cast<size_t>(last + 1)])];
  }

  // The losses of all 100 predictions, read with a cache `step` tokens at a time.
  std::vector<double> cached_losses(const std::string& spec, int64_t step) const {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), cache_shape(model_.config(), 1, 100), ledger);
    model::CachedModel decoder(model_, *cache, 1, model::Rotary::kBeyond);
    std::vector<double> losses;
    for (int64_t first = 0; first < 100; first += step) {
      const int64_t n = std::min<int64_t>(step, 100 - first);
      const auto logits =
          decoder.step(std::span(ids_).subspan(static_cast<size_t>(first), static_cast<size_t>(n)), n);
      for (int64_t i = 0; i < n; ++i) {
        const measure::Distribution d =
            measure::distribution_of(std::span(logits).subspan(static_cast<size_t>(i) * 40, 40));
        losses.push_back(-d.log_p[static_cast<size_t>(ids_[static_cast<size_t>(first + i + 1)])]);
      }
    }
    return losses;
  }

  static double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double worst = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    return worst;
  }

  // One layer: what a row holds then depends on its own token alone, so a window that a cache keeps and one
  // that is read anew say the same.
  const TinyModel file_{{.dim = 32, .layers = 1, .vocab = 40, .seq_len = 30}};
  const model::Model model_{file_.path()};
  std::vector<int> ids_;
};

TEST_F(Stream, ARecomputedWindowSeesItsTokensAlone) {
  for (const auto& [window, stride] : {std::pair<int64_t, int64_t>{16, 1}, {16, 5}, {16, 16}, {7, 3}}) {
    const std::vector<double> losses = experiments::recomputed_losses(model_, ids_, window, stride);
    ASSERT_EQ(losses.size(), 100u);
    for (int64_t t = 0; t < 100; ++t) {
      const int64_t last_of_stride = std::min<int64_t>(t / stride * stride + stride, 100) - 1;
      const int64_t first = std::max<int64_t>(0, last_of_stride + 1 - window);
      ASSERT_NEAR(losses[static_cast<size_t>(t)], loss_alone(first, t), 1e-5)
          << window << " " << stride << " " << t;
    }
  }
}

TEST_F(Stream, ARecomputationTellsEveryStrideAndCanBeStopped) {
  std::vector<int64_t> told;
  const auto tell = [&](int64_t tokens) {
    told.push_back(tokens);
    return told.size() < 4;
  };
  EXPECT_EQ(experiments::recomputed_losses(model_, ids_, 16, 16, tell).size(), 64u);
  EXPECT_EQ(told, (std::vector<int64_t>{16, 16, 16, 16}));
}

TEST_F(Stream, OfOneLayerACachedWindowIsTheRecomputedOne) {
  const std::vector<double> want = experiments::recomputed_losses(model_, ids_, 16, 1);
  for (const int64_t step : {1, 9}) {
    EXPECT_LT(worst_difference(cached_losses("contiguous/ring(window=16)", step), want), 1e-4);
    EXPECT_LT(worst_difference(cached_losses("contiguous/ring(window=16,positions=cache)", step), want),
              1e-4);
  }
}

// StreamingLLM by its definition: the sinks and the window, read anew as one text.
TEST_F(Stream, SinksAtPlacesInTheCacheAreThoseTokensReadAnew) {
  const std::vector<double> got = cached_losses("contiguous/ring(window=12,sinks=4,positions=cache)", 1);
  for (int64_t t = 20; t < 100; ++t) {
    std::vector<int> text(ids_.begin(), ids_.begin() + 4);
    text.insert(text.end(), ids_.begin() + t - 11, ids_.begin() + t + 1);
    const std::vector<float> logits = model_.forward(text, 0, model::full_attention(model_.config()));
    const measure::Distribution d =
        measure::distribution_of(std::span(logits).subspan((text.size() - 1) * 40));
    ASSERT_NEAR(got[static_cast<size_t>(t)], -d.log_p[static_cast<size_t>(ids_[static_cast<size_t>(t + 1)])],
                1e-4);
  }
  EXPECT_GT(worst_difference(cached_losses("contiguous/ring(window=12,sinks=4)", 1), got), 1e-2);
}

TEST_F(Stream, PlacesInTheCacheKnowNoTrainedContext) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous/ring(window=8,positions=cache)"),
                                 cache_shape(model_.config(), 1, 100), ledger);
  model::CachedModel turns(model_, *cache, 1);
  EXPECT_NO_THROW(turns.step(std::span(ids_).first(60), 60));
  const auto dense = build_cache(parse_spec("contiguous"), cache_shape(model_.config(), 1, 100), ledger);
  model::CachedModel keeps(model_, *dense, 1);
  EXPECT_THROW(keeps.step(std::span(ids_).first(60), 60), std::invalid_argument)
      << "30 positions were trained";
}

}  // namespace
}  // namespace kv
