// The synthetic families. Every row begins as iid N(0, 1), written g below; a family then changes it in place. d is
// head_dim, t the token's position, u a unit vector of each (layer, KV head), and g⊥ is g without its part along u. A
// score is q·k / sqrt(d).
//
// gaussian: q, k, v = g. Scores are N(0, 1): attention is nearly flat, the worst case for eviction.
//
// outliers: k[c] = f_c g[c] and q[c] = g[c] / f_c for max(1, d/32) channels c, f_c log-uniform in [12, 40]. All
// tokens of a KV head share the channels, as KIVI (arXiv 2402.02750) finds in real models. Queries shrink by the
// factor by which keys grow, so scores stay N(0, 1) and only a codec's error on K differs from gaussian.
//
// offsets: k[c] = g[c] + o_c for max(1, d/32) channels c, o_c of either sign and of a size log-uniform in [12, 40].
// All tokens of a KV head share them, as SageAttention (arXiv 2410.02367) finds in real models. o·q is added to all
// scores of a query alike, so attention equals gaussian's and only a codec's error on K differs. Without its mean, K
// is gaussian's.
//
// sinks: the first 4 tokens take 0.6 of the attention weight of every later query (StreamingLLM, arXiv 2309.17453).
// k_t = sqrt(d) u + 0.1 g and v_t = 0.1 g for t < 4, k_t = g⊥ after; q_t = g⊥ + s_t u with s_t = ln(0.6 / 0.4) + 1/2
// + ln(max(t - 3, 1) / 4). The logarithm keeps the share constant as rivals grow in number; 1/2 is ln E exp(N(0, 1)),
// one rival's weight.
//
// heavy: persistent heavy hitters (H2O, arXiv 2306.14048). k_t = g⊥ + e_t u, q = g⊥ + sqrt(d) u with e_t = -1.2 ln
// x_t, x_t uniform in (0, 1). A token then weighs x_t^-1.2 for every query, and the ranked weights of n tokens follow
// Zipf's law (n / rank)^1.2.
//
// local: near tokens score higher. k_t = φ_t + g/2, q_t = (2 / sqrt(d)) ln(64 + t) φ_t + g/2; φ_t holds cos and sin
// of w_i t + p_i for d/2 frequencies w_i and phases p_i. So φ_s·φ_t is a kernel of distance alone. With w_i from
// strata of a logistic distribution it decays as x / sinh(x), x = |s - t| / 16; the logarithm offsets the growing
// number of far tokens. More frequencies lower the ripple far away, so this family means little below d = 32.
//
// The noise has the same bits on every machine (harness/math/random.h). A row or channel takes one logarithm or
// power, from libm in FP64, rounded to f32.
#include "harness/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <stdexcept>

#include "harness/math/random.h"
#include "variants/cache/near_names.h"
#include "variants/model_cache/resolve.h"

namespace kv::workload {
namespace {

// The purpose of a random stream; part of its key.
enum Stream : uint64_t {
  kQ,
  kK,
  kV,
  kHeavyWeight,
  kDirection,
  kOutlierChannel,
  kOutlierFactor,
  kFrequency,
  kPhase,
  kOffsetSign
};

struct Row {
  size_t head;  // layer * kv_heads + kv head, the index of per-head traits
  int64_t token;
  uint64_t key;  // this row's own, different from the key of the stream that filled it
};

// Turns rows of iid N(0, 1) into a family's.
class Family {
 public:
  virtual ~Family() = default;
  virtual void shape_q(const Row&, std::span<float>) const {}
  virtual void shape_k(const Row&, std::span<float>) const {}
  virtual void shape_v(const Row&, std::span<float>) const {}
};

// Traits of a head, the same for every sequence as a model's weights are: [layers * kv_heads, width].
class HeadTable {
 public:
  HeadTable(const WorkloadShape& shape, size_t width)
      : width_(width),
        values_(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.kv_heads) * width) {}
  size_t heads() const { return values_.size() / width_; }
  std::span<float> operator[](size_t head) { return std::span(values_).subspan(head * width_, width_); }
  std::span<const float> operator[](size_t head) const {
    return std::span(values_).subspan(head * width_, width_);
  }

