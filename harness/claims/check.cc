#include "harness/claims/check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "harness/claims/evaluation.h"

namespace kv::claims {
namespace {

// The best first.
enum class Agreement { kAgrees, kAllows, kUndecided, kDisagrees };

Agreement of_values(const Figure& figure, const Window& window, const math::ConfidenceInterval& interval) {
  if (window.contains(interval.low) && window.contains(interval.high)) return Agreement::kAgrees;
  if (interval.low > window.high) return Agreement::kDisagrees;
  if (figure.relation == Figure::Relation::kUpTo && interval.high <= window.high) return Agreement::kAllows;
  return interval.high < window.low ? Agreement::kDisagrees : Agreement::kUndecided;
}

// Of a duration the least that is possible, of anything else the most.
Agreement of_bound(const Figure& figure, const Window& window, double bound) {
  const Window possible = figure.duration ? Window{.low = bound} : Window{.high = bound};
  if (possible.high < window.low || window.high < possible.low) return Agreement::kDisagrees;
  const bool all = window.low <= possible.low && possible.high <= window.high;
  return all ? Agreement::kAgrees : Agreement::kAllows;
}

// Which of two is ahead is a matter of how far each varies: one measurement of each does not say.
bool without_interval(const Statement& s, const Evaluated& found) {
  return s.check == "ordering" && found.measured_once;
}

// A statement under one reading.
struct Trial {
  Reading reading;
  UnitReading unit;
  Window window;
  Evaluated found;
  Agreement computed = Agreement::kAgrees, measured = Agreement::kAgrees;

