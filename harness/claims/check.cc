#include "harness/claims/check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "harness/claims/evaluation.h"

namespace kv::claims {
namespace {

enum class Agreement { kAgrees, kContradicts, kUndecided };

Agreement agreement(const Window& window, const math::ConfidenceInterval& interval) {
  if (window.contains(interval.low) && window.contains(interval.high)) return Agreement::kAgrees;
  if (interval.high < window.low || interval.low > window.high) return Agreement::kContradicts;
  return Agreement::kUndecided;
}

Agreement agreement(const Window& window, const Evaluated& v) {
  const auto computed = v.computed ? agreement(window, {*v.computed, *v.computed}) : Agreement::kAgrees;
  const auto measured = v.measured ? agreement(window, v.measured->interval) : Agreement::kAgrees;
  if (computed == Agreement::kContradicts || measured == Agreement::kContradicts)
    return Agreement::kContradicts;
  return measured;
}

// A statement under one reading.
struct Trial {
  Reading reading;
  UnitReading unit;
  Window window;
  Evaluated found;
  Agreement agreement;
};

std::vector<Trial> trials(const Statement& s, const Quantities& quantities, tables::CountedBytes& counted) {
  std::vector<Trial> all;
  for (const double k : {1024.0, 1000.0}) {
    for (size_t unit = 0; unit < s.published.units.size(); ++unit) {
      const Reading reading{k, unit > 0};
      const Evaluated found = evaluate(s, reading, quantities, counted);
      if (k == 1000.0 && !found.used_k) return all;
      const Window window = s.published.window(s.tolerance, s.published.units[unit]);
      all.push_back({reading, s.published.units[unit], window, found, agreement(window, found)});
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

// The first reading under which everything agrees; else one that leaves it open; else the literal one.
const Trial& best_of(const std::vector<Trial>& all) {
  for (const Agreement wanted : {Agreement::kAgrees, Agreement::kUndecided}) {
    for (const Trial& trial : all) {
      if (trial.agreement == wanted) return trial;
    }
  }
  return all.front();
}

// "with K = 1024 and MB = MiB"; empty where all was read as it is mostly meant.
std::string reading_text(const Figure& figure, const Trial& trial) {
  const bool usual_k = !trial.found.used_k || trial.reading.k == 1024;
  if (usual_k && !trial.reading.binary) return "";
  std::string text = trial.found.used_k ? "K = " + short_number(trial.reading.k) : "";
  if (trial.reading.binary)
    text += (text.empty() ? "" : " and ") + figure.units.front().name + " = " + trial.unit.name;
  return "with " + text;
}

// What was computed under every reading: "2 x 6 layers … = 5.033 GB or 4.688 GiB; with K = 1000 4.915 GB
// or 4.578 GiB".
std::string workings(const Figure& figure, const std::vector<Trial>& all) {
  const Trial& first = all.front();
  if (!first.found.computed) return "";
  std::string text = first.found.arithmetic + " = ";
  for (const Trial& trial : all) {
    if (&trial != &first) text += trial.reading.binary ? " or " : "; with K = 1000 ";
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

std::string reason_of(const Figure& figure, const std::vector<Trial>& all, const Trial& chosen) {
  if (chosen.agreement == Agreement::kAgrees) return reading_text(figure, chosen);
  if (chosen.agreement == Agreement::kUndecided)
    return "this run cannot tell: " + what_agrees(figure, chosen) + ", and its interval crosses that edge";
  const auto& computed = chosen.found.computed;
  return computed && !chosen.window.contains(*computed) ? workings(figure, all) : what_agrees(figure, chosen);
}

const char* verdict_of(Agreement agreement) {
  if (agreement == Agreement::kAgrees) return kReproduced;
  return agreement == Agreement::kContradicts ? kContradicted : kNotTestable;
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
  const Trial& chosen = best_of(all);
  Outcome outcome{.verdict = verdict_of(chosen.agreement), .reason = reason_of(s.published, all, chosen)};
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

}  // namespace kv::claims