 private:
  size_t width_;
  std::vector<float> values_;
};

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void add_scaled(std::span<float> x, double scale, std::span<const float> u) {
  const float s = static_cast<float>(scale);
  for (size_t i = 0; i < x.size(); ++i) x[i] += s * u[i];
}

// Replaces x's part along the unit vector u: x⊥ + length u.
void set_along(std::span<float> x, double length, std::span<const float> u) {
  add_scaled(x, length - dot(x, u), u);
}

void scale(std::span<float> x, float factor) {
  for (float& value : x) value *= factor;
}

HeadTable unit_vectors(const WorkloadShape& shape, uint64_t seed) {
  HeadTable table(shape, static_cast<size_t>(shape.head_dim));
  for (size_t head = 0; head < table.heads(); ++head) {
    math::random::fill_normal(math::random::key({seed, kDirection, head}), table[head]);
    scale(table[head], static_cast<float>(1 / std::sqrt(dot(table[head], table[head]))));
  }
  return table;
}

class Gaussian : public Family {
 public:
  Gaussian(const WorkloadShape&, uint64_t) {}
};

// One value a channel: log-uniform in [12, 40] for max(1, d/32) channels of each head, 1 for the others.
HeadTable outlier_factors(const WorkloadShape& shape, uint64_t seed) {
  HeadTable table(shape, static_cast<size_t>(shape.head_dim));
  const size_t dim = static_cast<size_t>(shape.head_dim), count = std::max<size_t>(1, dim / 32);
  for (size_t head = 0; head < table.heads(); ++head) {
    const std::span<float> factors = table[head];
    std::fill(factors.begin(), factors.end(), 1.0f);
    const uint64_t channel_key = math::random::key({seed, kOutlierChannel, head});
    for (size_t drawn = 0, i = 0; drawn < count; ++i) {
      float& factor = factors[math::random::below(channel_key, i, dim)];
      if (factor != 1) continue;
      const double x = math::random::uniform(math::random::key({seed, kOutlierFactor, head}), drawn++);
      factor = static_cast<float>(12 * std::pow(40.0 / 12, x));
    }
  }
  return table;
}

class Outliers : public Family {
 public:
  Outliers(const WorkloadShape& shape, uint64_t seed) : factors_(outlier_factors(shape, seed)) {}
  void shape_q(const Row& row, std::span<float> q) const override {
    for (size_t c = 0; c < q.size(); ++c) q[c] /= factors_[row.head][c];
  }
  void shape_k(const Row& row, std::span<float> k) const override {
    for (size_t c = 0; c < k.size(); ++c) k[c] *= factors_[row.head][c];
  }

 private:
  HeadTable factors_;  // 1 for an ordinary channel
};

class Offsets : public Family {
 public:
  Offsets(const WorkloadShape& shape, uint64_t seed) : offsets_(outlier_factors(shape, seed)) {
    for (size_t head = 0; head < offsets_.heads(); ++head) {
      const uint64_t sign_key = math::random::key({seed, kOffsetSign, head});
      for (size_t c = 0; c < offsets_[head].size(); ++c) {
        float& x = offsets_[head][c];
        x = x == 1.0f ? 0.0f : math::random::below(sign_key, c, 2) == 0 ? x : -x;
      }
    }
  }
  void shape_k(const Row& row, std::span<float> k) const override { add_scaled(k, 1.0, offsets_[row.head]); }

 private:
  HeadTable offsets_;  // 0 for an ordinary channel
};

class Sinks : public Family {
 public:
  Sinks(const WorkloadShape& shape, uint64_t seed) : u_(unit_vectors(shape, seed)) {}
  void shape_q(const Row& row, std::span<float> q) const override {
    const double rivals = static_cast<double>(std::max<int64_t>(row.token - kSinks + 1, 1));
    set_along(q, std::log(kShare / (1 - kShare)) + 0.5 + std::log(rivals / kSinks), u_[row.head]);
  }
  void shape_k(const Row& row, std::span<float> k) const override {
    if (row.token >= kSinks) return set_along(k, 0, u_[row.head]);
    scale(k, 0.1f);
    add_scaled(k, std::sqrt(static_cast<double>(k.size())), u_[row.head]);
  }
  void shape_v(const Row& row, std::span<float> v) const override {
    if (row.token < kSinks) scale(v, 0.1f);
  }

