#include "harness/answers/conclusion.h"

#include <algorithm>
#include <cmath>

#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/io/text.h"
#include "harness/measure/noise.h"
#include "harness/measure/time_columns.h"
#include "harness/planner/serving_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::answers {
namespace {

using Texts = std::vector<std::string>;

constexpr double kFewBits = 5;  // stored bits a value: below, codecs differ in what they lose
constexpr size_t kNamed = 3;    // tied variants in a sentence
constexpr double kFar = 1.5;    // times the baseline's time: a variant that is worth a warning

std::string quoted(const std::string& name) { return "`" + name + "`"; }
std::string called(const Row& row) { return quoted(experiments::called(row)); }

template <class Holds>
Cells those(const Cells& rows, Holds holds) {
  Cells found;
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const Row* row) { return holds(*row); });
  return found;
}

// "a, b and c".
std::string listed(const Texts& names) {
  if (names.size() < 2) return io::joined(names);
  return io::joined(std::vector(names.begin(), names.end() - 1)) + " and " + names.back();
}

// The names that are tied with the best, so that it is not certain.
std::string ties(const Ranking& ranking) {
  Texts names;
  for (const Row* row : ranking.tied) names.push_back(called(*row));
  const size_t count = names.size();
  if (count == 0)
    return ranking.rows.size() > 1 && ranking.has_intervals() ? "; no other is statistically tied" : "";
  if (count > kNamed + 1) {
    names.resize(kNamed);
    names.push_back(std::to_string(count - kNamed) + " more");
  }
  return "; " + listed(names) + (count == 1 ? " is " : " are ") +
         (ranking.has_intervals() ? "statistically tied" : "equal, as printed");
}

std::string over_itself(const Row& row) {
  const Reach reach{*row[measure::kRatioP50], *row[measure::kRatioP50.low], *row[measure::kRatioP50.high]};
  return times_text(reach.value) + " times as long as itself (" + span_text(reach) + ")";
}

std::string text_of(const Row& row, std::string_view column) {
  return row.text(experiments::cell_table().at(column));
}

std::string kept_of(const Row& row) {
  return io::grouped(*row[results::kKeptTokens]) + " of " + io::grouped(*row[results::kSeqLen]) + " tokens";
}

class Point {
 public:
  Point(const Cells& cells, const Cells& measured) : cells_(cells), rows_(nameable(measured)) {
    time_ = measure_of(Kind::kTime, measured);
    rate_ = measure_of(Kind::kRate, measured);
    bytes_ = measure_of(Kind::kBytes, measured);
    error_ = measure_of(Kind::kError, measured);
  }

  Texts sentences() const {
    Texts said;
    const Measure* main = time_ ? time_ : rate_;
    if (time_ && !are_comparable(rows_))
      said.push_back("no variant is called faster or slower: " + doubts() + ".");
    else if (main)
      said.push_back((main->column == "accuracy" ? about_answers() : about_speed(*main)) + ".");
    about_latencies(said);
    const Cells few = those(rows_, [](const Row& row) {
      return row[results::kBitsPerValue] && *row[results::kBitsPerValue] <= kFewBits && !evicts(row);
    });
    const Cells lossy = those(rows_, [](const Row& row) { return !is_lossless(row); });
    if (error_ && few.size() > 1)
      said.push_back(about_least(few, *error_, " of those with at most 5 bits per value"));
    else if (error_ && !main && lossy.size() > 1)
      said.push_back(about_least(lossy, *error_, " of the lossy caches"));
    else if (!error_ && !main && bytes_)
      said.push_back(about_least(within_limit(rows_), *bytes_, limit_of(*bytes_)));
    std::erase(said, "");
    return said;
  }

 private:
  std::string label_of(const std::string& variant) const {
    const auto found =
        std::ranges::find_if(cells_, [&](const Row* row) { return (*row)[results::kVariant] == variant; });
    return quoted(found == cells_.end() ? variant : results::label_of(**found));
  }

  std::string amount(const Row& row, const Measure& measure) const {
    const std::optional<Reach> ratio = pace(row, measure);
    const Reach value = *own(row, measure);
    if (ratio && row[results::kVerdict] == "baseline")
      return measure.write(value.value) + ", the baseline itself";
    if (ratio && !row[results::kVersus].empty())
      return "it takes " + times_text(ratio->value) + " times as long as " + label_of(row[results::kVersus]) +
             " (" + span_text(*ratio) + ")";
    std::string text =
        measure.write(value.value) + (measure.unit.empty() ? "" : " " + std::string(measure.unit));
    if (!value.is_exact())
      text +=
          " (" + measure.write(value.low) + (value.low < 0 ? " to " : "–") + measure.write(value.high) + ")";
    return text;
  }

  std::string best_of(const Ranking& ranking, const Measure& measure, const std::string& of) const {
    return called(ranking.best()) + " " + std::string(measure.is_best) + of + ": " +
           amount(ranking.best(), measure);
  }

  std::string about_least(const Cells& rows, const Measure& measure, const std::string& of) const {
    const Ranking ranking = rank(rows, measure);
    return ranking.rows.empty() ? "" : best_of(ranking, measure, of) + ties(ranking) + ".";
  }

