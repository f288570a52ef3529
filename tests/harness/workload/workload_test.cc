// Each synthetic family must have the property it is named after, gaussian none of them, all within two-sided
// bounds; any read must give the same bits; and a dump must be whole.
#include "harness/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/io/safetensors.h"
#include "harness/verify/reference/attention.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv::workload_test {
namespace {

constexpr workload::WorkloadShape kShape = {.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 64};
constexpr int kDim = kShape.head_dim;
constexpr int64_t kTokens = 4096;

struct Tensors {
  std::vector<float> q, k, v;
};

Tensors read(const workload::Workload& workload, int sequence, int layer, int64_t first, int64_t n) {
  const workload::WorkloadShape& s = workload.shape();
  const size_t row = static_cast<size_t>(n * s.head_dim);
  Tensors t{std::vector<float>(row * static_cast<size_t>(s.q_heads)),
            std::vector<float>(row * static_cast<size_t>(s.kv_heads)),
            std::vector<float>(row * static_cast<size_t>(s.kv_heads))};
  workload.read(sequence, layer, first, n, t.q.data(), t.k.data(), t.v.data());
  return t;
}

// Attention of one query head of layer 1 over all tokens up to the query's own.
class Attention {
 public:
  Attention(const std::string& family, uint64_t seed, int head)
      : head_(head), tensors_(read(*workload::make_synthetic(family, kShape, seed), 0, 1, 0, kTokens)) {}

  Eigen::VectorXd probabilities(int64_t token) const {
    const auto rows = [&](const std::vector<float>& x, int head, int64_t first, int64_t n) {
      return std::span(x).subspan(static_cast<size_t>((head * kTokens + first) * kDim),
                                  static_cast<size_t>(n * kDim));
    };
    return reference::attend(rows(tensors_.q, head_, token, 1), rows(tensors_.k, head_ / 2, 0, token + 1),
                             rows(tensors_.v, head_ / 2, 0, token + 1), token + 1)
        .probabilities;
  }
  const Tensors& tensors() const { return tensors_; }

 private:
  int head_;
  Tensors tensors_;
};

// Statistics of attention over the queries 512, 575, … of every head and two seeds.
struct Portrait {
  double sinks = 0;        // mean mass of tokens 0-3
  double least_sinks = 1;  // over all queries
  double local = 0;        // mean mass of the nearest 64 tokens
  // The share of the first 2048 tokens' attention weights in the later queries that goes to the 5 % of them that the
  // earlier queries liked best.
  double persistent = 0;
};

Portrait portray(const std::string& family) {
  Portrait mean;
  int runs = 0;
  for (uint64_t seed : {1, 2}) {
    for (int head = 0; head < kShape.q_heads; ++head, ++runs) {
      const Attention attention(family, seed, head);
      constexpr int64_t kHalf = kTokens / 2;
      Eigen::VectorXd early = Eigen::VectorXd::Zero(kHalf), late = early;
      int queries = 0;
      double sinks = 0, local = 0;
      for (int64_t t = 511; t < kTokens; t += 64, ++queries) {
        const Eigen::VectorXd p = attention.probabilities(t);
        sinks += p.head(4).sum();
        local += p.tail(64).sum();
        mean.least_sinks = std::min(mean.least_sinks, p.head(4).sum());
        if (t < kHalf)
          early.head(t + 1) += p;
        else
          late += p.head(kHalf);
      }
      std::vector<Eigen::Index> order(kHalf);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](auto a, auto b) { return early[a] > early[b]; });
      double kept = 0;
      for (int i = 0; i < kHalf / 20; ++i) kept += late[order[static_cast<size_t>(i)]];
      mean.sinks += sinks / queries;
      mean.local += local / queries;
      mean.persistent += kept / late.sum();
    }
  }
  mean.sinks /= runs;
  mean.local /= runs;
  mean.persistent /= runs;
  return mean;
}

// RMS of every channel of one kv head's K.
std::vector<double> channel_rms(const std::vector<float>& k, int head, int64_t n) {
  std::vector<double> rms(kDim);
  for (int64_t t = 0; t < n; ++t) {
    for (int c = 0; c < kDim; ++c) rms[c] += std::pow(k[static_cast<size_t>((head * n + t) * kDim + c)], 2);
  }
  for (double& r : rms) r = std::sqrt(r / static_cast<double>(n));
  return rms;
}

