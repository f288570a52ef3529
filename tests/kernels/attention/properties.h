// Properties that hold of attention whatever the rows are stored as and whoever computes it. A backend computes; the properties
// are the same for all of them.
#pragma once

#include "harness/verify/reference/attention.h"
#include "kernels/attention.h"
#include "tests/kernels/attention/case.h"

namespace kv::test {

// The rows and queries of one head, as numbers.
struct Problem {
  Case shape;
  int index = 0;               // among the heads of a step
  int n, rows, stored;         // tokens; rows that the last one sees, and those that are there
  std::vector<float> q, k, v;  // [group, n, head_dim], [stored, head_dim]
  std::vector<float> sinks;    // [group], or none

  const Storage& storage() const { return storages()[static_cast<size_t>(shape.storage)]; }
  int64_t visible() const { return rows - n + 1; }
  int queries() const { return shape.group * n; }
  int seen(int query) const { return rows - n + 1 + query % n; }
  // How many rows follow each other as one codec stores them; the last ones of them are raw.
  std::vector<std::pair<CodecPair, int>> segments() const {
    const std::vector<CodecPair>& codecs = storage().codecs;
    std::vector<std::pair<CodecPair, int>> all;
    const int unit = codecs.front().unit_rows(),
              raw = shape.tail ? stored - (stored - std::min(shape.tail, stored)) / unit * unit : 0;
    for (int row = 0, turn = 0; row < stored - raw; row += all.back().second, ++turn)
      all.push_back({codecs[static_cast<size_t>(turn) % codecs.size()],
                     codecs.size() > 1 ? std::min(stored - raw - row, 7 + turn % 9) : stored - raw});
    if (raw) all.push_back({same(kF16), raw});
    return all;
  }
};

// Numbers of a case's shape. Scores stay of ordinary size whatever the magnitude of keys is.
inline Problem problem_of(const Case& c, int index, int n, int rows, bool whole_units) {
  const int unit = storages()[static_cast<size_t>(c.storage)].codecs.front().unit_rows();
  int stored = rows + c.unseen;
  if (whole_units && !c.tail) stored = (stored + unit - 1) / unit * unit;
  const int64_t d = c.head_dim;
  const auto seed = static_cast<uint64_t>(10 * index);
  Problem p{.shape = c,
            .index = index,
            .n = n,
            .rows = rows,
            .stored = stored,
            .q = gaussian(c.group * n * d, seed + 1),
            .k = gaussian(stored * d, seed + 2),
            .v = gaussian(stored * d, seed + 3),
            .sinks = {}};
  if (c.sinks) p.sinks = gaussian(c.group, seed + 4, 3);
  const auto channel = [&](size_t i) {
    return std::exp2(static_cast<float>(i % static_cast<size_t>(d) % 8));
  };
  const float small = 0x1p-16f;
  const auto is_small = [&](size_t i, size_t large) {
    return c.shape == kSpiky && i % static_cast<size_t>(d) != large;
  };
  for (size_t i = 0; i < p.k.size(); ++i) {
    const float row = static_cast<float>(i / static_cast<size_t>(d));
    if (c.shape == kGrowing) p.k[i] *= 1 + row / 128, p.v[i] *= std::exp2(std::min(row, 256.0f) / 32);
    if (c.shape == kUnequal) p.k[i] *= channel(i), p.v[i] *= channel(i);
    if (c.shape == kSpiky)
      p.k[i] = is_small(i, 1) ? p.k[i] * small : 1, p.v[i] = is_small(i, 3) ? p.v[i] * small : 1;
    p.k[i] = std::ldexp(p.k[i], c.keys);
    p.v[i] = std::ldexp(p.v[i], c.values);
  }
  for (size_t i = 0; i < p.q.size(); ++i) {
    if (c.shape == kUnequal) p.q[i] /= channel(i);
    if (is_small(i, 1)) p.q[i] /= small;
    if (c.shape == kLarge) p.q[i] *= 30;
    p.q[i] = std::ldexp(p.q[i], -c.keys);
  }
  return p;
}

struct Output {
  std::vector<float> out;      // [group, n, head_dim]
  std::vector<float> weights;  // [rows], if they are asked for
};

// Ways to the same bits.
struct Way {
  Placing placing = kContiguous;
  int turn = 0;           // another number of threads, or another schedule
  bool parts = false;     // rows come in pieces, or results are merged apart
  bool shuffled = false;  // spans in another order, which may change bits
};

struct Backend {
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  // All of them in one step; their rows lie in a pool together if that is the way.
  virtual std::vector<Output> attend(std::span<const Problem> problems, const Way& way) = 0;
  // By how much outputs may differ from FP64.
  virtual double bound(const Case& c) const = 0;
  virtual bool has_parts(const Case&) const { return true; }
  virtual bool takes_any_order(const Case&) const { return false; }
  virtual bool chunks_change_no_bit(const Case&) const { return false; }
  // A row that a query does not see may be NaN, though others of the step see it.
  virtual bool masks_values(const Case&) const { return true; }
  // A problem beside others has the bits that it has alone.
  virtual bool steps_change_no_bit() const { return true; }
  virtual bool whole_units() const { return false; }