  std::string doubts() const {
    Texts why;
    for (const Row* row : rows_) {
      if ((*row)[results::kVerdict] == "baseline" && !(*row)[measure::kNoise].empty())
        why.push_back("the baseline " + called(*row) + " is noisy (" + (*row)[measure::kNoise] + ")");
    }
    for (const Row* row : cells_) {
      if (measure::differs_from_itself(*row))
        why.push_back("the baseline " + called(*row) + " takes " + over_itself(*row));
    }
    return io::joined(why, " and ");
  }

  // The limit of error, where it leaves out any that were measured.
  std::string limit_of(const Measure& measure) const {
    if (rank(within_limit(rows_), measure).rows.size() == rank(rows_, measure).rows.size()) return "";
    return " of those with " + std::string(error_of(*rows_.front()).said);
  }

  std::string about_speed(const Measure& measure) const {
    const Cells within = within_limit(rows_);
    const Ranking ranking = rank(within, measure);
    if (ranking.rows.empty())
      return rows_.empty() ? "no variant was put to the test"
                           : "no variant has " + std::string(error_of(*rows_.front()).said);
    const Row& best = ranking.best();
    std::string said = best_of(ranking, measure, limit_of(measure));
    if (best[results::kKeepsAll] == 1) said += " (" + std::string(kIdle) + ")";
    if (evicts(best)) {
      const std::string kept = kept_text(best);
      said += kept.empty() ? ", but evicts tokens" : ", but " + kept;
      const Ranking keeping = rank(those(within, [](const Row& row) { return !evicts(row); }), measure);
      if (!keeping.rows.empty()) said += "; " + best_of(keeping, measure, " of those that keep every token");
    }
    return said + ties(ranking) + slowest(best, measure);
  }

  std::string slowest(const Row& best, const Measure& measure) const {
    const Row* slowest = nullptr;
    for (const Row* row : rows_) {
      const std::optional<Reach> reach = pace(*row, measure);
      if (row != &best && reach && own(*row, measure) &&
          (!slowest || reach->value > pace(*slowest, measure)->value))
        slowest = row;
    }
    if (!slowest || !has_one_baseline(rows_) || pace(*slowest, measure)->low <= kFar) return "";
    return "; " + called(*slowest) + " is slowest: " + amount(*slowest, measure);
  }

  void about_latencies(Texts& said) const {
    const Cells served = those(rows_, [](const Row& row) {
      return row.number("requests_per_s") && row[planner::kRefused].value_or(0) == 0;
    });
    for (const Measure& measure : measures()) {
      if (measure.kind != Kind::kServed || served.size() < 2) continue;
      said.push_back(about_least(within_limit(served), measure, ""));
    }
  }

  // Verdicts over all questions of a configuration, of whose caches there is one row each.
  std::string about_answers() const {
    const Cells judged = those(rows_, [](const Row& row) { return !row[results::kVerdict].empty(); });
    if (judged.empty()) return "the full f32 cache itself answers too few questions";
    if (std::ranges::any_of(judged, [](const Row* row) { return text_of(*row, "pooled_questions").empty(); }))
      return "an earlier version judged each cell alone; measure again to judge all questions together";
    const size_t worse =
        those(judged, [](const Row& row) { return row[results::kVerdict] == "worse"; }).size();
    Cells well = those(judged, [](const Row& row) {
      const std::string& verdict = row[results::kVerdict];
      return verdict == "baseline" || verdict == "identical" || verdict == "better" ||
             verdict == "not_found_worse";
    });
    const std::string all = std::to_string(judged.size());
    const size_t unclear = judged.size() - worse - well.size();
    Texts said;
    if (worse > 0)
      said.push_back(std::to_string(worse) + " of " + all + " caches answer worse than the full f32 cache");
    if (!well.empty()) {
      const Row& best = **std::ranges::min_element(well, {}, [](const Row* row) {
        return std::pair((*row)[results::kHeldBytesPerToken].value_or(0), (*row)[results::kVariant]);
      });
      said.push_back(called(best) + " is the smallest that loses at most 10 points: with " +
                     io::human_bytes(std::llround(best[results::kHeldBytesPerToken].value_or(0))) +
                     " per token it answers " + text_of(best, "pooled_right") + " of " +
                     text_of(best, "pooled_questions") + " questions, the full cache " +
                     text_of(best, "pooled_full_right"));
    }
    if (unclear > 0)
      said.push_back("there were too few questions to " +
                     (said.empty() ? "say whether any of " + std::to_string(unclear) +
                                         " caches answers worse than the full f32 cache"
                                   : "judge " + std::to_string(unclear) + " more"));
    return io::joined(said, "; ");
  }

  const Cells& cells_;
  Cells rows_;  // that an answer may name
  const Measure *time_, *rate_, *bytes_, *error_;
};

}  // namespace

Texts sentences_of(const Cells& cells, const Cells& measured) { return Point(cells, measured).sentences(); }

std::string kept_text(const Row& row) {
  if (!evicts(row) || row[results::kKeptTokens].value_or(0) == 0 || !row[results::kSeqLen]) return "";
  return "keeps " + kept_of(row);
}

std::string test_text(const Row& row) {
  const std::string measured = experiments::called(row) + " takes " + over_itself(row);
  if (!measure::differs_from_itself(row)) return "A/A test passed: " + measured + ".";
  return "A/A test failed: " + measured + "; differences of " +
         experiments::format("%.0f%%", 100 * std::abs(*row[measure::kRatioP50] - 1)) + " are noise here.";
}

}  // namespace kv::answers
