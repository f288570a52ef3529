// MLA: attention over latent rows that hold K and V, against the uncompressed formulation of the same model in FP64.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <filesystem>
#include <random>

#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv {
namespace {

using namespace contract;

// A layer of MLA (DeepSeek-V2, arXiv:2405.04434, section 2.1.2) with random weights.
struct Mla {
  int heads, nope, rope, latent, value;
  std::vector<Eigen::MatrixXd> up_k, up_v;  // [heads] of [nope, latent] and [value, latent]

  Mla(int heads_, int nope_, int rope_, int latent_, int value_)
      : heads(heads_), nope(nope_), rope(rope_), latent(latent_), value(value_) {
    std::mt19937_64 rng(5);
    std::normal_distribution<double> normal(0.0, 1.0 / std::sqrt(latent));
    const auto random = [&](int rows) {
      return Eigen::MatrixXd(Eigen::MatrixXd::NullaryExpr(rows, latent, [&] { return normal(rng); }));
    };
    for (int h = 0; h < heads; ++h) {
      up_k.push_back(random(nope));
      up_v.push_back(random(value));
    }
  }
  CacheShape shape(int64_t max_tokens) const {
    return {.q_heads = heads,
            .kv_heads = 1,
            .head_dim = latent + rope,
            .max_tokens = max_tokens,
            .max_sequences = 4,
            .value_dim = latent};
  }
};

// Tokens as the model has them: queries of a head [nope + rope], and the row that is cached, [latent + rope].
struct Stream {
  Mla mla;
  int64_t n;
  Eigen::MatrixXd q, rows;  // [heads * n, nope + rope], [n, latent + rope]

  Stream(const Mla& of, int64_t tokens) : mla(of), n(tokens) {
    std::mt19937_64 rng(9);
    std::normal_distribution<double> normal;
    const auto random = [&](int64_t r, int64_t c) {
      return Eigen::MatrixXd(Eigen::MatrixXd::NullaryExpr(r, c, [&] { return normal(rng); }));
    };
    q = random(mla.heads * n, mla.nope + mla.rope);
    rows = random(n, mla.latent + mla.rope);
  }

  // Absorbed: q up_k in place of q's nope part, at the cache's scale.
  Tokens for_cache() const {
    Tokens t{n, {}, {}, {}};
    const double scale = std::sqrt(static_cast<double>(mla.latent + mla.rope) / (mla.nope + mla.rope));
    for (int h = 0; h < mla.heads; ++h) {
      for (int64_t i = 0; i < n; ++i) {
        const Eigen::RowVectorXd query = q.row(h * n + i);
        const Eigen::RowVectorXd absorbed = query.head(mla.nope) * mla.up_k[static_cast<size_t>(h)];
        for (const double x : absorbed) t.q.push_back(static_cast<float>(x * scale));
        for (const double x : query.tail(mla.rope)) t.q.push_back(static_cast<float>(x * scale));
      }
    }
    for (int64_t i = 0; i < n; ++i)
      for (const double x : rows.row(i)) t.k.push_back(static_cast<float>(x));
    t.v.assign(t.k.size(), NAN);  // nobody looks at it
    return t;
  }