  Output attend(const Problem& p, const Way& way = {}) { return attend(std::span(&p, 1), way).front(); }
};

// A step: the case's heads (a GPU's are independent, one is enough), and beside them one of fewer tokens if there are several.
inline std::vector<Problem> step_of(const Case& c, bool whole_units) {
  std::vector<Problem> step;
  for (int i = 0; i < (whole_units ? 1 : c.heads); ++i)
    step.push_back(problem_of(c, i, c.n, c.rows, whole_units));
  if (c.heads > 1) step.push_back(problem_of(c, c.heads, (c.n + 1) / 2, (c.rows + 1) / 2, whole_units));
  return step;
}

// FP64 over what is stored: out [group, n, head_dim], and the weights of the rows, summed over the queries.
struct Exact {
  std::vector<double> out, weights;
};

inline Exact exact(const Problem& p) {
  std::vector<double> k, v;
  for (int first = 0; const auto& [codec, rows] : p.segments()) {
    PagedHead head(codec, p.shape.head_dim, kContiguous, rows);
    const auto part = [&, rows = rows](const std::vector<float>& all) {
      const auto from = all.begin() + int64_t{first} * p.shape.head_dim;
      return std::vector<float>(from, from + int64_t{rows} * p.shape.head_dim);
    };
    head.fill(part(p.k), part(p.v));
    const std::vector<float> of_k = head.decoded(false), of_v = head.decoded(true);
    k.insert(k.end(), of_k.begin(), of_k.end());
    v.insert(v.end(), of_v.begin(), of_v.end());
    first += rows;
  }
  Exact all{{}, std::vector<double>(static_cast<size_t>(p.rows))};
  for (int query = 0; query < p.queries(); ++query) {
    const auto width = static_cast<size_t>(p.shape.head_dim),
               size = static_cast<size_t>(p.seen(query)) * width;
    reference::SoftmaxTerms terms{.cap = static_cast<double>(p.shape.cap)};
    if (!p.sinks.empty()) terms.sink = p.sinks[static_cast<size_t>(query / p.n)];
    const auto one =
        reference::attend(std::span(p.q).subspan(static_cast<size_t>(query) * width, width),
                          std::span(k).first(size), std::span(v).first(size), p.seen(query), terms);
    all.out.insert(all.out.end(), one.out.begin(), one.out.end());
    for (Eigen::Index i = 0; i < one.probabilities.size(); ++i)
      all.weights[static_cast<size_t>(i)] += one.probabilities[i];
  }
  return all;
}

// Relative L2 distance of all outputs together.
inline double relative_error(std::span<const float> got, std::span<const double> want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want,
                             const std::string& property) {
  ASSERT_EQ(got.size(), want.size());
  size_t i = 0;
  while (i < got.size() && std::memcmp(&got[i], &want[i], sizeof(float)) == 0) ++i;
  EXPECT_EQ(i, got.size()) << property << ": the first other number is " << got[i] << ", not " << want[i];
}

class Properties {
 public:
  Properties(Backend& backend, const Case& c, const std::vector<Problem>& step, const Exact& want)
      : backend_(backend),
        c_(c),
        step_(step),
        want_(want),
        main_(step.front()),
        plain_(backend.attend(main_)) {}

