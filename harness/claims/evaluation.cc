#include "harness/claims/quantities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>

#include "harness/claims/expression.h"

namespace kv::claims {
namespace {

using Statistic = std::function<double(std::span<const double>)>;

constexpr double kMostTokens = 1e12, kMostSequences = 65536;

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

// The least and the most that any ends of the values' own intervals give.
math::Estimate over_corners(std::vector<double> medians, const std::vector<math::ConfidenceInterval>& own,
                            const Statistic& value_of) {
  constexpr size_t kMostSides = 12;  // each doubles the corners
  if (own.size() > kMostSides)
    throw NotMeasured("it depends on " + std::to_string(own.size()) + " values with intervals; at most " +
                      std::to_string(kMostSides) + " can be combined");
  const double middle = value_of(medians);
  math::ConfidenceInterval interval{middle, middle};
  for (size_t corner = 0; corner < size_t{1} << own.size(); ++corner) {
    for (size_t i = 0; i < own.size(); ++i) medians[i] = corner >> i & 1 ? own[i].high : own[i].low;
    const double value = value_of(medians);
    interval = {std::min(interval.low, value), std::max(interval.high, value)};
  }
  return {middle, interval};
}

// A statement's names under one reading.
class Evaluation {
 public:
  Evaluation(const Statement& statement, double k, const UnitReading& unit, const Quantities& quantities,
             tables::CountedBytes& counted)
      : s_(statement),
        k_(k),
        unit_(unit),
        quantities_(quantities),
        counted_(counted),
        names_(statement.define, [this](const std::string& name) { return leaf(name); }) {}

  double computed() { return value(s_.computed); }
  // `computed` with bytes that the ledger has counted; nothing where a cache is too large to be filled here.
  std::optional<double> counted() {
    by_ledger_ = true;
    const double held = value(s_.computed);
    return too_large_ ? std::nullopt : std::optional(held);
  }
  math::Estimate measured() {
    std::vector<std::vector<double>> sides;
    std::vector<double> medians;
    std::vector<math::ConfidenceInterval> own;
    bool any_own = false;
    for (const int64_t length : lengths()) {
      for (const auto& [name, quantity] : s_.quantities) {
        const Measured found = quantities_.find(at(quantity, length));
        sides.push_back(found.values);
        medians.push_back(math::median(found.values));
        own.push_back(found.interval.value_or(math::ConfidenceInterval{medians.back(), medians.back()}));
        any_own = any_own || own.back().low < own.back().high;
        measured_once_ = measured_once_ && found.values.size() == 1 && !found.interval;
      }
    }
    const Statistic value_of = [&](std::span<const double> values) { return value(s_.measured, values); };
    return any_own ? over_corners(medians, own, value_of) : math::estimate(sides, value_of);
  }
  bool used_k() const { return used_k_; }
  bool measured_once() const { return measured_once_; }

  // "2 * 32 * 128 = 8192"; the expression alone for a growth law. How a cache's bytes come about if they are the figure.
  std::string arithmetic() {
    if (!s_.over.empty()) return s_.computed;
    if (const auto spec = s_.bytes.find(s_.computed); spec != s_.bytes.end()) return formula_of(spec->second);
    if (const auto text = s_.define.find(s_.computed); text != s_.define.end()) return text->second;
    return Expression(s_.computed).with_numbers([this](const std::string& name) {
      return names_.find(name);
    });
  }

 private:
  std::vector<int64_t> lengths() const { return s_.over.empty() ? std::vector<int64_t>{0} : s_.lengths; }

  // A growth law's exponent, or its last value. `medians`: of the quantities, for each length in turn.
  double value(const std::string& expression, std::span<const double> medians = {}) {
    std::vector<double> values;
    for (const int64_t length : lengths()) {
      length_ = static_cast<double>(length);
      for (const auto& [name, quantity] : s_.quantities) {
        if (medians.empty()) break;
        medians_[name] = medians.front();
        medians = medians.subspan(1);
      }
      names_.forget();
      values.push_back(names_.value(expression));
    }
    return s_.published.exponent() ? exponent_of(s_.lengths, values) : values.back();
  }

