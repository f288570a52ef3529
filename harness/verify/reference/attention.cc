// Plain attention in FP64. Rows are widened a chunk at a time, so that memory never holds a long f32 cache twice.
#include "harness/verify/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace kv::reference {
namespace {

using Eigen::Index;
using FloatMatrix = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

constexpr Index kChunkRows = 128;  // 128 rows x 128 channels of FP64 stay in the second-level cache
constexpr Index kQueryBlock = 64;  // queries that share one pass over K and V in attend_causal

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("reference: " + what);
}

// Scores [rows] to probabilities, in place. The maximum is subtracted first, so no exponential overflows.
template <typename Scores>
void softmax(Scores&& scores) {
  scores = (scores.array() - scores.maxCoeff()).exp().matrix();
  scores /= scores.sum();
}

// One query head's block of queries [first, first + count) against rows 0 … first + count - 1.
RowMatrix attend_block(const RowMatrix& queries, const RowMatrix& k, const RowMatrix& v, Index first) {
  const Index rows = first + queries.rows();
  RowMatrix scores = queries * k.topRows(rows).transpose() / std::sqrt(static_cast<double>(k.cols()));
  for (Index i = 0; i < queries.rows(); ++i) {
    const Index visible = first + i + 1;
    softmax(scores.row(i).head(visible));
    scores.row(i).tail(rows - visible).setZero();
  }
  return scores * v.topRows(rows);
}

// Rotates a row back by RoPE over `distance` positions, as complex numbers.
void rotate_back(const RotationTable& rotations, int64_t distance, Eigen::Ref<Eigen::RowVectorXd> row) {
  const Index pairs = rotations.pairs();
  for (Index i = 0; i < pairs; ++i) {
    double &re = row[rotations.half_split() ? i : 2 * i],
           &im = row[rotations.half_split() ? i + pairs : 2 * i + 1];
    const std::complex<double> by = rotations.back(distance, i);
    const double rotated = re * by.real() - im * by.imag();
    im = re * by.imag() + im * by.real();
    re = rotated;
  }
}

// Rows [first, first + count) of x [rows, dim] in FP64. A plain copy: without inlining, as under the sanitizers,
// Eigen's cast calls two functions a number and took half of their tests' time.
template <typename Number>
void widen(std::span<const Number> x, Index dim, Index first, Index count, RowMatrix& wide) {
  wide.resize(count, dim);
  std::copy_n(x.data() + first * dim, count * dim, wide.data());
}

// change(keys, first) modifies a chunk of widened keys whose first row is row `first`.
template <typename Number, typename Change>
HeadResult attend_rows(std::span<const float> q, std::span<const Number> k, std::span<const Number> v,
                       int64_t rows, const SoftmaxTerms& terms, Change change) {
  const Index dim = static_cast<Index>(q.size());
  require(rows >= 1 && dim >= 1, "needs at least one row and one channel");
  require(static_cast<Index>(k.size()) == rows * dim && k.size() == v.size(),
          "k and v must be [rows, head_dim]");
  const Eigen::VectorXd query =
      Eigen::Map<const Eigen::VectorXf>(q.data(), dim).cast<double>() / std::sqrt(static_cast<double>(dim));

  HeadResult result{Eigen::VectorXd::Zero(dim), Eigen::VectorXd(rows)};
  RowMatrix wide;
  for (Index row = 0; row < rows; row += kChunkRows) {
    const Index n = std::min(kChunkRows, rows - row);
    widen(k, dim, row, n, wide);
    change(wide, row);
    result.probabilities.segment(row, n).noalias() = wide * query;
  }
  if (terms.cap > 0)
    result.probabilities = (terms.cap * (result.probabilities.array() / terms.cap).tanh()).matrix();
  if (terms.sink) {
    Eigen::VectorXd all(rows + 1);
    all << result.probabilities, *terms.sink;
    softmax(all);
    result.probabilities = all.head(rows);
    result.sink = all[rows];
  } else {
    softmax(result.probabilities);
  }
  for (Index row = 0; row < rows; row += kChunkRows) {
    const Index n = std::min(kChunkRows, rows - row);
    widen(v, dim, row, n, wide);
    result.out.noalias() += wide.transpose() * result.probabilities.segment(row, n);
  }
  return result;
}

