#include "harness/verify/reference/selection.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

namespace kv::reference {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix widened(std::span<const float> values, int64_t rows, int cols) {
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
             values.data(), rows, cols)
      .cast<double>();
}

// A bound rounded to 16 bits (IEEE binary16, largest number 65504).
double in_half(double x) {
  return static_cast<double>(
      static_cast<float>(Eigen::half(static_cast<float>(std::clamp(x, -65504.0, 65504.0)))));
}

// Quest (arXiv:2406.10774), section 3.3: the sum of the group's bounds.
Candidates quest(const Parameters& p, const SelectionHead& head) {
  const int64_t page = parameter(p, "page"), pages = (head.rows + page - 1) / page;
  const Matrix k = widened(head.k, head.rows, head.head_dim);
  const Matrix q = widened(head.q, std::ssize(head.q) / head.head_dim, head.head_dim);
  Candidates of{.score = {}, .size = {}, .rows_each = page, .count = 1};
  for (int64_t i = 0; i < pages; ++i) {
    const auto rows = k.middleRows(i * page, std::min(page, head.rows - i * page));
    const Eigen::RowVectorXd least = rows.colwise().minCoeff().unaryExpr(&in_half);
    const Eigen::RowVectorXd most = rows.colwise().maxCoeff().unaryExpr(&in_half);
    double bound = 0.0, size = 0.0;
    for (Eigen::Index g = 0; g < q.rows(); ++g) {
      const Eigen::ArrayXd a = q.row(g).array() * least.array(), b = q.row(g).array() * most.array();
      bound += a.max(b).sum();
      size += a.abs().max(b.abs()).sum();
    }
    of.score.push_back(bound);
    of.size.push_back(size);
  }
  of.score.back() = kInfinite;  // the page being filled
  while (of.count < pages &&
         (of.count * 100 < pages * parameter(p, "top") || of.count < parameter(p, "least")))
    ++of.count;
  return of;
}

// The largest attention weights, summed over the group.
Candidates topk(const Parameters& p, const SelectionHead& head) {
  Eigen::VectorXd weight = Eigen::VectorXd::Zero(head.rows);
  const std::vector<float> no_values(head.k.size(), 0.0f);
  for (size_t g = 0; g < head.terms.size(); ++g) {
    const auto q = head.q.subspan(g * static_cast<size_t>(head.head_dim), static_cast<size_t>(head.head_dim));
    weight += attend(q, head.k, no_values, head.rows, head.terms[g]).probabilities;
  }
  const std::vector<double> score(weight.begin(), weight.end());
  return {.score = score, .size = score, .rows_each = 1, .count = std::min(parameter(p, "rows"), head.rows)};
}

struct SelectionOracle {
  std::string_view name;
  Candidates (*candidates)(const Parameters& parameters, const SelectionHead& head);
};
constexpr std::array kSelectionOracles{SelectionOracle{"quest", quest}, SelectionOracle{"topk", topk}};

std::vector<int64_t> best(const Candidates& of) {
  std::vector<int64_t> order(of.score.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return of.score[static_cast<size_t>(a)] > of.score[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(of.count));
  return order;
}

}  // namespace

std::optional<Candidates> candidates_of(std::string_view selection, const Parameters& parameters,
                                        const SelectionHead& head) {
  for (const SelectionOracle& oracle : kSelectionOracles) {
    if (oracle.name == selection) return oracle.candidates(parameters, head);
  }
  return {};
}

std::vector<int64_t> chosen_rows(const Candidates& of, int64_t rows) {
  std::vector<int64_t> chosen;
  for (const int64_t i : best(of)) {
    for (int64_t row = i * of.rows_each; row < std::min((i + 1) * of.rows_each, rows); ++row)
      chosen.push_back(row);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

SelectionMiss miss_of(const Candidates& of, std::span<const int64_t> read, int64_t rows) {
  std::set<int64_t> candidates;
  std::vector<int64_t> whole;
  for (const int64_t row : read) candidates.insert(row / of.rows_each);
  for (const int64_t i : candidates) {
    for (int64_t row = i * of.rows_each; row < std::min((i + 1) * of.rows_each, rows); ++row)
      whole.push_back(row);
  }
  SelectionMiss miss{.choices = std::ssize(candidates)};
  const std::vector<int64_t> wanted = best(of);
  miss.disputed = std::ranges::count_if(
      candidates, [&](int64_t i) { return std::find(wanted.begin(), wanted.end(), i) == wanted.end(); });
  if (!std::ranges::equal(whole, read) || miss.choices != of.count) {
    miss.worst = kInfinite;
    return miss;
  }
  int64_t least = -1, most = -1;  // the worst read and the best unread candidate
  for (int64_t i = 0; i < std::ssize(of.score); ++i) {
    const double score = of.score[static_cast<size_t>(i)];
    if (candidates.contains(i)) {
      if (least < 0 || score < of.score[static_cast<size_t>(least)]) least = i;
    } else if (most < 0 || score > of.score[static_cast<size_t>(most)]) {
      most = i;
    }
  }
  if (most < 0) return miss;
  const auto at = [&](const std::vector<double>& of_all, int64_t i) {
    return of_all[static_cast<size_t>(i)];
  };
  const double by = at(of.score, most) - at(of.score, least);
  // Written so that NaN counts as a miss.
  if (!(by <= 0.0)) miss.worst = by / std::max(at(of.size, most), at(of.size, least));
  return miss;
}

}  // namespace kv::reference
