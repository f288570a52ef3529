// Rows of a synthetic context, and those that are recorded behind them.
#include "harness/workload/recorded_workload.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <set>

namespace kv::workload {
namespace {

const WorkloadShape kShape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 8};

struct Rows {
  std::vector<float> q, k, v;
};

Rows rows_of(const Workload& w, int sequence, int layer, int64_t first, int64_t n) {
  Rows rows{std::vector<float>(static_cast<size_t>(4 * n * 8)),
            std::vector<float>(static_cast<size_t>(2 * n * 8)),
            {}};
  rows.v = rows.k;
  w.read(sequence, layer, first, n, rows.q.data(), rows.k.data(), rows.v.data());
  return rows;
}

TEST(ContextRows, AreTheSameHoweverTheyAreRead) {
  const ContextRows rows(kShape, 9000, 1);
  const Rows all = rows_of(rows, 1, 1, 4000, 300);
  for (int64_t t = 0; t < 300; ++t) {
    const Rows one = rows_of(rows, 1, 1, 4000 + t, 1);
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < 8; ++i)
        ASSERT_EQ(one.k[h * 8 + i], all.k[(h * 300 + static_cast<size_t>(t)) * 8 + i]);
    }
  }
  const ContextRows again(kShape, 9000, 1), other(kShape, 9000, 2);
  EXPECT_EQ(rows_of(again, 0, 0, 0, 50).v, rows_of(rows, 0, 0, 0, 50).v);
  EXPECT_NE(rows_of(other, 0, 0, 0, 50).v, rows_of(rows, 0, 0, 0, 50).v);
}

TEST(ContextRows, DifferBetweenSequencesLayersHeadsAndSides) {
  const ContextRows rows(kShape, 100, 1);
  std::set<std::vector<float>> seen;
  size_t heads = 0;
  for (const int sequence : {0, 1}) {
    for (const int layer : {0, 1}) {
      const Rows here = rows_of(rows, sequence, layer, 7, 1);
      for (const std::vector<float>* side : {&here.q, &here.k, &here.v}) {
        for (auto at = side->begin(); at != side->end(); at += 8, ++heads) seen.insert({at, at + 8});
      }
    }
  }
  EXPECT_EQ(seen.size(), heads);
}

TEST(ContextRows, AreNormal) {
  const ContextRows rows(kShape, 5000, 1);
  const std::vector<float> k = rows_of(rows, 0, 0, 0, 4000).k;
  const double n = static_cast<double>(k.size()), mean = std::accumulate(k.begin(), k.end(), 0.0) / n;
  double squares = 0;
  for (const float x : k) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_LT(std::abs(mean), 0.03);
  EXPECT_NEAR(squares / n, 1.0, 0.03);
}

TEST(ContextRows, GoOnWithWhatWasRecorded) {
  ContextRows rows(kShape, 10, 1);
  std::vector<float> q(4 * 3 * 8), k(2 * 3 * 8), v(k.size());
  std::iota(q.begin(), q.end(), 100.0f);
  std::iota(k.begin(), k.end(), 1000.0f);
  std::iota(v.begin(), v.end(), 2000.0f);
  const StepInput three{.n = 3, .q = q.data(), .k = k.data(), .v = v.data()};
  const StepInput one{.n = 1, .q = q.data(), .k = k.data(), .v = v.data()};
  rows.record(1, three);
  rows.record(1, one);
  const Rows got = rows_of(rows, 0, 1, 9, 5);  // the last synthetic token, and all four
  EXPECT_EQ(std::vector<float>(got.k.begin(), got.k.begin() + 8), [&] {
    const std::vector<float> last = rows_of(rows, 0, 1, 9, 1).k;
    return std::vector<float>(last.begin(), last.begin() + 8);
  }());
  for (size_t h = 0; h < 2; ++h) {
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(got.k[(h * 5 + 2) * 8 + i], k[(h * 3 + 1) * 8 + i]);
      EXPECT_EQ(got.v[(h * 5 + 4) * 8 + i], v[h * 8 + i]);
    }
  }
  // Neither of other layers and sequences, nor what has not come yet.
  const ContextRows none(kShape, 10, 1);
  EXPECT_EQ(rows_of(rows, 0, 0, 10, 4).k, rows_of(none, 0, 0, 10, 4).k);
  EXPECT_EQ(rows_of(rows, 1, 1, 10, 4).k, rows_of(none, 1, 1, 10, 4).k);
  EXPECT_EQ(rows_of(rows, 0, 1, 14, 4).v, rows_of(none, 0, 1, 14, 4).v);
  EXPECT_NE(rows_of(rows, 0, 1, 13, 1).v, rows_of(none, 0, 1, 13, 1).v);
}

}  // namespace
}  // namespace kv::workload
