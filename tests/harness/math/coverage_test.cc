// The coverage of times' intervals, by simulation: 10,000 runs of two cells that take equally long, for each kind of
// noise and number of repetitions. Its figures are in tests/README.md; `coverage_test` prints them.
//
// A repetition's steps share its level, and each carries over part of the disturbance of the one before. A drift over
// the whole run meets both cells, since their repetitions come in random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "harness/choose/choice.h"
#include "harness/math/medians.h"

namespace kv {
namespace {

constexpr int kRuns = 10000, kSteps = 16;

struct Noise {
  const char* name;
  double level;     // standard deviation of a repetition's level
  double step;      // a step's noise, 0.7 of which it hands on
  double drift;     // standard deviation of the change over the whole run
  double outliers;  // share of steps that take half as long again and more; of repetitions, half of that
};

// Logarithms of the medians of both cells' repetitions.
class Simulation {
 public:
  Simulation(const Noise& noise, int repetitions, uint32_t seed)
      : noise_(noise), repetitions_(repetitions), engine_(seed) {}

  void run(std::vector<double>& a, std::vector<double>& b) {
    const double drift = noise_.drift * normal_(engine_);
    std::vector<int> order(static_cast<size_t>(2 * repetitions_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine_);
    a.clear();
    b.clear();
    for (size_t at = 0; at < order.size(); ++at) {
      const double when = static_cast<double>(at) / static_cast<double>(order.size() - 1) - 0.5;
      (order[at] % 2 ? a : b).push_back(repetition(drift * when));
    }
  }

 private:
  double repetition(double level) {
    level += noise_.level * normal_(engine_);
    if (uniform_(engine_) < noise_.outliers / 2) level += 0.2 * exponential_(engine_);
    double before = normal_(engine_);
    std::vector<double> steps;
    for (int i = 0; i < kSteps; ++i) {
      before = 0.7 * before + std::sqrt(1 - 0.49) * normal_(engine_);
      double step = level + noise_.step * before;
      if (uniform_(engine_) < noise_.outliers) step += 0.4 + 0.5 * exponential_(engine_);
      steps.push_back(std::exp(step));
    }
    return math::median(steps);
  }

  Noise noise_;
  int repetitions_;
  std::mt19937 engine_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  std::exponential_distribution<double> exponential_;
};

constexpr Noise kNoises[] = {{"level and steps", 0.02, 0.02, 0, 0},
                             {"steps alone", 0, 0.02, 0, 0},
                             {"with drift", 0.02, 0.02, 0.05, 0},
                             {"with outliers", 0.02, 0.02, 0, 0.03},
                             {"with both", 0.02, 0.02, 0.05, 0.03}};

// The median of a repetition's median, over many of them without drift, which has none on average.
double true_median(Noise noise) {
  noise.drift = 0;
  Simulation simulation(noise, 9, 1);
  std::vector<double> a, b, all;
  for (int i = 0; i < kRuns; ++i) {
    simulation.run(a, b);
    all.insert(all.end(), a.begin(), a.end());
  }
  return math::median(all);
}

TEST(Coverage, OfMediansAndRatios) {
  double medians = 0, ratios = 0;
  int simulations = 0;
  for (const Noise& noise : kNoises) {
    const double truth = true_median(noise);
    for (const int repetitions : {5, 7, 9}) {
      Simulation simulation(noise, repetitions, 2);
      std::vector<double> a, b;
      int of_median = 0, of_ratio = 0;
      for (int i = 0; i < kRuns; ++i) {
        simulation.run(a, b);
        of_median += math::median_interval(a).contains(truth);
        of_ratio += math::ratio_of_medians(a, b).interval().contains(1);
      }
      const double median = 100.0 * of_median / kRuns, ratio = 100.0 * of_ratio / kRuns;
      std::printf("%-16s %d repetitions: median %.1f %%, ratio %.1f %%\n", noise.name, repetitions, median,
                  ratio);
      for (const double covered : {median, ratio}) {
        EXPECT_GE(covered, 94.0) << noise.name << ", " << repetitions;
        EXPECT_LE(covered, 97.0) << noise.name << ", " << repetitions;
      }
      medians += median;
      ratios += ratio;
      ++simulations;
    }
  }
  EXPECT_NEAR(medians / simulations, 95, 1);
  EXPECT_NEAR(ratios / simulations, 95, 1);
}

// A claim's measurement over 7 seeds: by how much one variant's error exceeds another's on the same data.
TEST(Coverage, OfAStatisticOverSeeds) {
  std::mt19937 engine(4);
  std::lognormal_distribution<double> data(0, 0.3), variant(0, 0.1);
  for (const int seeds : {5, 7, 9}) {
    int covered = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<std::vector<double>> sides(2, std::vector<double>(static_cast<size_t>(seeds)));
      for (size_t i = 0; i < sides[0].size(); ++i) {
        const double level = data(engine);
        sides[0][i] = 2 * level * variant(engine);
        sides[1][i] = level * variant(engine);
      }
      covered += math::estimate(sides, [](std::span<const double> s) {
                   return s[0] / s[1] - 1;
                 }).interval.contains(1);
    }
    std::printf("a statistic over %d seeds: %.1f %%\n", seeds, 100.0 * covered / kRuns);
    EXPECT_NEAR(100.0 * covered / kRuns, 95, 1.5) << seeds;
  }
}

// The mean error of a batch's sequences, which are spread as those of codecs and of evictions are.
TEST(Coverage, OfMeansOverSequences) {
  std::mt19937 engine(6);
  for (const double spread : {0.05, 0.3}) {
    std::lognormal_distribution<double> errors(0, spread);
    const double truth = std::exp(spread * spread / 2);
    for (const int sequences : {5, 8}) {
      int covered = 0;
      std::vector<double> values(static_cast<size_t>(sequences));
      for (int run = 0; run < kRuns; ++run) {
        for (double& value : values) value = errors(engine);
        covered += math::interval_of_mean(values).contains(truth);
      }
      std::printf("a mean over %d sequences, spread %.2f: %.1f %%\n", sequences, spread,
                  100.0 * covered / kRuns);
      EXPECT_NEAR(100.0 * covered / kRuns, 95, 2) << sequences << ", " << spread;
    }
  }
}

// The bounds that `kvlab choose` promises of six caches together, of stretches that are drawn for each cache by itself: normal, and as
// skewed as a lognormal. Only the first are covered as promised.
TEST(Coverage, OfSixBoundsTogether) {
  constexpr int kCaches = 6, kChoices = 2000;
  std::mt19937 engine(7);
  std::normal_distribution<double> normal(1, 1);
  std::lognormal_distribution<double> lognormal(0, 0.5);
  const auto covered = [&](int stretches, double truth, const auto& draw) {
    int together = 0;
    for (int run = 0; run < kChoices; ++run) {
      bool all = true;
      for (int cache = 0; cache < kCaches; ++cache) {
        std::vector<math::Stretch> drawn;
        for (int i = 0; i < stretches; ++i) drawn.push_back({64 * draw(), 64});
        const choose::ExtraLoss loss{math::mean_of(drawn), math::standard_error(drawn), stretches - 1.0};
        all = all && choose::upper_bound(loss, kCaches) >= truth;
      }
      together += all;
    }
    return 100.0 * together / kChoices;
  };
  for (const auto& [stretches, least] :
       {std::pair{choose::kFewestStretches, 79.0}, {32, 83.0}, {128, 88.0}}) {
    const double of_normal = covered(stretches, 1, [&] { return normal(engine); }),
                 of_skewed = covered(stretches, std::exp(0.125), [&] { return lognormal(engine); });
    std::printf("six bounds of %d stretches: %.1f %%, skewed %.1f %%\n", stretches, of_normal, of_skewed);
    EXPECT_NEAR(of_normal, 95.2, 1)
        << stretches;  // 1 - 6 * 0.05 / 6 where they are dependent, 0.9917^6 where not
    EXPECT_GE(of_skewed, least) << stretches;
    EXPECT_LT(of_skewed, 95) << stretches << ": then the documents can promise more";
  }
}

// 25 variants that take as long as their baseline: in how many runs is any of them called faster or slower?
TEST(Coverage, OfAllVerdictsOfASweepPoint) {
  for (const int repetitions : {5, 9}) {
    int wrong = 0, alone = 0, comparisons = 0;
    constexpr int kPoints = 1000, kVariants = 25;
    std::mt19937 engine(3);
    std::lognormal_distribution<double> noise(0, 0.03);
    const auto times = [&] {
      std::vector<double> t(static_cast<size_t>(repetitions));
      for (double& x : t) x = noise(engine);
      return t;
    };
    for (int point = 0; point < kPoints; ++point) {
      const std::vector<double> baseline = times();
      std::vector<math::Ratio> found;
      std::vector<double> p;
      for (int v = 0; v < kVariants; ++v) {
        found.push_back(math::ratio_of_medians(times(), baseline));
        p.push_back(found.back().p_value());
        alone += math::compare(found.back().interval()) != math::Verdict::kAmbiguous;
        ++comparisons;
      }
      const std::vector<double> confidences = math::holm_confidences(p);
      bool any = false;
      for (size_t v = 0; v < found.size(); ++v)
        any |= math::compare(found[v].interval(confidences[v])) != math::Verdict::kAmbiguous;
      wrong += any;
    }
    std::printf(
        "%d repetitions, 25 variants: a false verdict in %.1f %% of sweep points; each alone %.1f %%\n",
        repetitions, 100.0 * wrong / kPoints, 100.0 * alone / comparisons);
    EXPECT_LE(wrong, kPoints * 0.055);
    EXPECT_GE(wrong, kPoints * 0.003);
  }
}

}  // namespace
}  // namespace kv
