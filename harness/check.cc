#include "harness/check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "harness/closed_form.h"
#include "harness/expression.h"

namespace kv {
namespace {

using Lookup = std::function<double(const std::string&)>;

// A cache that is too large to be filled here: its figures are computed only.
struct NotCounted {};

// The slope of a line through (log length, log value), by least squares.
double exponent_of(const std::vector<int64_t>& lengths, const std::vector<double>& values) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!(values[i] > 0)) throw NotMeasured("a value of " + short_number(values[i]) + " has no growth law");
    const double x = std::log(static_cast<double>(lengths[i])), y = std::log(values[i]);
    n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

enum class Agreement { kAgrees, kContradicts, kUndecided };

Agreement agreement(const Window& window, const ConfidenceInterval& interval) {
  if (window.contains(interval.low) && window.contains(interval.high)) return Agreement::kAgrees;
  if (interval.high < window.low || interval.low > window.high) return Agreement::kContradicts;
  return Agreement::kUndecided;
}

}  // namespace

// A statement's names and expressions under one reading of K.
class Evaluation {
 public:
  Evaluation(const Statement& statement, Checker& checker, double k)
      : s_(statement), checker_(checker), k_(k) {}

  double computed() {
    return over_lengths([&] { return value(s_.computed, false); });
  }
  // `computed` with bytes that the ledger has counted. Throws NotCounted.
  double counted() {
    return over_lengths([&] { return value(s_.computed, true); });
  }
  Estimate measured() {
    const std::vector<int64_t> lengths = s_.over.empty() ? std::vector<int64_t>{0} : s_.lengths;
    std::vector<std::vector<double>> sides;
    for (const int64_t length : lengths) {
      for (const auto& [name, quantity] : s_.quantities)
        sides.push_back(checker_.quantities_.values(at(quantity, length)));
    }
    return estimate(sides, [&](std::span<const double> medians) {
      size_t next = 0;
      return over_lengths([&] {
        for (const auto& [name, quantity] : s_.quantities) medians_[name] = medians[next++];
        return value(s_.measured, false);
      });
    });
  }
  bool used_k() const { return used_k_; }

  // "2 * 32 * 128 = 8192"; of a growth law the expression alone.
  std::string arithmetic() {
    if (!s_.over.empty()) return s_.computed;
    const Expression expression(s_.computed);
    const std::string numbers = expression.with_numbers(lookup(false, 0));
    return expression.names().size() == 1 && expression.text() == expression.names().front()
               ? formula_of(expression.text())
               : numbers;
  }

 private:
  double over_lengths(const std::function<double()>& value_at) {
    if (s_.over.empty()) return value_at();
    std::vector<double> values;
    for (const int64_t length : s_.lengths) {
      length_ = static_cast<double>(length);
      values.push_back(value_at());
    }
    return s_.published.exponent() ? exponent_of(s_.lengths, values) : values.back();
  }

  double value(const std::string& expression, bool counted) {
    return Expression(expression).value(lookup(counted, 0));
  }

  Lookup lookup(bool counted, int depth) {
    return [this, counted, depth](const std::string& name) { return find(name, counted, depth); };
  }

  double find(const std::string& name, bool counted, int depth) {
    if (name == "K") {
      used_k_ = true;
      return k_;
    }
    if (name == s_.over) return length_;
    if (const auto spec = s_.bytes.find(name); spec != s_.bytes.end())
      return bytes(spec->second, counted, depth);
    if (const auto median = medians_.find(name); median != medians_.end()) return median->second;
    if (const auto text = s_.define.find(name); text != s_.define.end())
      return Expression(text->second).value(lookup(counted, depth + 1));
    throw std::logic_error("load_claims let the name '" + name + "' pass");
  }

  CacheSize size_of(const std::string& spec, int depth) {
    const auto whole = [&](const std::string& expression) {
      return static_cast<int64_t>(std::llround(Expression(expression).value(lookup(false, depth + 1))));
    };
    CacheSize size{parse_spec(spec), s_.model, whole(s_.tokens)};
    size.shape.max_sequences = static_cast<int>(whole(s_.batch));
    size.shape.max_tokens = s_.reserve.empty() ? size.tokens : whole(s_.reserve);
    return size;
  }

  double bytes(const std::string& spec, bool counted, int depth) {
    const CacheSize size = size_of(spec, depth);
    if (!counted) return static_cast<double>(bytes_by_form(size));
    const auto held = checker_.counted_bytes(size);
    if (!held) throw NotCounted();
    return static_cast<double>(*held);
  }

  // Where a cache's bytes are the figure itself: how they come about.
  std::string formula_of(const std::string& name) {
    const auto spec = s_.bytes.find(name);
    if (spec == s_.bytes.end()) return s_.define.count(name) ? s_.define.at(name) : name;
    const CacheSize size = size_of(spec->second, 0);
    const CacheShape& m = size.shape;
    const double values =
        2.0 * m.layers * m.kv_heads * m.head_dim * m.max_sequences * static_cast<double>(size.tokens);
    return "2 x " + std::to_string(m.layers) + " layers x " + std::to_string(m.kv_heads) + " KV heads x " +
           std::to_string(m.head_dim) + " x " +
           (m.max_sequences > 1 ? std::to_string(m.max_sequences) + " sequences x " : "") +
           std::to_string(size.tokens) + " tokens x " +
           short_number(static_cast<double>(bytes_by_form(size)) / values) + " B";
  }

  Quantity at(Quantity quantity, int64_t length) const {
    for (auto& [column, text] : quantity.where) {
      if (text == "{" + s_.over + "}") text = std::to_string(length);
    }
    return quantity;
  }

