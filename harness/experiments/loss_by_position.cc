#include "harness/experiments/loss_by_position.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "harness/experiments/cell_text.h"
#include "harness/experiments/experiment.h"
#include "harness/math/medians.h"
#include "harness/measure/prediction_columns.h"

namespace kv::experiments {
namespace {

constexpr double kNormal = 1e6;  // degrees of freedom of a bucket's interval, a bootstrap of many stretches
constexpr size_t kFewestBuckets = 3, kMostNamed = 5;

// The change of the loss in a bucket of positions.
struct BucketLoss {
  double doublings;  // log2 of its middle
  double value, error;
  int64_t first, last;
};

struct LossSlope {
  std::string variant;
  double value, error;  // nats for each doubling of the position
};

// The slope of the least squares. Its error is that of the buckets, which share no token, so that it holds for losses that are no
// straight line as well.
LossSlope slope_of(const std::string& variant, const std::vector<BucketLoss>& buckets) {
  double mean = 0, squares = 0, value = 0, variance = 0;
  for (const BucketLoss& b : buckets) mean += b.doublings / static_cast<double>(buckets.size());
  for (const BucketLoss& b : buckets) squares += (b.doublings - mean) * (b.doublings - mean);
  for (const BucketLoss& b : buckets) {
    const double share = (b.doublings - mean) / squares;
    value += share * b.value;
    variance += share * share * b.error * b.error;
  }
  return {variant, value, std::sqrt(variance)};
}

// Labels of the cells of the longest length, by the cell's name.
std::map<std::string, std::string> longest_readings(std::span<const results::Row> cells) {
  std::map<std::string, std::string> labels;
  int64_t longest = 0;
  for (const results::Row& row :
       cells_with(&Experiment::reads_whole_windows, std::vector(cells.begin(), cells.end()))) {
    if (row[results::kVerdict] == results::kUntestedVerdict) continue;
    const int64_t length = row[results::kSeqLen].value_or(0);
    if (length > longest) labels.clear();
    longest = std::max(longest, length);
    if (length == longest) labels.emplace(row[results::kCell], results::label_of(row));
  }
  return labels;
}

std::string listed_caches(const std::vector<std::string>& caches) {
  std::string text;
  for (size_t i = 0; i < std::min(caches.size(), kMostNamed); ++i) text += (i ? ", " : "") + caches[i];
  return caches.size() > kMostNamed ? text + " and " + std::to_string(caches.size() - kMostNamed) + " more"
                                    : text;
}

}  // namespace

std::string loss_by_position(std::span<const results::Row> cells, std::span<const results::Row> positions) {
  const std::map<std::string, std::string> longest = longest_readings(cells);
  std::map<std::string, std::pair<std::string, std::vector<BucketLoss>>> by_cell;
  for (const results::Row& row : positions) {
    const results::Number &value = row[measure::kLossChange], &low = row[measure::kLossChange.low],
                          &high = row[measure::kLossChange.high];
    const results::Integer &first = row[measure::kPositionFirst], &last = row[measure::kPositionLast];
    if (!longest.contains(row[results::kCell]) || !value || !low || !high || !first || !last) continue;
    const double middle =
        std::sqrt(std::max(1.0, static_cast<double>(*first)) * static_cast<double>(*last + 1));
    auto& [variant, buckets] = by_cell[row[results::kCell]];
    variant = longest.at(row[results::kCell]);
    const double error = (*high - *low) / 2 / math::student_quantile(math::kConfidence, kNormal);
    buckets.push_back({std::log2(middle), *value, error, *first, *last});
  }
  std::vector<LossSlope> slopes;
  std::pair<int64_t, int64_t> range;
  for (const auto& [cell, of] : by_cell) {
    if (of.second.size() < kFewestBuckets) continue;
    const LossSlope slope = slope_of(of.first, of.second);
    if (slope.error == 0) continue;  // the full cache's own
    slopes.push_back(slope);
    range = {of.second.front().first, of.second.back().last};
  }
  if (slopes.empty()) return "";
  std::stable_sort(slopes.begin(), slopes.end(),
                   [](const LossSlope& a, const LossSlope& b) { return a.value > b.value; });
  const double reach =
      math::student_quantile(1 - (1 - math::kConfidence) / static_cast<double>(slopes.size()), kNormal);
  std::vector<std::string> growing, falling, unclear;
  for (const LossSlope& s : slopes) {
    const double low = s.value - reach * s.error, high = s.value + reach * s.error;
    const std::string said = s.variant + " " + format("%+.2g", s.value) + " nats (" + format("%.2g", low) +
                             " to " + format("%.2g", high) + ")";
    (low > 0 ? growing : high < 0 ? falling : unclear).push_back(low > 0 || high < 0 ? said : s.variant);
  }
  std::string text = "Length: with each doubling of the position, from " + std::to_string(range.first) +
                     " to " + std::to_string(range.second) + ", the loss";
  if (!growing.empty())
    text += " grows for " + listed_caches(growing) + ": one measured at fewer tokens is too small";
  if (!falling.empty())
    text += (growing.empty() ? "" : "; it") + std::string(" falls for ") + listed_caches(falling);
  if (!unclear.empty())
    text += (growing.empty() && falling.empty() ? "" : "; it") + std::string(" does not surely change for ") +
            listed_caches(unclear);
  return text + "\n";
}

}  // namespace kv::experiments
