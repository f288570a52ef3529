#include "harness/claims/figure_result.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace kv::claims {
namespace {

// The best first.
enum class Agreement { kAgrees, kAllows, kUndecided, kDisagrees };

// `partly`: of values that lie on both sides of the window's edge.
Agreement agreement(const Window& window, const Window& values, Agreement partly) {
  if (window.contains(values)) return Agreement::kAgrees;
  return values.low > window.high || values.high < window.low ? Agreement::kDisagrees : partly;
}

Agreement of_values(const Figure& figure, const Window& window, const Window& values) {
  const Agreement found = agreement(window, values, Agreement::kUndecided);
  const bool less = figure.relation == Figure::Relation::kUpTo && values.high <= window.high;
  return less && found != Agreement::kAgrees ? Agreement::kAllows : found;
}

// A duration's bound is the least that is possible, any other the most.
Agreement of_bound(const Figure& figure, const Window& window, double bound) {
  return agreement(window, figure.duration ? Window{.low = bound} : Window{.high = bound},
                   Agreement::kAllows);
}

// One measurement of each of two does not say how far they vary, and so not which is ahead.
bool without_interval(const Statement& s, const Evaluated& found) {
  return s.check->ordering && found.measured_once;
}

// A statement under one reading.
struct Trial {
  double k;
  UnitReading unit;
  Window window;
  Evaluated found;
  Agreement computed = Agreement::kAgrees, measured = Agreement::kAgrees;

  Agreement agreement() const { return std::max(computed, measured); }
};

Trial trial_of(const Statement& s, double k, const UnitReading& unit, Evaluated found) {
  const Figure& figure = s.published;
  Trial trial{k, unit, figure.window(s.tolerance, unit), std::move(found)};
  if (const auto& computed = trial.found.computed) {
    trial.computed = s.check->bounds ? of_bound(figure, trial.window, *computed)
                                     : of_values(figure, trial.window, {*computed, *computed});
  }
  if (const auto& measured = trial.found.measured) {
    trial.measured = without_interval(s, trial.found)
                         ? Agreement::kUndecided
                         : of_values(figure, trial.window, {measured->interval.low, measured->interval.high});
  }
  return trial;
}

std::vector<Trial> trials(const Statement& s, const Quantities& quantities, tables::CountedBytes& counted) {
  std::vector<Trial> all;
  for (const double k : {1024.0, 1000.0}) {
    for (const UnitReading& unit : s.published.units) {
      const Evaluated found = evaluate(s, k, unit, quantities, counted);
      if (k == 1000.0 && !found.used_k) return all;
      all.push_back(trial_of(s, k, unit, found));
    }
  }
  return all;
}

std::string with_interval(const Figure& figure, const UnitReading& unit, const math::Estimate& e) {
  const std::string value = figure.in_unit(e.value, unit);
  if (e.interval.low == e.interval.high) return value;
  if (!std::isfinite(e.interval.low)) return value + " (too few repetitions for an interval)";
  return value + " (" + short_number(in_named_unit(e.interval.low, unit)) + "–" +
         short_number(in_named_unit(e.interval.high, unit)) + ")";
}

std::string times_off(const Figure& figure, double value) {
  const bool one_number =
      !figure.truth && !figure.exponent() && !figure.has_sign() && figure.low == figure.high;
  if (!one_number || value <= 0 || figure.low <= 0) return "";
  const double share = figure.low * figure.units.front().factor / value;
  if (share > 0.5 && share < 2) {
    const double percent = std::round(std::abs(share - 1) * 1000) / 10;
    return ", the published figure " + short_number(percent) + (share < 1 ? " % less" : " % more");
  }
  return ", the published figure " + short_number(share) + " times that";
}

// "with K = 1024 and MB = MiB"; empty for the usual reading.
std::string reading_text(const Figure& figure, const Trial& trial) {
  const bool usual_k = !trial.found.used_k || trial.k == 1024;
  if (usual_k && trial.unit.read_as.empty()) return "";
  std::string text = trial.found.used_k ? "K = " + short_number(trial.k) : "";
  if (!trial.unit.read_as.empty())
    text += (text.empty() ? "" : " and ") + figure.units.front().name + " = " + trial.unit.read_as;
  return "with " + text;
}

// The computed value under every reading: "2 x 6 layers … = 5.033 GB or 4.688 GiB; with K = 1000 4.915 GB or 4.578 GiB".
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

// "29.5% to 50.5% would agree".
std::string what_agrees(const Figure& figure, const Trial& trial) {
  if (figure.truth) return figure.text + " would agree";
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
  return workings(s.published, all) + (s.check->bounds && !s.published.truth ? end : "");
}

std::string allowance(const Figure& figure, const Trial& trial) {
  if (trial.computed != Agreement::kAllows) return "less than the figure, which is the most that is reached";
  if (figure.truth) return "nothing that is computed forbids it; nothing was run";
  return "a bound: " + figure.in_unit(*trial.found.computed, trial.unit) + " is the " +
         (figure.duration ? "least" : "most") + " that is possible";
}

std::string indecision(const Statement& s, const Trial& trial) {
  if (without_interval(s, trial.found))
    return "measured once, without an interval: seeds, or a metric that has one, would tell";
  return "this run cannot tell: " + what_agrees(s.published, trial) +
         (s.published.truth ? ", and its interval has both yes and no"
                            : ", and its interval crosses that edge");
}

Outcome judged(const Statement& s, const std::vector<Trial>& all, const Trial& best) {
  const bool agrees = best.agreement() <= Agreement::kAllows;
  if (agrees && !s.by_construction.empty()) return {&kByConstruction, s.by_construction};
  // A time here says nothing about the time where the source measured it.
  const bool same_setting = s.exact && (best.computed == Agreement::kDisagrees || !s.depends_on_machine());
  switch (best.agreement()) {
    case Agreement::kAgrees:
      return {&kReproduced, reading_text(s.published, best)};
    case Agreement::kAllows:
      return {&kConsistent, allowance(s.published, best)};
    case Agreement::kUndecided:
      return {&kInconclusive, indecision(s, best)};
    case Agreement::kDisagrees:
      break;
  }
  return {same_setting ? &kContradicted : &kDiffers, disagreement(s, all, best)};
}

}  // namespace

Outcome check(const Statement& s, const Quantities& quantities, tables::CountedBytes& counted) {
  if (s.check->needs) return {.verdict = &kNotTestable, .reason = "needs " + s.needs + ": " + s.reason};
  if (s.check->test)
    return {.verdict = &kReproduced, .reason = "held by the test " + s.test + "; `./kvlab test` runs it"};
  std::vector<Trial> all;
  try {
    all = trials(s, quantities, counted);
  } catch (const NotMeasured& e) {
    return {.verdict = &kNotTestable, .reason = e.what()};
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(s.where + ": " + e.what());
  }
  const Trial& best = *std::ranges::min_element(all, {}, &Trial::agreement);  // the first of equal ones
  Outcome outcome = judged(s, all, best);
  if (best.found.computed) {
    outcome.computed_value = best.found.computed;
    outcome.computed = s.published.in_unit(*best.found.computed, best.unit);
  }
  if (const auto& measured = best.found.measured) {
    outcome.measured_value = measured->value;
    outcome.interval = measured->interval;
    outcome.measured = with_interval(s.published, best.unit, *measured);
  }
  return outcome;
}

}  // namespace kv::claims