  const Statement& s_;
  Checker& checker_;
  const double k_;
  double length_ = 0;
  bool used_k_ = false;
  std::map<std::string, double> medians_;
};

namespace {

// Everything that a statement comes to under one reading of K.
struct Values {
  std::optional<double> computed;
  std::optional<Estimate> measured;
  std::string arithmetic;
  bool used_k = false;
};

Values values_of(const Statement& s, Checker& checker, double k) {
  Evaluation evaluation(s, checker, k);
  Values v;
  if (!s.computed.empty()) {
    v.computed = evaluation.computed();
    v.arithmetic = evaluation.arithmetic();
  }
  if (!s.measured.empty()) {
    v.measured = evaluation.measured();
  } else if (!s.bytes.empty()) {
    try {
      const double held = evaluation.counted();
      v.measured = Estimate{held, {held, held}};
    } catch (const NotCounted&) {
    }
  }
  v.used_k = evaluation.used_k();
  return v;
}

Agreement agreement(const Values& v, const Window& window) {
  const auto computed = v.computed ? agreement(window, {*v.computed, *v.computed}) : Agreement::kAgrees;
  const auto measured = v.measured ? agreement(window, v.measured->interval) : Agreement::kAgrees;
  if (computed == Agreement::kContradicts || measured == Agreement::kContradicts)
    return Agreement::kContradicts;
  return measured;
}

// A value in every unit that the printed one may mean: "50.33 MB = 48 MiB".
std::string in_units(const Figure& figure, double value) {
  std::string text = figure.in_unit(value, figure.units.front());
  for (size_t i = 1; i < figure.units.size(); ++i) text += " = " + figure.in_unit(value, figure.units[i]);
  return text;
}

std::string with_interval(const Figure& figure, const UnitReading& unit, const Estimate& e) {
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

struct Reading {
  double k;
  const UnitReading* unit;
  const Values* values;
};

std::string reading_text(const Figure& figure, const Reading& r) {
  std::string text;
  if (r.values->used_k) text = "K = " + short_number(r.k);
  if (r.unit->name != figure.units.front().name)
    text += (text.empty() ? "" : " and ") + figure.units.front().name + " = " + r.unit->name;
  return text.empty() ? "" : "with " + text;
}

// What was computed, under each reading of K: the arithmetic that a reader can follow.
std::string workings(const Figure& figure, const Values& literal, const Values* other,
                     const std::string& k_names) {
  if (!literal.computed) return "";
  std::string text =
      literal.arithmetic + " = " + in_units(figure, *literal.computed) + times_off(figure, *literal.computed);
  if (other) text += k_names + " " + in_units(figure, *other->computed);
  return text;
}

}  // namespace

std::optional<int64_t> Checker::counted_bytes(const CacheSize& size) {
  const CacheShape& s = size.shape;
  std::string key = size.spec.print();
  for (const int64_t n : {int64_t{s.layers}, int64_t{s.kv_heads}, int64_t{s.head_dim}, s.max_tokens,
                          int64_t{s.max_sequences}, size.tokens})
    key += " " + std::to_string(n);
  const auto [at, fresh] = counted_.try_emplace(key);
  if (fresh) at->second = bytes_by_ledger(size, ledger_limit_bytes_);
  return at->second;
}

Outcome Checker::check(const Statement& s) {
  Outcome outcome;
  if (s.check == "none") {
    outcome.verdict = kNotTestable;
    outcome.reason = s.reason;
    return outcome;
  }
  constexpr double kBinary = 1024, kDecimal = 1000;
  Values binary, decimal;
  try {
    binary = values_of(s, *this, kBinary);
    if (binary.used_k) decimal = values_of(s, *this, kDecimal);
  } catch (const NotMeasured& e) {
    outcome.verdict = kNotTestable;
    outcome.reason = e.what();
    return outcome;
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(s.where + ": " + e.what());
  }
  std::vector<Reading> readings;
  for (const auto& [k, values] : {std::pair{kBinary, &binary}, std::pair{kDecimal, &decimal}}) {
    if (values == &decimal && !binary.used_k) continue;
    for (const UnitReading& unit : s.published.units) readings.push_back({k, &unit, values});
  }
  const auto agreement_of = [&](const Reading& r) {
    return agreement(*r.values, s.published.window(s.tolerance, *r.unit));
  };
  const auto right = std::find_if(readings.begin(), readings.end(),
                                  [&](const Reading& r) { return agreement_of(r) == Agreement::kAgrees; });
  const Reading& reading = right == readings.end() ? readings.front() : *right;
  const Agreement found = agreement_of(reading);
  const Values& v = *reading.values;
  outcome.computed_value = v.computed;
  if (v.computed) outcome.computed = s.published.in_unit(*v.computed, *reading.unit);
  if (v.measured) {
    outcome.measured = with_interval(s.published, *reading.unit, *v.measured);
    outcome.measured_value = v.measured->value;
    outcome.interval = v.measured->interval;
  }
  switch (found) {
    case Agreement::kAgrees:
      outcome.verdict = kReproduced;
      outcome.reason = reading_text(s.published, reading);
      break;
    case Agreement::kContradicts:
      outcome.verdict = kContradicted;
      outcome.reason = workings(s.published, binary, binary.used_k ? &decimal : nullptr, "; with K = 1000");
      break;
    case Agreement::kUndecided:
      outcome.verdict = kNotTestable;
      outcome.reason =
          "this run cannot tell: its interval goes beyond what agrees with the figure on one side";
      break;
  }
  return outcome;
}

}  // namespace kv