  Agreement agreement() const { return std::max(computed, measured); }
};

Trial trial_of(const Statement& s, const Reading& reading, const UnitReading& unit, Evaluated found) {
  Trial trial{reading, unit, s.published.window(s.tolerance, unit), std::move(found)};
  if (const auto& computed = trial.found.computed) {
    trial.computed = kind_of(s).bounds ? of_bound(s.published, trial.window, *computed)
                                       : of_values(s.published, trial.window, {*computed, *computed});
  }
  if (const auto& measured = trial.found.measured) {
    trial.measured = without_interval(s, trial.found)
                         ? Agreement::kUndecided
                         : of_values(s.published, trial.window, measured->interval);
  }
  return trial;
}

std::vector<Trial> trials(const Statement& s, const Quantities& quantities, tables::CountedBytes& counted) {
  std::vector<Trial> all;
  for (const double k : {1024.0, 1000.0}) {
    for (const UnitReading& unit : s.published.units) {
      const Reading reading{k, unit.prefixes};
      const Evaluated found = evaluate(s, reading, quantities, counted);
      if (k == 1000.0 && !found.used_k) return all;
      all.push_back(trial_of(s, reading, unit, found));
    }
  }
  return all;
}

std::string with_interval(const Figure& figure, const UnitReading& unit, const math::Estimate& e) {
  const std::string value = figure.in_unit(e.value, unit);
  if (e.interval.low == e.interval.high) return value;
  if (!std::isfinite(e.interval.low)) return value + " (too few repetitions for an interval)";
  return value + " (" + short_number(e.interval.low / unit.factor) + "–" +
         short_number(e.interval.high / unit.factor) + ")";
}

std::string times_off(const Figure& figure, double value) {
  if (figure.truth || figure.exponent() || figure.relation != Figure::Relation::kEqual || value <= 0 ||
      figure.low <= 0)
    return "";
  const double share = figure.low * figure.units.front().factor / value;
  if (share > 0.5 && share < 2) {
    const double percent = std::round(std::abs(share - 1) * 1000) / 10;
    return ", the published figure " + short_number(percent) + (share < 1 ? " % less" : " % more");
  }
  return ", the published figure " + short_number(share) + " times that";
}

// The first reading of those under which the figure comes out best.
const Trial& best_of(const std::vector<Trial>& all) {
  return *std::min_element(all.begin(), all.end(),
                           [](const Trial& a, const Trial& b) { return a.agreement() < b.agreement(); });
}

// "with K = 1024 and MB = MiB"; empty where all was read as it is mostly meant.
std::string reading_text(const Figure& figure, const Trial& trial) {
  const bool usual_k = !trial.found.used_k || trial.reading.k == 1024;
  if (usual_k && trial.unit.read_as.empty()) return "";
  std::string text = trial.found.used_k ? "K = " + short_number(trial.reading.k) : "";
  if (!trial.unit.read_as.empty())
    text += (text.empty() ? "" : " and ") + figure.units.front().name + " = " + trial.unit.read_as;
  return "with " + text;
}

// What was computed under every reading: "2 x 6 layers … = 5.033 GB or 4.688 GiB; with K = 1000 4.915 GB
// or 4.578 GiB".
std::string workings(const Figure& figure, const std::vector<Trial>& all) {
  const Trial& first = all.front();
  if (!first.found.computed) return "";
  std::string text = first.found.arithmetic + " = ";
  for (const Trial& trial : all) {
    if (!trial.unit.read_as.empty() && trial.unit.read_as != trial.unit.name)
      continue;  // lies between the two
    if (&trial != &first) text += trial.unit.read_as.empty() ? "; with K = 1000 " : " or ";
    text += figure.in_unit(*trial.found.computed, trial.unit);
  }
  return text + times_off(figure, *first.found.computed);
}

// "29.5% to 50.5% would agree"; empty of a yes or no.
std::string what_agrees(const Figure& figure, const Trial& trial) {
  if (figure.truth) return "";
  const auto edge = [&](double value) { return figure.in_unit(value, trial.unit); };
  const Window& window = trial.window;
  const bool open =
      figure.relation == Figure::Relation::kBelow || figure.relation == Figure::Relation::kAbove;
  if (std::isinf(window.low)) return (open ? "less than " : "at most ") + edge(window.high) + " would agree";
  if (std::isinf(window.high)) return (open ? "more than " : "at least ") + edge(window.low) + " would agree";
  return edge(window.low) + " to " + edge(window.high) + " would agree";
}

std::string disagreement(const Statement& s, const std::vector<Trial>& all, const Trial& chosen) {
  if (chosen.computed != Agreement::kDisagrees) return what_agrees(s.published, chosen);
  const char* end = s.published.duration ? ": the least that is possible" : ": the most that is possible";
  return workings(s.published, all) + (kind_of(s).bounds && !s.published.truth ? end : "");
}

std::string reason_of(const Statement& s, const std::vector<Trial>& all, const Trial& chosen) {
  const Figure& figure = s.published;
  switch (chosen.agreement()) {
    case Agreement::kAgrees:
      return reading_text(figure, chosen);
    case Agreement::kAllows:
      if (chosen.computed != Agreement::kAllows)
        return "less than the figure, which is the most that is reached";
      if (figure.truth) return "nothing that is computed forbids it; nothing was run";
      return "a bound: " + figure.in_unit(*chosen.found.computed, chosen.unit) + " is the " +
             (figure.duration ? "least" : "most") + " that is possible";
    case Agreement::kUndecided:
      if (without_interval(s, chosen.found))
        return "measured once, without an interval: seeds, or a metric that has one, would tell";
      return "this run cannot tell: " + what_agrees(figure, chosen) + ", and its interval crosses that edge";
    case Agreement::kDisagrees:
      break;
  }
  return disagreement(s, all, chosen);
}

const Verdict& verdict_of(const Statement& s, const Trial& trial) {
  // What a time is here says nothing of what it was where the source measured it.
  const bool same_setting = s.exact && (trial.computed == Agreement::kDisagrees || !s.depends_on_machine());
  switch (trial.agreement()) {
    case Agreement::kAgrees:
      return s.by_construction.empty() ? kReproduced : kByConstruction;
    case Agreement::kAllows:
      return s.by_construction.empty() ? kConsistent : kByConstruction;
    case Agreement::kUndecided:
      return kInconclusive;
    case Agreement::kDisagrees:
      break;
  }
  return same_setting ? kContradicted : kDiffers;
}

Outcome outcome_of(const Statement& s, const std::vector<Trial>& all, const Trial& chosen) {
  Outcome outcome{.verdict = verdict_of(s, chosen), .reason = reason_of(s, all, chosen)};
  if (outcome.verdict.name == kByConstruction.name) outcome.reason = s.by_construction;
  if (chosen.found.computed) {
    outcome.computed_value = chosen.found.computed;
    outcome.computed = s.published.in_unit(*chosen.found.computed, chosen.unit);
  }
  if (const auto& measured = chosen.found.measured) {
    outcome.measured_value = measured->value;
    outcome.interval = measured->interval;
    outcome.measured = with_interval(s.published, chosen.unit, *measured);
  }
  return outcome;
}

}  // namespace

Outcome check(const Statement& s, const Quantities& quantities, tables::CountedBytes& counted) {
  if (s.check == "none") return {.verdict = kNotTestable, .reason = s.reason};
  std::vector<Trial> all;
  try {
    all = trials(s, quantities, counted);
  } catch (const NotMeasured& e) {
    return {.verdict = kNotTestable, .reason = e.what()};
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(s.where + ": " + e.what());
  }
  return outcome_of(s, all, best_of(all));
}

}  // namespace kv::claims