  // Token i's output of a head [value] over the stored rows [.., latent + rope], by K and V of every head.
  Eigen::VectorXd uncompressed(int head, int64_t i, const Eigen::MatrixXd& stored) const {
    const auto h = static_cast<size_t>(head);
    Eigen::MatrixXd k(stored.rows(), mla.nope + mla.rope);
    k << stored.leftCols(mla.latent) * mla.up_k[h].transpose(), stored.rightCols(mla.rope);
    const Eigen::MatrixXd v = stored.leftCols(mla.latent) * mla.up_v[h].transpose();
    Eigen::VectorXd p = k * q.row(head * n + i).transpose() / std::sqrt(static_cast<double>(k.cols()));
    p = (p.array() - p.maxCoeff()).exp();
    return v.transpose() * p / p.sum();
  }
};

Eigen::MatrixXd stored_rows(Cache& cache, SequenceId id) {
  const Stored stored = read_back(cache, id, 0, 0);
  EXPECT_EQ(stored.k, stored.v);  // held once, read twice
  const Eigen::Map<const Eigen::Matrix<float, -1, -1, Eigen::RowMajor>> rows(stored.k.data(), stored.rows,
                                                                             cache.shape().head_dim);
  return rows.cast<double>();
}

// Relative L2 of all heads of the last `last` tokens of a step's outputs [heads, last, latent].
double error(const Stream& s, const std::vector<float>& out, int64_t last, const Eigen::MatrixXd& stored) {
  double difference = 0.0, norm = 0.0;
  for (int h = 0; h < s.mla.heads; ++h) {
    for (int64_t i = 0; i < last; ++i) {
      const Eigen::Map<const Eigen::VectorXf> latent(out.data() + (h * last + i) * s.mla.latent,
                                                     s.mla.latent);
      const Eigen::VectorXd got = s.mla.up_v[static_cast<size_t>(h)] * latent.cast<double>();
      const int64_t seen = stored.rows() - last + i + 1;
      const Eigen::VectorXd want = s.uncompressed(h, s.n - last + i, stored.topRows(seen));
      difference += (got - want).squaredNorm();
      norm += want.squaredNorm();
    }
  }
  return std::sqrt(difference / norm);
}

class Latent : public testing::TestWithParam<const char*> {
 protected:
  // Outputs of the last chunk, as wide as the latent.
  static std::vector<float> run(Cache& cache, SequenceId id, const Tokens& tokens,
                                std::vector<int64_t> chunks) {
    std::vector<float> out = drive(cache, id, tokens, chunks);
    out.resize(static_cast<size_t>(cache.shape().q_heads * chunks.back() * cache.shape().value_dim));
    return out;
  }
  const Spec spec_ = parse_spec(GetParam());
};

TEST_P(Latent, StepsAgreeWithTheUncompressedModel) {
  const Stream s(Mla(4, 16, 32, 64, 24), 120);
  memory::Ledger ledger;
  const auto cache = build_cache(spec_, s.mla.shape(s.n), ledger);
  const SequenceId id = cache->add_sequence();
  std::vector<int64_t> chunks{70};
  chunks.resize(51, 1);
  const std::vector<float> out = run(*cache, id, s.for_cache(), chunks);
  EXPECT_LT(error(s, out, 1, stored_rows(*cache, id)), attention_tolerance(spec_));
}

TEST_P(Latent, APromptAgreesWithTheUncompressedModel) {
  if (!retention_of(spec_).keeps_all || codec_of(spec_).make(spec_.codec).unit_rows() > 1) return;
  const Stream s(Mla(4, 16, 32, 64, 24), 90);
  memory::Ledger ledger;
  const auto cache = build_cache(spec_, s.mla.shape(s.n), ledger);
  const SequenceId id = cache->add_sequence();
  const std::vector<float> out = run(*cache, id, s.for_cache(), {20, 70});
  EXPECT_LT(error(s, out, 70, stored_rows(*cache, id)), attention_tolerance(spec_));
}

TEST_P(Latent, HoldsOneRowAToken) {
  const Stream s(Mla(4, 16, 32, 64, 24), 130);
  const CacheShape shape = s.mla.shape(s.n);
  memory::Ledger ledger;
  const auto cache = build_cache(spec_, shape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens tokens = s.for_cache();
  for (int64_t n = 1; n <= s.n; ++n) {
    drive(*cache, id, slice(shape, tokens, n - 1, 1), std::array<int64_t, 1>{1});
    ASSERT_EQ(held_bytes(ledger), predicted_bytes(spec_, shape, {&n, 1})) << n;
  }
  // Heads with K and V of their own, with one kv head, would take twice that.
  CacheShape both = shape;
  both.value_dim = 0;
  const int64_t n = s.n;
  if (spec_.codec.name == "f16" && spec_.placement.name == "contiguous" && !retention_of(spec_).scores) {
    EXPECT_EQ(2 * predicted_bytes(spec_, shape, {&n, 1}), predicted_bytes(spec_, both, {&n, 1}));
  }
}

TEST_P(Latent, ForksAndFilesGoOnBitForBit) {
  const Stream s(Mla(4, 16, 32, 64, 24), 110);
  const CacheShape shape = s.mla.shape(s.n);
  memory::Ledger ledger;
  const auto cache = build_cache(spec_, shape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens tokens = s.for_cache();
  run(*cache, id, slice(shape, tokens, 0, 80), std::vector<int64_t>(80, 1));
  const std::string path = passing_path("latent");
  cache->save(id, path);
  const SequenceId fork = cache->fork(id), loaded = cache->load(path);
  std::filesystem::remove(path);
  const Tokens rest = slice(shape, tokens, 80, 30);
  const auto go_on = [&](SequenceId of) { return run(*cache, of, rest, std::vector<int64_t>(30, 1)); };
  const std::vector<float> want = go_on(id);
  EXPECT_EQ(go_on(fork), want);
  EXPECT_EQ(go_on(loaded), want);
}

INSTANTIATE_TEST_SUITE_P(Specs, Latent,
                         testing::Values("contiguous", "concat/f16", "doubling/bf16", "contiguous/fp8",
                                         "contiguous/q8_0", "segmented/q4_0", "contiguous/token(bits=4)",
                                         "contiguous/kivi(bits=2)", "paged(block=16)/q8_0",
                                         "contiguous/split(k=q8_0,v=f16)", "contiguous/f16/ring(window=50)",
                                         "contiguous/f16/h2o(heavy=20,recent=20)", "doubling(read=copy)/f16",
                                         "tiered(hot=64)/f16"));

// The widest row there is.
TEST(LatentShapes, DeepSeeksRowIs576Wide) {
  const Stream s(Mla(16, 128, 64, 512, 128), 70);
  for (const char* spec : {"contiguous", "contiguous/q8_0", "contiguous/kivi(bits=4)"}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), s.mla.shape(s.n), ledger);
    const SequenceId id = cache->add_sequence();
    std::vector<int64_t> chunks{64};
    chunks.resize(7, 1);
    std::vector<float> out = drive(*cache, id, s.for_cache(), chunks);
    EXPECT_LT(error(s, out, 1, stored_rows(*cache, id)), attention_tolerance(parse_spec(spec))) << spec;
  }
}

TEST(LatentShapes, OnesThatCannotBeAreRefused) {
  memory::Ledger ledger;
  CacheShape shape = Mla(4, 16, 32, 64, 24).shape(10);
  EXPECT_THROW(build_cache(parse_spec("contiguous/ring(positions=cache)"), shape, ledger),
               std::invalid_argument);
  shape.value_dim = 104;
  EXPECT_THROW(build_cache(parse_spec("contiguous"), shape, ledger), std::invalid_argument);
  shape.value_dim = 64;
  shape.kv_heads = 2;
  EXPECT_THROW(build_cache(parse_spec("contiguous"), shape, ledger), std::invalid_argument);
}

}  // namespace
}  // namespace kv