 private:
  static constexpr int64_t kSinks = 4;
  static constexpr double kShare = 0.6;
  HeadTable u_;
};

class Heavy : public Family {
 public:
  Heavy(const WorkloadShape& shape, uint64_t seed) : u_(unit_vectors(shape, seed)) {}
  void shape_q(const Row& row, std::span<float> q) const override {
    set_along(q, std::sqrt(static_cast<double>(q.size())), u_[row.head]);
  }
  void shape_k(const Row& row, std::span<float> k) const override {
    const double x = math::random::uniform(math::random::key({row.key, kHeavyWeight}), 0);
    set_along(k, -kExponent * std::log(x), u_[row.head]);
  }

 private:
  static constexpr double kExponent = 1.2;
  HeadTable u_;
};

class Local : public Family {
 public:
  Local(const WorkloadShape& shape, uint64_t seed)
      : pairs_(static_cast<size_t>(shape.head_dim / 2)), waves_(shape, pairs_ * 2) {
    for (size_t head = 0; head < waves_.heads(); ++head) {
      const uint64_t frequency = math::random::key({seed, kFrequency, head}),
                     phase = math::random::key({seed, kPhase, head});
      for (size_t i = 0; i < pairs_; ++i) {
        // |w| of the logistic distribution of scale 1 / (16 pi), one draw from each of `pairs` equally likely strata.
        const double p =
            (static_cast<double>(i) + math::random::uniform(frequency, i)) / static_cast<double>(pairs_);
        const double w = std::log((1 + p) / (1 - p)) / (16 * std::numbers::pi);
        waves_[head][2 * i] = static_cast<float>(w / (2 * std::numbers::pi));
        waves_[head][2 * i + 1] = static_cast<float>(math::random::uniform(phase, i));
      }
    }
  }
  void shape_q(const Row& row, std::span<float> q) const override {
    const double d = static_cast<double>(q.size());
    add_waves(row, 2 / std::sqrt(d) * std::log(64.0 + static_cast<double>(row.token)), q);
  }
  void shape_k(const Row& row, std::span<float> k) const override { add_waves(row, 1, k); }

 private:
  void add_waves(const Row& row, double amplitude, std::span<float> x) const {
    const std::span<const float> waves = waves_[row.head];
    const float a = static_cast<float>(amplitude);
    for (size_t i = 0; i < pairs_; ++i) {
      const double turns =
          static_cast<double>(row.token) * waves[2 * i] + waves[2 * i + 1];  // from phase 0 on: >= 0
      const auto [cos, sin] = math::random::cos_sin_of_turn(
          static_cast<float>(turns - static_cast<double>(static_cast<int64_t>(turns))));
      x[2 * i] = 0.5f * x[2 * i] + a * cos;
      x[2 * i + 1] = 0.5f * x[2 * i + 1] + a * sin;
    }
  }

  size_t pairs_;
  HeadTable waves_;  // pairs of (turns a token, phase in turns)
};

template <typename F>
std::unique_ptr<Family> make(const WorkloadShape& shape, uint64_t seed) {
  return std::make_unique<F>(shape, seed);
}

struct Entry {
  FamilyInfo info;
  std::unique_ptr<Family> (*make)(const WorkloadShape&, uint64_t seed);
};
constexpr Entry kFamilies[] = {
    {{"gaussian", "q, k, v = g, iid N(0, 1)"}, make<Gaussian>},
    {{"outliers", "k[c] = f_c g, q[c] = g / f_c in max(1, d/32) channels of a head, f_c from 12 to 40"},
     make<Outliers>},
    {{"offsets", "k[c] = g + o_c in max(1, d/32) channels of a head, |o_c| from 12 to 40; q = g"},
     make<Offsets>},
    {{"sinks", "k_t = sqrt(d) u + 0.1 g, v_t = 0.1 g for t < 4; q_t = g⊥ + (0.905 + ln((t - 3) / 4)) u"},
     make<Sinks>},
    {{"heavy", "k_t = g⊥ - 1.2 ln(x_t) u, q = g⊥ + sqrt(d) u, x_t uniform: Zipf weights"}, make<Heavy>},
    {{"local", "k_t = φ_t + g/2, q_t = 2 ln(64 + t) / sqrt(d) φ_t + g/2, φ_s·φ_t falls with |s - t|"},
     make<Local>},
};

class Synthetic : public Workload {
 public:
  Synthetic(const Entry& entry, const WorkloadShape& shape, uint64_t seed)
      : name_(entry.info.name), shape_(shape), seed_(seed), family_(entry.make(shape, seed)) {}