  std::optional<double> leaf(const std::string& name) {
    used_k_ = used_k_ || name == "K";
    if (name == "K") return k_;
    if (name == "MB") return unit_.mega;
    if (name == "GB") return unit_.giga;
    if (name == s_.over) return length_;
    if (const auto spec = s_.bytes.find(name); spec != s_.bytes.end()) return bytes(spec->second);
    if (const auto median = medians_.find(name); median != medians_.end()) return median->second;
    return std::nullopt;
  }

  double bytes(const std::string& spec) {
    const tables::CacheSize size = size_of(spec);
    if (!by_ledger_) return static_cast<double>(tables::bytes_by_form(size));
    const auto held = counted_.of(size);
    too_large_ = too_large_ || !held;
    return static_cast<double>(held.value_or(1));
  }

  tables::CacheSize size_of(const std::string& spec) {
    const auto whole = [&](const char* key, const std::string& expression, double least, double most) {
      const double value = names_.value(expression);
      if (!(value >= least && value <= most))
        throw std::invalid_argument(std::string(key) + " is " + short_number(value) + "; it must be from " +
                                    short_number(least) + " to " + short_number(most));
      return static_cast<int64_t>(std::llround(value));
    };
    tables::CacheSize size{parse_spec(spec), s_.model, whole("tokens", s_.tokens, 1, kMostTokens)};
    size.shape.max_sequences = static_cast<int>(whole("batch", s_.batch, 1, kMostSequences));
    size.shape.max_tokens = s_.reserve.empty()
                                ? size.tokens
                                : whole("reserve", s_.reserve, static_cast<double>(size.tokens), kMostTokens);
    return size;
  }

  std::string formula_of(const std::string& spec) {
    const tables::CacheSize size = size_of(spec);
    const CacheShape& m = size.shape;
    const double values =
        2.0 * m.layers * m.kv_heads * m.head_dim * m.max_sequences * static_cast<double>(size.tokens);
    return "2 x " + std::to_string(m.layers) + " layers x " + std::to_string(m.kv_heads) + " KV heads x " +
           std::to_string(m.head_dim) + " x " +
           (m.max_sequences > 1 ? std::to_string(m.max_sequences) + " sequences x " : "") +
           std::to_string(size.tokens) + " tokens x " +
           short_number(static_cast<double>(tables::bytes_by_form(size)) / values) + " B";
  }

  Quantity at(Quantity quantity, int64_t length) const {
    for (auto& [column, text] : quantity.where) {
      if (text == "{" + s_.over + "}") text = std::to_string(length);
    }
    return quantity;
  }

  const Statement& s_;
  const double k_;
  const UnitReading& unit_;
  const Quantities& quantities_;
  tables::CountedBytes& counted_;
  Names names_;
  double length_ = 0;
  bool used_k_ = false, measured_once_ = true, by_ledger_ = false, too_large_ = false;
  std::map<std::string, double> medians_;
};

}  // namespace

Evaluated evaluate(const Statement& s, double k, const UnitReading& unit, const Quantities& quantities,
                   tables::CountedBytes& counted) {
  Evaluation evaluation(s, k, unit, quantities, counted);
  Evaluated v;
  if (!s.computed.empty()) {
    v.computed = evaluation.computed();
    if (!std::isfinite(*v.computed)) throw std::invalid_argument("computed is no number: " + s.computed);
    v.arithmetic = evaluation.arithmetic();
  }
  if (!s.measured.empty()) {
    v.measured = evaluation.measured();
    v.measured_once = evaluation.measured_once();
    if (!std::isfinite(v.measured->value)) throw NotMeasured("measured is no number: " + s.measured);
  } else if (!s.bytes.empty() && s.check->counted) {
    if (const auto held = evaluation.counted()) v.measured = math::Estimate{*held, {*held, *held}};
  }
  v.used_k = evaluation.used_k();
  return v;
}

}  // namespace kv::claims