  void expect_all() const {
    agrees_with_fp64();
    same_bits_however_it_is_done();
    nan_shows_where_it_is_seen();
    if (c_.sinks && !c_.cap) sinks_may_be_of_any_size();
    if (backend_.chunks_change_no_bit(c_)) chunks_have_the_bits_of_the_whole();
  }
  const Output& plain() const { return plain_; }

 private:
  void agrees_with_fp64() const {
    const double error = relative_error(plain_.out, want_.out), bound = backend_.bound(c_);
    EXPECT_LT(error, bound) << "FP64";
    const double of_weights =
        10 * bound + (c_.shape == kPlain ? 0 : 1e-3);  // an exponential's, where scores are large
    for (size_t i = 0; i < plain_.weights.size(); ++i)
      ASSERT_NEAR(plain_.weights[i], want_.weights[i], of_weights * want_.weights[i] + 1e-12)
          << "weight of row " << i;
    if (c_.shape == kSpiky) {  // the spike alone would hide the others
      const auto small = [&](const auto& all) {
        auto found = all;
        for (size_t i = 3; i < found.size(); i += static_cast<size_t>(c_.head_dim)) found[i] = 0;
        return found;
      };
      EXPECT_LT(relative_error(small(plain_.out), small(want_.out)), 3e-4) << "FP64 beside the spike";
    }
    if (!backend_.takes_any_order(c_)) return;
    const Output turned = backend_.attend(main_, {.placing = kTiny, .shuffled = true});
    EXPECT_LT(relative_error(turned.out, want_.out), bound) << "rows in another order";
  }

  // Borders of spans or pages, other heads of the step, threads or schedules, pieces or launches.
  void same_bits_however_it_is_done() const {
    std::vector<Way> ways{{.placing = kPlacings[c_.placing].second, .turn = 1}};
    if (backend_.has_parts(c_)) ways.push_back({.placing = kTiny, .turn = 2, .parts = true});
    std::vector<Output> want{plain_};
    if (step_.size() > 1 && !backend_.steps_change_no_bit()) want = backend_.attend(step_, Way());
    for (size_t i = 1; i < step_.size(); ++i) {
      if (backend_.steps_change_no_bit())
        want.push_back(backend_.attend(step_[i]));
      else
        EXPECT_LT(relative_error(want[i].out, exact(step_[i]).out), backend_.bound(c_)) << "FP64, head " << i;
    }
    for (const Way& way : ways) {
      const std::vector<Output> got = backend_.attend(step_, way);
      for (size_t i = 0; i < step_.size(); ++i) {
        const std::string of = (way.parts ? "in parts, head " : "placed, head ") + std::to_string(i);
        expect_same_bits(got[i].out, want[i].out, of);
        expect_same_bits(got[i].weights, want[i].weights, of + ", weights");
      }
    }
  }