  const WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return name_; }
  int64_t max_tokens() const override { return INT64_MAX; }

  void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override {
    if (sequence < 0 || layer < 0 || layer >= shape_.layers || first < 0 || n < 0 || n > INT64_MAX - first) {
      throw std::logic_error("Workload::read: no such sequence, layer or token");
    }
    const Part part{sequence, layer, first, n};
    if (q) fill(part, kQ, shape_.q_heads, &Family::shape_q, q);
    if (k) fill(part, kK, shape_.kv_heads, &Family::shape_k, k);
    if (v && shape_.value_dim > 0) fill(part, kK, shape_.kv_heads, &Family::shape_k, v);
    if (v && shape_.value_dim == 0) fill(part, kV, shape_.kv_heads, &Family::shape_v, v);
  }

 private:
  struct Part {
    int sequence, layer;
    int64_t first, n;
  };
  using Shaper = void (Family::*)(const Row&, std::span<float>) const;

  void fill(const Part& part, Stream stream, int heads, Shaper shaper, float* out) const {
    const int64_t dim = shape_.head_dim;
    const int group = heads / shape_.kv_heads;
#pragma omp parallel for collapse(2) if (heads * part.n >= 64)
    for (int head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < part.n; ++i) {
        const int64_t token = part.first + i;
        const uint64_t key = math::random::key({seed_, stream, static_cast<uint64_t>(part.sequence),
                                                static_cast<uint64_t>(part.layer),
                                                static_cast<uint64_t>(head), static_cast<uint64_t>(token)});
        const std::span<float> x(out + (head * part.n + i) * dim, static_cast<size_t>(dim));
        math::random::fill_normal(key, x);
        const Row row{static_cast<size_t>(part.layer * shape_.kv_heads + head / group), token, key};
        (family_.get()->*shaper)(row, x);
      }
    }
  }

  std::string name_;
  WorkloadShape shape_;
  uint64_t seed_;
  std::unique_ptr<const Family> family_;
};

void check(const WorkloadShape& shape) {
  if (shape.layers < 1 || shape.q_heads < 1 || shape.kv_heads < 1) {
    throw std::invalid_argument("a workload needs at least one layer, query head and kv head");
  }
  if (shape.q_heads % shape.kv_heads != 0) {
    throw std::invalid_argument(std::to_string(shape.q_heads) + " query heads cannot share " +
                                std::to_string(shape.kv_heads) +
                                " kv heads evenly; q_heads must be a multiple of kv_heads");
  }
  if (shape.head_dim < 8 || shape.head_dim > 1024 || shape.head_dim % 8 != 0) {
    throw std::invalid_argument("head_dim " + std::to_string(shape.head_dim) +
                                " must be a multiple of 8 from 8 to 1024");
  }
}

}  // namespace

std::vector<FamilyInfo> synthetic_families() {
  std::vector<FamilyInfo> families;
  for (const Entry& entry : kFamilies) families.push_back(entry.info);
  return families;
}

std::unique_ptr<Workload> make_synthetic(std::string_view family, const WorkloadShape& shape, uint64_t seed) {
  check(shape);
  std::vector<std::string_view> names;
  for (const Entry& entry : kFamilies) {
    if (entry.info.name == family) return std::make_unique<Synthetic>(entry, shape, seed);
    names.push_back(entry.info.name);
  }
  throw std::invalid_argument("unknown workload '" + std::string(family) + "'" + known_names(family, names));
}

int WorkloadShape::row_layers() const {
  return layers - static_cast<int>(std::count_if(kinds.begin(), kinds.end(), is_linear));
}

}  // namespace kv::workload
