#include "harness/answers/ranking.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>

#include "harness/experiments/experiment.h"
#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"

namespace kv::answers {
namespace {

using Printed = std::function<std::string(const Row&)>;

// By their intervals; values without any, if they are equal as `printed`.
bool meets(const Reach& best, const Reach& other, const std::string& printed,
           const std::string& other_printed) {
  if (best.is_exact() && other.is_exact() && best.value != 1.0 && other.value != 1.0)
    return printed == other_printed;
  return other.low <= best.high;
}

Ranking ordered(const Cells& rows, const std::vector<Reach>& reaches, const Printed& printed) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return reaches[a].value < reaches[b].value; });
  Ranking ranking;
  for (const size_t at : order) {
    ranking.rows.push_back(rows[at]);
    ranking.reaches.push_back(reaches[at]);
  }
  for (size_t i = 1; i < order.size(); ++i) {
    if (meets(ranking.reaches.front(), ranking.reaches[i], printed(ranking.best()),
              printed(*ranking.rows[i])))
      ranking.tied.push_back(ranking.rows[i]);
  }
  return ranking;
}

// The values that rank rows with the measure: ratios if all have one to the same baseline, else the measure itself.
std::vector<Reach> reaches_of(const Cells& rows, const Measure& measure) {
  constexpr double kNoEnd = std::numeric_limits<double>::infinity();
  const bool by_pace = has_one_baseline(rows) && std::ranges::all_of(rows, [&](const Row* row) {
                         return pace(*row, measure).has_value();
                       });
  const bool decides = measure.kind != Kind::kTime || are_comparable(rows);
  std::vector<Reach> reaches;
  for (const Row* row : rows) {
    const Reach value = *own(*row, measure);
    if (!decides)
      reaches.push_back({value.value, -kNoEnd, kNoEnd});
    else if (measure.kind == Kind::kRate)
      reaches.push_back({-value.value, -value.high, -value.low});
    else
      reaches.push_back(by_pace ? *pace(*row, measure) : value);
  }
  return reaches;
}

double rounded(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

// Bytes and errors.
std::vector<double> costs_of(const Row& row, const Measure* bytes, const Measure* error) {
  std::vector<double> costs;
  if (bytes) costs.push_back(rounded(own(row, *bytes)->value, 3));
  if (error) costs.push_back(is_lossless(row) ? 0.0 : rounded(own(row, *error)->value, 2));
  return costs;
}

// A row of those that the front compares.
struct Rival {
  size_t at;
  std::vector<double> costs;
  Reach pace;  // 0 where nothing was timed
  std::string printed;
};

std::string place_of(const Rival& own, const std::vector<Rival>& rivals, bool is_timed) {
  bool is_behind = false;
  for (const Rival& other : rivals) {
    if (other.at == own.at || !std::ranges::equal(other.costs, own.costs, std::ranges::less_equal()))
      continue;
    const bool is_faster = other.pace.value < own.pace.value;
    const bool is_better = other.pace.value == own.pace.value && other.costs != own.costs;
    if ((is_faster && !meets(other.pace, own.pace, other.printed, own.printed)) || (is_better && !is_timed))
      return "";
    is_behind |= is_faster || is_better;
  }
  return is_behind ? "perhaps" : "front";
}

}  // namespace

bool Ranking::has_intervals() const {
  return !std::ranges::all_of(reaches, [](const Reach& reach) { return reach.is_exact(); });
}

Ranking rank(const Cells& rows, const Measure& measure) {
  Cells known;
  std::ranges::copy_if(rows, std::back_inserter(known),
                       [&](const Row* row) { return own(*row, measure).has_value(); });
  return ordered(known, reaches_of(known, measure),
                 [&](const Row& row) { return measure.write(own(row, measure)->value); });
}

Ranking rank_by_error(const Cells& rows) {
  Cells known;
  std::vector<Reach> reaches;
  for (const Row* row : rows) {
    const experiments::Measured error = error_of(*row).measured(*row);
    if (!error.value) continue;
    known.push_back(row);
    reaches.push_back({*error.value, *error.low, *error.high});
  }
  return ordered(known, reaches, [](const Row& row) { return error_of(row).in_short(row); });
}

bool are_comparable(const Cells& rows) {
  return std::ranges::none_of(
      rows, [](const Row* row) { return (*row)[results::kVerdict] == results::kUnreliable; });
}

bool has_one_baseline(const Cells& rows) {
  std::set<std::string> versus;
  int baselines = 0;
  for (const Row* row : rows) {
    baselines += (*row)[results::kVerdict] == "baseline";
    if (!(*row)[results::kVersus].empty()) versus.insert((*row)[results::kVersus]);
  }
  return baselines <= 1 && versus.size() <= 1;
}

Cells nameable(const Cells& rows) {
  Cells found;
  std::ranges::copy_if(rows, std::back_inserter(found), [](const Row* row) {
    return (*row)[results::kOracle].empty() && (*row)[results::kVerdict] != results::kUntestedVerdict;
  });
  return found;
}

const experiments::ErrorMeasure& error_of(const Row& row) {
  const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
  return experiment ? *experiment->error : experiments::kOutputError;
}

bool keeps_limit(const Row& row) {
  return error_of(row).measured(row).value.value_or(0) <= error_of(row).limit;
}

Cells within_limit(const Cells& rows) {
  Cells found;
  std::ranges::copy_if(rows, std::back_inserter(found), [](const Row* row) { return keeps_limit(*row); });
  return found;
}

bool is_lossless(const Row& row) {
  const auto is_zero = [&](const results::NumberColumn& column) { return row[column] && *row[column] == 0; };
  return (is_zero(verify::kErrCodecRelL2) && is_zero(verify::kErrRetentionRelL2)) ||
         is_zero(measure::kKlMean);
}

bool evicts(const Row& row) {
  if (row[results::kKeepsAll]) return *row[results::kKeepsAll] == 0;
  if (row[verify::kErrRetentionRelL2]) return *row[verify::kErrRetentionRelL2] > 0;
  return row[results::kKeptTokens] && row[results::kSeqLen] &&
         *row[results::kKeptTokens] < *row[results::kSeqLen];
}

std::vector<std::string> fronts(const Cells& rows) {
  const Measure *time = measure_of(Kind::kTime, rows), *rate = measure_of(Kind::kRate, rows),
                *bytes = measure_of(Kind::kBytes, rows), *error = measure_of(Kind::kError, rows);
  std::vector<std::string> places(rows.size());
  const std::array all{time, rate, bytes, error};
  if (std::ranges::count(all, nullptr) > 2) return places;
  Cells compared;
  std::vector<Rival> rivals;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto has = [&](const Measure* measure) { return !measure || own(*rows[i], *measure); };
    if (!(*rows[i])[results::kOracle].empty() || !std::ranges::all_of(all, has)) continue;
    compared.push_back(rows[i]);
    rivals.push_back({i, costs_of(*rows[i], bytes, error), {0, 0, 0}, ""});
  }
  if (const Measure* fast = time ? time : rate) {
    const std::vector<Reach> paces = reaches_of(compared, *fast);
    for (size_t i = 0; i < rivals.size(); ++i) {
      rivals[i].pace = paces[i];
      rivals[i].printed = fast->write(own(*compared[i], *fast)->value);
    }
  }
  for (const Rival& rival : rivals) places[rival.at] = place_of(rival, rivals, time || rate);
  return places;
}

}  // namespace kv::answers
