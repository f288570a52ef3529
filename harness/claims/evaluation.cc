#include "harness/claims/evaluation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include "harness/claims/expression.h"

namespace kv::claims {
namespace {

using Lookup = std::function<double(const std::string&)>;
using Statistic = std::function<double(std::span<const double>)>;

constexpr double kMostTokens = 1e12, kMostSequences = 65536;

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

// Where values come with intervals of their own: the least and the most that any ends of them give.
math::Estimate over_corners(const std::vector<std::vector<double>>& sides,
                            const std::vector<math::ConfidenceInterval>& beside, const Statistic& value_of) {
  std::vector<double> medians;
  for (const std::vector<double>& side : sides) medians.push_back(math::median(side));
  const double middle = value_of(medians);
  // Each doubles the corners.
  constexpr size_t kMostSides = 12;
  if (sides.size() > kMostSides)
    throw NotMeasured("it depends on " + std::to_string(sides.size()) + " values with intervals; at most " +
                      std::to_string(kMostSides) + " can be combined");
  math::ConfidenceInterval interval{middle, middle};
  for (size_t corner = 0; corner < size_t{1} << sides.size(); ++corner) {
    for (size_t i = 0; i < sides.size(); ++i) medians[i] = corner >> i & 1 ? beside[i].high : beside[i].low;
    const double value = value_of(medians);
    interval = {std::min(interval.low, value), std::max(interval.high, value)};
  }
  return {middle, interval};
}

// A statement's names under one reading.
class Evaluation {
 public:
  Evaluation(const Statement& statement, const Reading& reading, const Quantities& quantities,
             tables::CountedBytes& counted)
      : s_(statement), reading_(reading), quantities_(quantities), counted_(counted) {}

  double computed() {
    return over_lengths([&] { return value(s_.computed, false); });
  }
  // `computed` with bytes that the ledger has counted. Throws NotCounted.
  double counted() {
    return over_lengths([&] { return value(s_.computed, true); });
  }
  math::Estimate measured() {
    std::vector<std::vector<double>> sides;
    std::vector<math::ConfidenceInterval> beside;
    for (const int64_t length : s_.over.empty() ? std::vector<int64_t>{0} : s_.lengths) {
      for (const auto& [name, quantity] : s_.quantities) {
        const Measured found = quantities_.find(at(quantity, length));
        sides.push_back(found.values);
        measured_once_ = measured_once_ && found.values.size() == 1 && !found.interval;
        const double middle = math::median(found.values);
        beside.push_back(found.interval.value_or(math::ConfidenceInterval{middle, middle}));
      }
    }
    const auto value_of = [&](std::span<const double> medians) { return from_medians(medians); };
    const bool has_own = std::any_of(beside.begin(), beside.end(),
                                     [](const math::ConfidenceInterval& i) { return i.low < i.high; });
    return has_own ? over_corners(sides, beside, value_of) : math::estimate(sides, value_of);
  }
  bool used_k() const { return used_k_; }
  bool measured_once() const { return measured_once_; }

  // "2 * 32 * 128 = 8192"; of a growth law the expression alone.
  std::string arithmetic() {
    if (!s_.over.empty()) return s_.computed;
    const Expression expression(s_.computed);
    const std::string numbers = expression.with_numbers(lookup(false));
    return expression.names().size() == 1 && expression.text() == expression.names().front()
               ? formula_of(expression.text())
               : numbers;
  }

 private:
  // In the order in which measured() has put them.
  double from_medians(std::span<const double> medians) {
    size_t next = 0;
    return over_lengths([&] {
      for (const auto& [name, quantity] : s_.quantities) medians_[name] = medians[next++];
      return value(s_.measured, false);
    });
  }

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
    found_.clear();
    return Expression(expression).value(lookup(counted));
  }

  // What a name stands for is found once a value: one that is defined by another twice would be found 2^n times in a chain.
  // load_claims has refused names that are defined by themselves.
  Lookup lookup(bool counted) {
    return [this, counted](const std::string& name) {
      const auto known = found_.find({name, counted});
      return known != found_.end() ? known->second : found_[{name, counted}] = find(name, counted);
    };
  }

  double find(const std::string& name, bool counted) {
    if (name == "K") {
      used_k_ = true;
      return reading_.k;
    }
    if (name == "MB") return reading_.prefixes.mega;
    if (name == "GB") return reading_.prefixes.giga;
    if (name == s_.over) return length_;
    if (const auto spec = s_.bytes.find(name); spec != s_.bytes.end()) return bytes(spec->second, counted);
    if (const auto median = medians_.find(name); median != medians_.end()) return median->second;
    if (const auto text = s_.define.find(name); text != s_.define.end())
      return Expression(text->second).value(lookup(counted));
    throw std::logic_error("load_claims let the name '" + name + "' pass");
  }

  tables::CacheSize size_of(const std::string& spec) {
    const auto whole = [&](const char* key, const std::string& expression, double most) {
      const double value = Expression(expression).value(lookup(false));
      if (!(value >= 1 && value <= most))
        throw std::invalid_argument(std::string(key) + " is " + short_number(value) +
                                    "; it must be from 1 to " + short_number(most));
      return static_cast<int64_t>(std::llround(value));
    };
    tables::CacheSize size{parse_spec(spec), s_.model, whole("tokens", s_.tokens, kMostTokens)};
    size.shape.max_sequences = static_cast<int>(whole("batch", s_.batch, kMostSequences));
    size.shape.max_tokens = s_.reserve.empty() ? size.tokens : whole("reserve", s_.reserve, kMostTokens);
    return size;
  }

  double bytes(const std::string& spec, bool counted) {
    const tables::CacheSize size = size_of(spec);
    if (!counted) return static_cast<double>(tables::bytes_by_form(size));
    const auto held = counted_.of(size);
    if (!held) throw NotCounted();
    return static_cast<double>(*held);
  }

  // Where a cache's bytes are the figure itself: how they come about.
  std::string formula_of(const std::string& name) {
    const auto spec = s_.bytes.find(name);
    if (spec == s_.bytes.end()) return s_.define.count(name) ? s_.define.at(name) : name;
    const tables::CacheSize size = size_of(spec->second);
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
  const Reading reading_;
  const Quantities& quantities_;
  tables::CountedBytes& counted_;
  double length_ = 0;
  bool used_k_ = false, measured_once_ = true;
  std::map<std::string, double> medians_;
  std::map<std::pair<std::string, bool>, double> found_;  // by name, and whether bytes are counted
};

}  // namespace

Evaluated evaluate(const Statement& s, const Reading& reading, const Quantities& quantities,
                   tables::CountedBytes& counted) {
  Evaluation evaluation(s, reading, quantities, counted);
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
  } else if (!s.bytes.empty() && (s.check == "closed form" || s.check == "growth law")) {
    try {
      const double held = evaluation.counted();
      v.measured = math::Estimate{held, {held, held}};
    } catch (const NotCounted&) {
    }
  }
  v.used_k = evaluation.used_k();
  return v;
}

}  // namespace kv::claims