double median_of(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

TEST(Workload, GaussianHasNoneOfTheProperties) {
  const Portrait p = portray("gaussian");
  EXPECT_LT(p.sinks, 0.01);
  EXPECT_GT(p.sinks, 0.0005);
  EXPECT_NEAR(p.local, 0.041, 0.015);     // 64 / t averaged over the queries
  EXPECT_NEAR(p.persistent, 0.05, 0.02);  // no token is liked again
  const Tensors t = read(*workload::make_synthetic("gaussian", kShape, 1), 0, 0, 0, kTokens);
  for (double rms : channel_rms(t.k, 0, kTokens)) EXPECT_NEAR(rms, 1, 0.05);
}

TEST(Workload, OutliersAreFixedChannelsAndLeaveScoresAlone) {
  for (uint64_t seed : {1, 2, 3}) {
    const auto workload = workload::make_synthetic("outliers", kShape, seed);
    const Tensors early = read(*workload, 0, 1, 0, kTokens), late = read(*workload, 5, 1, 1'000'000, kTokens);
    for (int head = 0; head < kShape.kv_heads; ++head) {
      const std::vector<double> a = channel_rms(early.k, head, kTokens),
                                b = channel_rms(late.k, head, kTokens);
      int outliers = 0;
      for (int c = 0; c < kDim; ++c) {
        EXPECT_NEAR(a[c] / b[c], 1, 0.08) << "the same channels for every token and sequence";
        const double ratio = a[c] / median_of(a);
        if (ratio < 1.1) continue;
        ++outliers;
        EXPECT_GT(ratio, 10);
        EXPECT_LT(ratio, 50);
      }
      EXPECT_EQ(outliers, kDim / 32);
    }
  }
  const Portrait p = portray("outliers");
  EXPECT_NEAR(p.local, 0.041, 0.015);
  EXPECT_NEAR(p.persistent, 0.05, 0.02);
  EXPECT_LT(p.sinks, 0.01);
}

TEST(Workload, OutlierChannelsDifferBetweenHeads) {
  const auto workload =
      workload::make_synthetic("outliers", {.layers = 1, .q_heads = 16, .kv_heads = 16, .head_dim = kDim}, 1);
  const Tensors t = read(*workload, 0, 0, 0, 256);
  std::vector<ptrdiff_t> largest;
  for (int head = 0; head < 16; ++head) {
    const std::vector<double> rms = channel_rms(t.k, head, 256);
    largest.push_back(std::max_element(rms.begin(), rms.end()) - rms.begin());
  }
  std::sort(largest.begin(), largest.end());
  EXPECT_GE(std::unique(largest.begin(), largest.end()) - largest.begin(), 8);
}

TEST(Workload, SinksDrawTheirShareOfEveryQuery) {
  const Portrait p = portray("sinks");
  EXPECT_GT(p.sinks, 0.55);
  EXPECT_LT(p.sinks, 0.65);
  EXPECT_GT(p.least_sinks, 0.3);
  EXPECT_LT(p.local, 0.04);
  const Attention attention("sinks", 1, 0);
  const std::vector<float>& v = attention.tensors().v;
  double sink_norm = 0, other_norm = 0;
  for (int i = 0; i < 4 * kDim; ++i)
    sink_norm += v[i] * v[i], other_norm += v[i + 4 * kDim] * v[i + 4 * kDim];
  EXPECT_NEAR(std::sqrt(sink_norm / other_norm), 0.1, 0.02);
}

TEST(Workload, SinkShareDoesNotFadeWithLength) {
  const auto workload =
      workload::make_synthetic("sinks", {.layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = kDim}, 1);
  constexpr int64_t kLong = 65536;
  const Tensors t = read(*workload, 0, 0, 0, kLong);
  double share = 0;
  for (int i = 1; i <= 8; ++i) {
    const std::span q = std::span(t.q).subspan(static_cast<size_t>((kLong - i) * kDim), kDim);
    const size_t seen = static_cast<size_t>((kLong - i + 1) * kDim);
    share += reference::attend(q, std::span(t.k).first(seen), std::span(t.v).first(seen), kLong - i + 1)
                 .probabilities.head(4)
                 .sum() /
             8;
  }
  EXPECT_NEAR(share, 0.6, 0.1);
}

TEST(Workload, HeavyHittersPersist) {
  const Portrait p = portray("heavy");
  EXPECT_GT(p.persistent, 0.65);
  EXPECT_LT(p.persistent, 0.97);
  EXPECT_LT(p.sinks, 0.08);
  EXPECT_LT(p.local, 0.12);
}

// The mass of the tokens, averaged over queries and ranked, falls as rank^-1.2: a straight line between two
// decades.
TEST(Workload, HeavyHittersFollowZipf) {
  double slope = 0;
  int runs = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed, ++runs) {
    const Attention attention("heavy", seed, 0);
    Eigen::VectorXd mass = Eigen::VectorXd::Zero(2048);
    for (int64_t t = 2047; t < kTokens; t += 8) mass += attention.probabilities(t).head(2048);
    std::sort(mass.begin(), mass.end(), std::greater<>());
    slope += (std::log(mass[499]) - std::log(mass[9])) / std::log(500.0 / 10);
  }
  EXPECT_NEAR(slope / runs, -1.2, 0.15);
}

