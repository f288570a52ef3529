#include "harness/experiments/break_even.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "harness/experiments/cell_text.h"
#include "harness/math/lines.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

// A line that misses a length which it has not seen by more is no description of the steps, nor of their crossings.
constexpr double kMostHeldOut = 0.25;
constexpr size_t kMostTold = 3;

struct CacheLine {
  std::string variant;
  math::Line line;
  double held_out;
  double first, last;  // measured lengths, tokens
};

struct BreakEven {
  const CacheLine* before;  // the faster one up to the crossing
  const CacheLine* after;
  math::Crossing crossing;
};

std::optional<CacheLine> line_of(const std::string& variant, const Cells& cells) {
  std::vector<math::LinePoint> points;
  for (const results::Row* cell : cells) {
    points.push_back({static_cast<double>(*(*cell)[results::kSeqLen]), *(*cell)[measure::kStepP50Us]});
  }
  const std::optional<math::Line> line = math::fit_line(points);
  const std::optional<double> held_out = math::held_out_error(points);
  if (!line || !held_out || *held_out > kMostHeldOut) return std::nullopt;
  const auto [first, last] = std::minmax_element(points.begin(), points.end(),
                                                 [](const auto& a, const auto& b) { return a.x < b.x; });
  return CacheLine{variant, *line, *held_out, first->x, last->x};
}

// Of each pair of caches that cross within the lengths of both.
std::vector<BreakEven> crossings_of(const std::vector<CacheLine>& lines) {
  std::vector<BreakEven> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t j = i + 1; j < lines.size(); ++j) {
      const std::optional<math::Crossing> at = math::crossing(lines[i].line, lines[j].line);
      if (!at || at->at < std::max(lines[i].first, lines[j].first) ||
          at->at > std::min(lines[i].last, lines[j].last))
        continue;
      const bool later_is_i = lines[i].line.slope < lines[j].line.slope;
      found.push_back({&lines[later_is_i ? j : i], &lines[later_is_i ? i : j], *at});
    }
  }
  return found;
}

// Narrowest first: these are the surest.
bool surer(const BreakEven& a, const BreakEven& b) {
  const auto width = [](const BreakEven& x) { return x.crossing.interval.high / x.crossing.interval.low; };
  return width(a) < width(b);
}

// Three digits: no length and no cost is known better.
std::string tokens_in_digits(double tokens) {
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(tokens)) - 2));
  return format("%.0f", std::round(tokens / unit) * unit);
}

std::string cost_text(const CacheLine& cache) {
  const bool milliseconds = std::abs(cache.line.at(cache.last)) >= 1000;
  const double unit = milliseconds ? 1e-3 : 1.0, each = 1e3 * unit;
  const math::ConfidenceInterval slope = cache.line.slope_interval();
  return format("%.3g", unit * cache.line.intercept) + (milliseconds ? " ms" : " us") +
         format(" and %.3g", each * cache.line.slope) + format(" (%.3g–", each * slope.low) +
         format("%.3g) for each 1,000 tokens", each * slope.high);
}

}  // namespace

std::string break_even(std::span<const results::Row* const> cells) {
  Cells timed;
  for (const results::Row* row : cells) {
    if ((*row)[measure::kStepP50Us] && (*row)[results::kSeqLen] && !results::is_aa_test(*row))
      timed.push_back(row);
  }
  std::string text;
  for (const auto& [name, own] : grouped(timed, [](const results::Row& row) {
         return row[results::kWorkload] + ", batch " + results::text_of(row[results::kBatch]) + ", " +
                results::text_of(row[results::kQHeads]) + "/" + results::text_of(row[results::kKvHeads]) +
                " heads of " + results::text_of(row[results::kHeadDim]) + ", " +
                results::text_of(row[results::kThreads]) + " threads";
       })) {
    std::vector<CacheLine> lines;
    for (const auto& [variant, its] :
         grouped(own, [](const results::Row& row) { return results::label_of(row); })) {
      if (const auto line = line_of(variant, its)) lines.push_back(*line);
    }
    std::vector<BreakEven> found = crossings_of(lines);
    std::stable_sort(found.begin(), found.end(), surer);
    const size_t told = std::min(found.size(), kMostTold);
    for (size_t i = 0; i < told; ++i) {
      const BreakEven& pair = found[i];
      text += "Break-even (" + name + "): " + pair.after->variant + " is faster than " +
              pair.before->variant + " from about " + tokens_in_digits(pair.crossing.at) + " tokens on (" +
              tokens_in_digits(pair.crossing.interval.low) + "–" +
              tokens_in_digits(pair.crossing.interval.high) + "). Its steps take " + cost_text(*pair.after) +
              ", the other's " + cost_text(*pair.before) + "; lengths left out are predicted within " +
              percent(std::max(pair.after->held_out, pair.before->held_out)) + ".\n";
    }
    if (found.size() > told)
      text += "Break-even: " + std::to_string(found.size() - told) + " more pairs cross\n";
  }
  return text;
}

}  // namespace kv::experiments