template <typename Number>
HeadResult attend_rotated_rows(std::span<const float> q, std::span<const Number> k, std::span<const Number> v,
                               const RotationTable& rotations, std::span<const int64_t> distance,
                               const SoftmaxTerms& terms) {
  require(!distance.empty() && *std::max_element(distance.begin(), distance.end()) < rotations.distances(),
          "rotations for every distance");
  require(2 * static_cast<size_t>(rotations.pairs()) == q.size(),
          "a rotation has half as many pairs as q has channels");
  return attend_rows(q, k, v, static_cast<int64_t>(distance.size()), terms,
                     [&](RowMatrix& keys, Index first) {
                       for (Index row = 0; row < keys.rows(); ++row)
                         rotate_back(rotations, distance[static_cast<size_t>(first + row)], keys.row(row));
                     });
}

}  // namespace

Rotation plain_rotation(double theta, int head_dim, bool half_split) {
  Rotation rotation{{}, half_split};
  for (int i = 0; i < head_dim; i += 2)
    rotation.frequency.push_back(std::pow(theta, -static_cast<double>(i) / head_dim));
  return rotation;
}

HeadResult attend(std::span<const float> q, std::span<const float> k, std::span<const float> v, int64_t rows,
                  const SoftmaxTerms& terms) {
  return attend_rows(q, k, v, rows, terms, [](RowMatrix&, Index) {});
}

HeadResult attend(std::span<const float> q, std::span<const double> k, std::span<const double> v,
                  int64_t rows, const SoftmaxTerms& terms) {
  return attend_rows(q, k, v, rows, terms, [](RowMatrix&, Index) {});
}

RotationTable::RotationTable(const Rotation& rotation, int64_t distances)
    : distances_(distances),
      half_split_(rotation.half_split),
      fine_(table(rotation, std::min(kFine, distances), 1)),
      coarse_(table(rotation, (distances + kFine - 1) / kFine, kFine)) {}

// Row r rotates back by r * step positions.
RotationTable::Table RotationTable::table(const Rotation& rotation, int64_t rows, int64_t step) {
  Table back(rows, static_cast<Index>(rotation.frequency.size()));
  for (Index r = 0; r < back.rows(); ++r) {
    for (Index i = 0; i < back.cols(); ++i) {
      const double angle = static_cast<double>(r * step) * rotation.frequency[static_cast<size_t>(i)];
      back(r, i) = std::polar(1.0, -angle);
    }
  }
  return back;
}

HeadResult attend_rotated(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                          const RotationTable& rotations, std::span<const int64_t> distance,
                          const SoftmaxTerms& terms) {
  return attend_rotated_rows(q, k, v, rotations, distance, terms);
}

HeadResult attend_rotated(std::span<const float> q, std::span<const double> k, std::span<const double> v,
                          const RotationTable& rotations, std::span<const int64_t> distance,
                          const SoftmaxTerms& terms) {
  return attend_rotated_rows(q, k, v, rotations, distance, terms);
}

std::vector<double> attend_causal(std::span<const float> q, std::span<const float> k,
                                  std::span<const float> v, int q_heads, int kv_heads, int64_t n,
                                  int head_dim) {
  require(q_heads >= 1 && kv_heads >= 1 && q_heads % kv_heads == 0, "q_heads must be a multiple of kv_heads");
  require(n >= 0 && head_dim >= 1, "n and head_dim must be sizes");
  const Index head_size = n * head_dim;
  require(static_cast<Index>(q.size()) == q_heads * head_size, "q must be [q_heads, n, head_dim]");
  require(static_cast<Index>(k.size()) == kv_heads * head_size && k.size() == v.size(),
          "k and v must be [kv_heads, n, head_dim]");
  std::vector<double> out(q.size());
  const int group = q_heads / kv_heads;
  for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
    const RowMatrix keys = FloatMatrix(k.data() + kv_head * head_size, n, head_dim).cast<double>();
    const RowMatrix values = FloatMatrix(v.data() + kv_head * head_size, n, head_dim).cast<double>();
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const FloatMatrix queries(q.data() + head * head_size, n, head_dim);
      Eigen::Map<RowMatrix> outputs(out.data() + head * head_size, n, head_dim);
      for (Index first = 0; first < n; first += kQueryBlock) {
        const Index count = std::min<Index>(kQueryBlock, n - first);
        outputs.middleRows(first, count) =
            attend_block(queries.middleRows(first, count).cast<double>(), keys, values, first);
      }
    }
  }
  return out;
}

}  // namespace kv::reference
