#include "harness/experiments/task/questions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiments/task/columns.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/medians.h"
#include "harness/math/proportions.h"
#include "harness/measure/exposure.h"
#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

// A larger loss must be excluded before a cache may be called not worse.
constexpr double kTolerableLoss = 0.1;

// Questions that the cell alone answers. Folders of earlier versions lack `outcomes`: there at most as many as its right answers
// allow, and predictions with another likeliest token, and McNemar's p-value, which a difference of 0 or 1 leaves at 1.
int64_t only_cell(const results::Row& row) {
  if (!row[kOutcomes].empty()) return std::ranges::count(row[kOutcomes], 'c');
  const auto [fewer, more] = std::minmax(*row[kRight], *row[kFullRight]);
  int64_t each = std::min(fewer, *row[results::kBatch] - more);  // that both answer alone
  if (const results::Number& agree = row[measure::kTop1Agreement]) {
    const auto changed = std::llround((1 - *agree) * static_cast<double>(*row[measure::kPredictions]));
    each = std::clamp<int64_t>((changed - (more - fewer)) / 2, 0, each);
  }
  constexpr double kRounded = 1 + 1e-6;  // files keep nine digits
  while (each > 0 && math::mcnemar_p(each, each + more - fewer) > *row[kDifferenceP] * kRounded) --each;
  return each + std::max<int64_t>(0, *row[kRight] - *row[kFullRight]);
}

// Its predictions are the full f32 cache's.
bool is_the_full_cache(const results::Row* row) {
  return (*row)[measure::kKlMax].value_or(1) == 0 && (*row)[measure::kPChangeRms].value_or(1) == 0;
}

// A variant's answers in a configuration.
struct Answered {
  std::vector<results::Row*> cells;
  std::map<std::pair<int64_t, int64_t>, const results::Row*>
      places;  // by length and depth: the most questions
  std::vector<math::Stratum> strata;
  int64_t questions = 0, right = 0, full_right = 0, only_cell = 0;

  void pool() {
    for (const auto& [_, row] : places) {
      strata.push_back({*(*row)[kRight], *(*row)[kFullRight], *(*row)[results::kBatch]});
      questions += strata.back().trials;
      right += strata.back().first;
      full_right += strata.back().second;
      only_cell += experiments::only_cell(*row);
    }
  }
  int64_t only_full() const { return only_cell - right + full_right; }
  double p() const { return math::mcnemar_p(only_cell, only_full()); }
  // That of answers that differ from the full cache's wherever they can in one direction.
  double least_p() const { return math::mcnemar_p(0, std::max(full_right, questions - full_right)); }
};

// `needed`: the p-value that decides; absent where none can.
void give_verdict(const Answered& a, const results::Number& needed) {
  const math::ConfidenceInterval change =
      math::paired_difference_interval(a.only_cell, a.only_full(), a.questions);
  const char* verdict = !needed                        ? "cannot_be_decided"
                        : a.p() <= *needed             ? (a.right < a.full_right ? "worse" : "better")
                        : change.low > -kTolerableLoss ? "not_found_worse"
                                                       : "too_few_questions";
  for (results::Row* cell : a.cells) {
    results::Row& row = *cell;
    row[kPooledQuestions] = a.questions;
    row[kPooledRight] = a.right;
    row[kPooledFullRight] = a.full_right;
    row.set(kPooledChange, static_cast<double>(a.right - a.full_right) / static_cast<double>(a.questions),
            change);
    row[kPooledP] = a.p();
    row[kPooledPNeeded] = needed;
    row[kStratifiedP] = math::stratified_p(a.strata);
    std::string& given = row[results::kVerdict];
    if (measure::is_untested(row))
      given = results::kUntestedVerdict;
    else if (!is_the_full_cache(cell))
      given = verdict;
    else if (given != "baseline")
      given = "identical";
  }
}

// Holm's method over the variants that some answers could decide.
void compare_answers(const std::vector<const Answered*>& variants) {
  std::vector<double> least, p_values;
  for (const Answered* a : variants) least.push_back(a->least_p());
  const std::vector<bool> can_be = math::decidable(least, 1 - math::kConfidence);
  for (size_t i = 0; i < variants.size(); ++i)
    if (can_be[i]) p_values.push_back(variants[i]->p());
  const std::vector<double> confidences = math::holm_confidences(p_values);
  for (size_t i = 0, decided = 0; i < variants.size(); ++i)
    give_verdict(*variants[i], can_be[i] ? results::Number(1 - confidences[decided++]) : results::Number());
}

// A row's axes beside its place and its number of questions.
std::string configuration_of(const results::Row& row) {
  std::string text = row[results::kHost];
  for (const results::AnyColumn* axis : cell_table().columns) {
    if (!axis->title.empty() && !axis->is_x_axis && axis->name != kDepth.name &&
        axis->name != results::kBatch.name)
      text += "\n" + row.text(*axis);
  }
  return text;
}

}  // namespace

void judge_tasks(std::span<results::Row* const> cells) {
  std::map<std::string, std::map<std::string, Answered>> configurations;
  for (results::Row* row : cells) {
    if ((*row)[kUsable] == "no") (*row)[results::kVerdict].clear();
    if ((*row)[results::kStatus] != results::Status::kOk || (*row)[kUsable] == "no") continue;
    const std::string variant =
        (*row)[results::kVariant] + " " + (*row)[results::kArm] + " " + row->text(results::kChunkTokens);
    Answered& answered = configurations[configuration_of(*row)][variant];
    answered.cells.push_back(row);
    const results::Row*& place = answered.places[{*(*row)[results::kSeqLen], *(*row)[kDepth]}];
    if (!place || *(*place)[results::kBatch] < *(*row)[results::kBatch]) place = row;
  }
  for (auto& [_, variants] : configurations) {
    std::vector<const Answered*> compared;
    for (auto& [name, answered] : variants) {
      answered.pool();
      if (std::ranges::all_of(answered.cells, is_the_full_cache))
        give_verdict(answered, {});
      else
        compared.push_back(&answered);
    }
    compare_answers(compared);
  }
}

}  // namespace kv::experiments