TEST(Workload, LocalMassIsNear) {
  const Portrait p = portray("local");
  EXPECT_GT(p.local, 0.75);
  EXPECT_LT(p.local, 0.97);
  EXPECT_LT(p.sinks, 0.01);
}

TEST(Workload, ReadsAreRandomAccessToTheBit) {
  for (const workload::FamilyInfo& family : workload::synthetic_families()) {
    SCOPED_TRACE(family.name);
    const auto workload = workload::make_synthetic(family.name, kShape, 7);
    const Tensors all = read(*workload, 3, 1, 0, 100);
    const Tensors part = read(*workload::make_synthetic(family.name, kShape, 7), 3, 1, 37, 20);
    for (int head = 0; head < kShape.q_heads; ++head) {
      EXPECT_TRUE(std::equal(part.q.begin() + head * 20 * kDim, part.q.begin() + (head + 1) * 20 * kDim,
                             all.q.begin() + (head * 100 + 37) * kDim));
      if (head >= kShape.kv_heads) continue;
      EXPECT_TRUE(std::equal(part.k.begin() + head * 20 * kDim, part.k.begin() + (head + 1) * 20 * kDim,
                             all.k.begin() + (head * 100 + 37) * kDim));
      EXPECT_TRUE(std::equal(part.v.begin() + head * 20 * kDim, part.v.begin() + (head + 1) * 20 * kDim,
                             all.v.begin() + (head * 100 + 37) * kDim));
    }
    std::vector<float> only_k(part.k.size());
    workload->read(3, 1, 37, 20, nullptr, only_k.data(), nullptr);
    EXPECT_EQ(only_k, part.k);
  }
}

TEST(Workload, SeedSequenceLayerAndTensorAllMatter) {
  for (const workload::FamilyInfo& family : workload::synthetic_families()) {
    SCOPED_TRACE(family.name);
    const auto workload = workload::make_synthetic(family.name, kShape, 7);
    const Tensors base = read(*workload, 0, 0, 10, 4);
    EXPECT_NE(base.k, read(*workload::make_synthetic(family.name, kShape, 8), 0, 0, 10, 4).k);
    EXPECT_NE(base.k, read(*workload, 1, 0, 10, 4).k);
    EXPECT_NE(base.k, read(*workload, 0, 1, 10, 4).k);
    EXPECT_NE(base.k, read(*workload, 0, 0, 11, 4).k);
    EXPECT_NE(base.k, base.v);
    EXPECT_EQ(std::count(base.v.begin(), base.v.end(), 0.0f), 0) << "never zeros";
  }
}

TEST(Workload, FarTokensAndSmallHeadsAreFinite) {
  for (const workload::FamilyInfo& family : workload::synthetic_families()) {
    const auto workload = workload::make_synthetic(
        family.name, {.layers = 1, .q_heads = 3, .kv_heads = 1, .head_dim = 8}, UINT64_MAX);
    const Tensors t = read(*workload, 0, 0, int64_t{1} << 40, 16);
    for (const auto* x : {&t.q, &t.k, &t.v}) {
      for (float value : *x) EXPECT_TRUE(std::isfinite(value) && std::abs(value) < 300) << family.name;
    }
  }
}