  // NaN in a key reaches each query that sees the row, whole; in a value its element at least, since a scale may cover more. No
  // query that sees nothing of the row's unit gets any, nor is it in a query's output for another query's sake.
  void nan_shows_where_it_is_seen() const {
    const int unit = main_.segments().front().first.unit_rows(), d = c_.head_dim;
    for (const int row : {main_.rows * (c_.head_dim % 3) / 3, std::min(main_.rows, main_.stored - 1)}) {
      if (c_.heads > 1 && row < main_.rows) continue;
      const bool in_keys = row % 2 == 0 && row < main_.rows;
      Problem bad = main_;
      (in_keys ? bad.k : bad.v)[static_cast<size_t>(row * d + 5)] = NAN;
      const std::vector<float> got = backend_.attend(bad).out;
      const int first_touched = row < main_.rows ? row / unit * unit : row;
      for (int query = 0; query < main_.queries(); ++query) {
        const bool sees = row < main_.seen(query), clean = first_touched >= main_.seen(query);
        for (int i = 0; i < d; ++i) {
          const auto at = static_cast<size_t>(query * d + i);
          if (sees && (in_keys || i == 5)) {
            ASSERT_TRUE(std::isnan(got[at])) << "NaN in row " << row << " is lost at query " << query;
          } else if (clean && (row >= main_.rows || backend_.masks_values(c_))) {
            ASSERT_EQ(got[at], plain_.out[at]) << "NaN in row " << row << " changes query " << query;
          }
        }
      }
    }
    if (c_.heads > 1) return;
    Problem bad = main_;
    const int last = main_.queries() - 1;
    bad.q[static_cast<size_t>(last * d + 7)] = NAN;
    const std::vector<float> got = backend_.attend(bad).out;
    for (int i = 0; i < (last + 1) * d; ++i)
      ASSERT_EQ(std::isnan(got[static_cast<size_t>(i)]), i >= last * d)
          << "NaN in query " << last << ", element " << i;
  }

  // A sink far above every score leaves nothing for the rows, one far below changes nothing.
  void sinks_may_be_of_any_size() const {
    Problem p = main_;
    std::ranges::fill(p.sinks, -1e30f);
    const Output low = backend_.attend(p);
    std::ranges::fill(p.sinks, 1e30f);
    const Output high = backend_.attend(p);
    p.sinks.clear();
    expect_same_bits(low.out, backend_.attend(p).out, "a sink far below");
    for (const float x : high.out) ASSERT_EQ(x, 0.0f) << "a sink far above";
  }

  // Each chunk on the rows of those before it.
  void chunks_have_the_bits_of_the_whole() const {
    const int cut = std::max(kPrefillTokens, main_.n / 2 - 3), width = c_.head_dim;
    for (const auto& [first, end] : {std::pair{0, cut}, {cut, main_.n}}) {
      if (end - first < kPrefillTokens) continue;
      Problem part = main_;
      part.n = end - first;
      part.rows = main_.rows - main_.n + end;
      part.q.clear();
      std::vector<float> want;
      for (int g = 0; g < c_.group; ++g) {
        const auto from = (g * main_.n + first) * width, to = (g * main_.n + end) * width;
        part.q.insert(part.q.end(), main_.q.begin() + from, main_.q.begin() + to);
        want.insert(want.end(), plain_.out.begin() + from, plain_.out.begin() + to);
      }
      expect_same_bits(backend_.attend(part).out, want, "a chunk from token " + std::to_string(first));
    }
  }

  Backend& backend_;
  const Case& c_;
  const std::vector<Problem>& step_;
  const Exact& want_;
  const Problem& main_;
  const Output plain_;
};

// Calls check for each case, or for the one that KVLAB_CASE has; says how to run a failing one again.
inline void for_each_case(const std::vector<Case>& table, const std::function<bool(const Case&)>& takes,
                          const std::function<void(const Case&)>& check) {
  const char* only = std::getenv("KVLAB_CASE");
  int64_t count = 0;
  for (const Case& c : only ? std::vector{from_line(only)} : table) {
    if (!takes(c)) continue;
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    SCOPED_TRACE("again: KVLAB_CASE='" + to_line(c) + "' … --gtest_filter=" + test.test_suite_name() + "." +
                 test.name());
    check(c);
    ++count;
    if (testing::Test::HasFailure()) break;  // one line is enough to begin with
  }
  testing::Test::RecordProperty("cases", std::to_string(count));
}

}  // namespace kv::test
