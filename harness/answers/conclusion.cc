#include "harness/answers/conclusion.h"

#include <algorithm>

#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/measure/exposure.h"
#include "harness/measure/noise.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::answers {
namespace {

using experiments::Measured;

Cells measured_of(const Cells& cells) {
  Cells found;
  std::ranges::copy_if(cells, std::back_inserter(found), [](const Row* row) {
    return (*row)[results::kStatus] == results::Status::kOk && !results::is_aa_test(*row);
  });
  return found;
}

Measured measured(const Reach& reach) { return {reach.value, reach.low, reach.high}; }

std::string pace_text(const Row& row, const Measure& measure) {
  const std::optional<Reach> reach = pace(row, measure);
  if (row[results::kVerdict] == "baseline") return "the baseline itself";
  if (!reach) return measure.write(own(row, measure)->value);
  return std::string(experiments::cell_table().at(measure.ratio).heading) + " " +
         experiments::with_interval(reach->value, reach->low, reach->high, "%.2f");
}

std::string size_text(const Row& row, const Measure& measure) {
  if (measure.column != results::kHeldBytesPerToken.name)
    return measure.write(own(row, measure)->value) +
           (row[results::kPhase] == "prefill" ? " workspace" : " at the peak");
  const std::string layers = experiments::layers_text(row, "");
  return experiments::format("%.0f bytes/token", own(row, measure)->value) +
         (layers.empty() ? "" : ", " + layers);
}

Answer answer(const char* question, const Ranking& ranking, bool is_limited, Measured value,
              std::string text) {
  const Row& best = ranking.best();
  return {question + (is_limited ? " of " + std::string(error_of(best).limit_text) : ""),
          &best,
          ranking.tied.size(),
          value,
          error_of(best).measured(best),
          std::move(text)};
}

std::string note_of(const Row& row) {
  std::string note = measure::untested_text(row);
  if (row[results::kVerdict] != results::kUntestedVerdict)
    note = row[results::kKeepsAll] == 1 ? kIdle : kept_text(row);
  if (row[results::kOracle].empty()) return note;
  return note + (note.empty() ? "" : ", ") + "an oracle: it " + row[results::kOracle];
}

Finding finding_of(const Cells& cells) {
  Finding finding;
  finding.cells = cells;
  finding.answers = answers_at(cells);
  const Cells tested = measured_of(cells), named = nameable(tested);
  for (const Kind kind : kKinds)
    if (!finding.main) finding.main = measure_of(kind, tested);
  const Measure* main = finding.main;
  Cells order = main ? rank(tested, *main).rows : Cells();
  std::ranges::copy_if(tested, std::back_inserter(order),
                       [&](const Row* row) { return std::ranges::find(order, row) == order.end(); });
  // Answers have verdicts over all questions of a configuration.
  const bool has_best =
      main && main->column != "accuracy" && (main->kind != Kind::kTime || are_comparable(tested));
  const Ranking best = has_best ? rank(within_limit(named), *main) : Ranking();
  const std::vector<std::string> places = fronts(order);
  const Measure* time = measure_of(Kind::kTime, tested);
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_best = !best.rows.empty() && &best.best() == order[i];
    const bool is_tied = std::ranges::find(best.tied, order[i]) != best.tied.end();
    finding.ranked.push_back({order[i], told(*order[i], time), places[i],
                              is_best   ? "best"
                              : is_tied ? "tied"
                                        : "",
                              note_of(*order[i])});
  }
  for (const Row* row : cells) {
    if (results::is_aa_test(*row) && (*row)[measure::kRatioP50] && (*row)[measure::kRatioP50.low] &&
        (*row)[measure::kRatioP50.high])
      finding.tests.push_back({test_text(*row), measure::differs_from_itself(*row)});
  }
  finding.sentences = sentences_of(cells, tested);
  return finding;
}

}  // namespace

std::vector<Answer> answers_at(const Cells& cells) {
  const Cells named = nameable(measured_of(cells)), within = within_limit(named);
  const bool is_limited = within.size() < named.size();
  std::vector<Answer> found;
  if (!are_comparable(named)) {
    const bool is_noisy = std::ranges::any_of(named, [](const Row* row) {
      return (*row)[results::kVerdict] == "baseline" && !(*row)[measure::kNoise].empty();
    });
    found.push_back({"fastest",
                     nullptr,
                     0,
                     {},
                     {},
                     is_noisy ? "none: the baseline is noisy" : "none: the baseline differs from itself"});
  } else if (const Measure* time = measure_of(Kind::kTime, within, 1)) {
    const Ranking ranking = rank(within, *time);
    const std::optional<Reach> reach = has_one_baseline(within) ? pace(ranking.best(), *time) : std::nullopt;
    found.push_back(answer("fastest", ranking, is_limited, measured(reach.value_or(ranking.reaches.front())),
                           pace_text(ranking.best(), *time)));
  }
  if (const Measure* bytes = measure_of(Kind::kBytes, within, 1)) {
    const Ranking ranking = rank(within, *bytes);
    found.push_back(answer("smallest", ranking, is_limited, measured(ranking.reaches.front()),
                           size_text(ranking.best(), *bytes)));
  }
  if (const Ranking ranking = rank_by_error(named); !ranking.rows.empty())
    found.push_back(answer("most exact", ranking, false, measured(ranking.reaches.front()),
                           error_of(ranking.best()).text(ranking.best())));
  return found;
}

std::vector<Cells> points_of(const Cells& cells) {
  std::vector<Cells> points;
  for (auto& [key, own] : experiments::grouped(cells, experiments::axes_key))
    points.push_back(std::move(own));
  return points;
}

std::vector<Finding> conclude(const Cells& cells) {
  std::vector<Finding> found;
  for (const Cells& own : points_of(cells)) found.push_back(finding_of(own));
  return found;
}

}  // namespace kv::answers