TEST(Workload, MistakesAreNamed) {
  EXPECT_EQ(message_of([] { workload::make_synthetic("gausian", kShape, 1); }),
            "unknown workload 'gausian'; did you mean 'gaussian'? "
            "Known: gaussian, outliers, offsets, sinks, heavy, local");
  EXPECT_THROW(workload::make_synthetic("sinks", {1, 3, 2, 64}, 1), std::invalid_argument);
  EXPECT_THROW(workload::make_synthetic("sinks", {1, 2, 2, 12}, 1), std::invalid_argument);
  EXPECT_THROW(workload::make_synthetic("sinks", {0, 2, 2, 8}, 1), std::invalid_argument);
  EXPECT_THROW(workload::make_synthetic("sinks", kShape, 1)->read(0, 2, 0, 1, nullptr, nullptr, nullptr),
               std::logic_error);
}

class DumpTest : public testing::Test {
 protected:
  using Shape = std::vector<int64_t>;
  static std::vector<float> ramp(const Shape& shape) {
    std::vector<float> x(
        static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    std::iota(x.begin(), x.end(), 1.0f);
    return x;
  }
  void write(const Shape& q, const Shape& k, const Shape& v) {
    const std::vector<float> q_values = ramp(q), k_values = ramp(k), v_values = ramp(v);
    const io::NamedTensor tensors[] = {{"q", q, q_values}, {"k", k, k_values}, {"v", v, v_values}};
    io::write_safetensors(path_, tensors);
  }
  void expect_refused(const std::string& reason) {
    const std::string text = test::refusal([&] { workload::open_dump(path_); });
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  }

  const test::TempFolder folder_;
  const std::string path_ = (folder_ / "dump.safetensors").string();
};

TEST_F(DumpTest, ReadsSlicesOfEveryHead) {
  write({2, 4, 5, 8}, {2, 2, 5, 8}, {2, 2, 5, 8});
  const auto dump = workload::open_dump(path_);
  EXPECT_EQ(dump->max_tokens(), 5);
  EXPECT_EQ(dump->name(), "dump.safetensors");
  EXPECT_EQ(dump->shape().layers, 2);
  EXPECT_EQ(dump->shape().q_heads, 4);
  EXPECT_EQ(dump->shape().kv_heads, 2);
  EXPECT_EQ(dump->shape().head_dim, 8);
  const Tensors t = read(*dump, 9, 1, 3, 2);
  for (int head = 0; head < 4; ++head) {
    for (int i = 0; i < 16; ++i) EXPECT_EQ(t.q[head * 16 + i], 1 + ((4 + head) * 5 + 3) * 8 + i);
  }
  for (int head = 0; head < 2; ++head) {
    for (int i = 0; i < 16; ++i) EXPECT_EQ(t.k[head * 16 + i], 1 + ((2 + head) * 5 + 3) * 8 + i);
  }
  EXPECT_EQ(t.v, t.k);
  EXPECT_THROW(dump->read(0, 0, 4, 2, nullptr, nullptr, nullptr), std::logic_error);
  EXPECT_THROW(dump->read(0, 2, 0, 1, nullptr, nullptr, nullptr), std::logic_error);
}

TEST_F(DumpTest, NamesTheFirstValueThatIsNotFinite) {
  const Shape shape = {2, 3, 1000, 16};
  const std::vector<float> good = ramp(shape);
  std::vector<float> bad = good;
  bad[((1 * 3 + 2) * 1000 + 997) * 16 + 5] = NAN;
  const io::NamedTensor with_nan[] = {{"q", shape, good}, {"k", shape, good}, {"v", shape, bad}};
  io::write_safetensors(path_, with_nan);
  expect_refused("v[1, 2, 997, 5] is NaN; every value must be finite");
  bad[0] = -INFINITY;
  const io::NamedTensor with_infinity[] = {{"q", shape, good}, {"k", shape, bad}, {"v", shape, good}};
  io::write_safetensors(path_, with_infinity);
  expect_refused("k[0, 0, 0, 0] is infinite");
}

}  // namespace
}  // namespace kv::workload_test
