#include "harness/experiments/break_even.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/experiments/experiment.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

// A line that misses a length which it has not seen by more is no description of the steps, nor of their crossings.
constexpr double kMostHeldOut = 0.25;
constexpr size_t kMostTold = 3;

std::optional<CacheLine> line_of(const Cells& cells) {
  std::vector<math::LinePoint> points;
  for (const results::Row* cell : cells) {
    points.push_back({static_cast<double>(*(*cell)[results::kSeqLen]), *(*cell)[measure::kStepP50Us]});
  }
  const std::optional<math::Line> line = math::fit_line(points);
  const std::optional<double> held_out = math::held_out_error(points);
  if (!line || !held_out || *held_out > kMostHeldOut) return std::nullopt;
  const auto [first, last] = std::minmax_element(points.begin(), points.end(),
                                                 [](const auto& a, const auto& b) { return a.x < b.x; });
  return CacheLine{cells.front(), *line, *held_out, first->x, last->x};
}

// Narrowest first: these are the surest.
bool surer(const BreakEven& a, const BreakEven& b) {
  const auto width = [](const BreakEven& x) { return x.crossing.interval.high / x.crossing.interval.low; };
  return width(a) < width(b);
}

constexpr int kDigits = 3;  // no length and no cost is known better

std::string cost_text(const CacheLine& cache) {
  const bool milliseconds = std::abs(cache.line.at(cache.last)) >= 1000;
  const double unit = milliseconds ? 1e-3 : 1.0, each = 1e3 * unit;
  const math::ConfidenceInterval slope = cache.line.slope_interval();
  return format("%.3g", unit * cache.line.intercept) + (milliseconds ? " ms" : " us") +
         format(" and %.3g", each * cache.line.slope) + format(" (%.3g–", each * slope.low) +
         format("%.3g) for each 1,000 tokens", each * slope.high);
}

}  // namespace

std::vector<Cells> steady_groups(std::span<const results::Row* const> cells) {
  Cells timed;
  for (const results::Row* row : cells) {
    const Experiment* experiment = find_experiment((*row)[results::kExperiment]);
    if (experiment && experiment->has_steady_steps && (*row)[measure::kStepP50Us] &&
        (*row)[results::kSeqLen] && !results::is_aa_test(*row))
      timed.push_back(row);
  }
  std::vector<Cells> groups;
  for (auto& [key, own] : grouped(timed, axes_key_of_any_length)) groups.push_back(std::move(own));
  return groups;
}

std::vector<BreakEven> crossings_of(const Cells& cells) {
  std::vector<CacheLine> lines;
  for (const auto& [variant, its] :
       grouped(cells, [](const results::Row& row) { return row[results::kVariant]; })) {
    if (const auto line = line_of(its)) lines.push_back(*line);
  }
  std::vector<BreakEven> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (size_t j = i + 1; j < lines.size(); ++j) {
      const std::optional<math::Crossing> at = math::crossing(lines[i].line, lines[j].line);
      if (!at || at->at < std::max(lines[i].first, lines[j].first) ||
          at->at > std::min(lines[i].last, lines[j].last))
        continue;
      const bool later_is_i = lines[i].line.slope < lines[j].line.slope;
      found.push_back({lines[later_is_i ? j : i], lines[later_is_i ? i : j], *at});
    }
  }
  std::stable_sort(found.begin(), found.end(), surer);
  return found;
}

std::string break_even(std::span<const results::Row* const> cells) {
  std::string text;
  for (const Cells& own : steady_groups(cells)) {
    const results::Row& first = *own.front();
    const std::vector<BreakEven> found = crossings_of(own);
    const size_t told = std::min(found.size(), kMostTold);
    for (size_t i = 0; i < told; ++i) {
      const BreakEven& pair = found[i];
      text += "Break-even (" + first[results::kWorkload] + ", batch " +
              results::text_of(first[results::kBatch]) + ", " + results::text_of(first[results::kQHeads]) +
              "/" + results::text_of(first[results::kKvHeads]) + " heads of " +
              results::text_of(first[results::kHeadDim]) + ", " + results::text_of(first[results::kThreads]) +
              " threads): " + results::label_of(*pair.after.row) + " is faster than " +
              results::label_of(*pair.before.row) + " from about " +
              rounded_tokens(pair.crossing.at, kDigits) + " tokens on (" +
              rounded_tokens(pair.crossing.interval.low, kDigits) + "–" +
              rounded_tokens(pair.crossing.interval.high, kDigits) + "). Its steps take " +
              cost_text(pair.after) + ", the other's " + cost_text(pair.before) +
              "; lengths left out are predicted within " +
              percent(std::max(pair.after.held_out, pair.before.held_out)) + ".\n";
    }
    if (found.size() > told)
      text += "Break-even: " + std::to_string(found.size() - told) + " more pairs cross\n";
  }
  return text;
}

}  // namespace kv::experiments
