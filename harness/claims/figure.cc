#include "harness/claims/figure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <regex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "harness/io/text.h"

namespace kv::claims {
namespace {

constexpr double kAboutShare = 0.1, kExponentTolerance = 0.2;

struct Unit {
  std::string_view name;
  double factor;
  std::string_view binary = {};  // the power of 1024 that it is often taken for
  double binary_factor = 0;
  bool duration = false;
};

constexpr double kKi = 1024.0, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr std::array kUnits = std::to_array<Unit>({
    {"", 1},
    {"x", 1},
    {"%", 0.01},
    {"B", 1},
    {"bits", 1},
    {"nats", 1},
    {"floats", 1},
    {"KB", 1e3, "KiB", kKi},
    {"MB", 1e6, "MiB", kMi},
    {"GB", 1e9, "GiB", kGi},
    {"TB", 1e12, "TiB", kTi},
    {"KiB", kKi},
    {"MiB", kMi},
    {"GiB", kGi},
    {"TiB", kTi},
    {"s", 1, {}, 0, true},
    {"ms", 1e-3, {}, 0, true},
    {"us", 1e-6, {}, 0, true},
    {"tok/s", 1},
    {"GB/s", 1e9},
    {"TB/s", 1e12},
    {"FLOPs", 1},
});

// Typographic signs as plain ones.
std::string plain(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"≈", "~"}, {"≤", "<="}, {"≥", ">="}, {"–", "-"},  {"—", "-"},
      {"−", "-"}, {"×", "x"},  {"µ", "u"},  {"²", "^2"}, {"±", "+-"}};
  for (const auto& [sign, replacement] : kSigns) {
    for (size_t at = 0; (at = text.find(sign, at)) != std::string::npos; at += replacement.size())
      text.replace(at, sign.size(), replacement);
  }
  return text;
}

double number_in(std::string digits) {
  std::erase(digits, ',');
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc()) {
    throw std::invalid_argument("has the number " + digits +
                                "; figures that are read lie between 1e-307 and 1e308");
  }
  return value;
}

// std::regex recurses once a character.
void refuse_long(const std::string& text) {
  constexpr size_t kMost = 200;
  if (text.size() <= kMost) return;
  throw std::invalid_argument("is a text of " + std::to_string(text.size()) +
                              " bytes; a figure has at most " + std::to_string(kMost));
}

// "0.670" -> 0.001, "4.2e14" -> 1e13.
double last_digit_of(const std::string& number) {
  const size_t e = number.find_first_of("eE"), point = number.find('.');
  const double exponent = e == std::string::npos ? 0 : number_in(number.substr(e + 1));
  const double decimals =
      point == std::string::npos ? 0 : static_cast<double>(std::min(e, number.size()) - point - 1);
  return std::pow(10.0, exponent - decimals);
}

const Unit& unit_named(const std::string& name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit;
  }
  throw std::invalid_argument("has the unit '" + name + "', which is none of: " + io::joined_names(kUnits));
}

std::vector<UnitReading> readings(const Unit& unit) {
  const std::string name(unit.name), binary(unit.binary);
  std::vector<UnitReading> all{{unit.factor, name}};
  if (!binary.empty()) all.push_back({unit.binary_factor, binary, binary, kMi, kGi});
  // 4800 MiB printed as 4.8 GB; said here as the MiB that they are.
  if (name == "GB") all.push_back({1000 * kMi, "MiB", "1000 MiB", kMi, 1000 * kMi});
  return all;
}

// The nearest decimal: 1.28 - 0.005 is 1.275, which a sum of binary fractions misses.
double as_decimal(double value) { return std::stod(io::formatted("%.12g", value)); }

// A ratio whose gain is `factor` times as large.
double with_gain(double ratio, double factor) {
  return ratio >= 1 ? 1 + (ratio - 1) * factor : 1 / (1 + (1 / ratio - 1) * factor);
}

// A range whose ends may both be off by a factor.
Window off_by_factor(const Figure& f, double factor) {
  if (!f.is_ratio()) return {f.low / factor, f.high * factor};
  return {std::min(with_gain(f.low, factor), with_gain(f.low, 1 / factor)),
          std::max(with_gain(f.high, factor), with_gain(f.high, 1 / factor))};
}

Figure::Relation relation_of(std::string_view sign) {
  using enum Figure::Relation;
  constexpr std::pair<std::string_view, Figure::Relation> kSigns[] = {
      {"up to ", kUpTo}, {"<=", kAtMost}, {"<", kBelow}, {">=", kAtLeast}, {">", kAbove}};
  const auto found = std::ranges::find(kSigns, sign, &std::pair<std::string_view, Figure::Relation>::first);
  return found == std::end(kSigns) ? kEqual : found->second;
}

}  // namespace

Tolerance parse_tolerance(const std::string& given) {
  struct Form {
    std::regex text;
    Tolerance::Kind kind;
    double unit, least;
  };
  static const Form kForms[] = {{std::regex(R"((\d+\.?\d*) ?%)"), Tolerance::Kind::kShare, 100, 0},
                                {std::regex(R"(factor (\d+\.?\d*))"), Tolerance::Kind::kFactor, 1, 1},
                                {std::regex(R"(\+- ?(\d+\.?\d*))"), Tolerance::Kind::kPlusMinus, 1, 0}};
  refuse_long(given);
  const std::string text = plain(given);
  if (text == "as printed") return {};
  std::smatch m;
  for (const Form& form : kForms) {
    if (std::regex_match(text, m, form.text) && number_in(m[1]) >= form.least)
      return {form.kind, number_in(m[1]) / form.unit};
  }
  throw std::invalid_argument("must be \"as printed\", \"5 %\", \"factor 2\" or \"+-0.2\", not '" + given +
                              "'");
}

Figure parse_figure(const std::string& given) {
  static const std::regex kExponent(R"(O\((?:1|([A-Z])(?:\^(\d\.?\d*))?)\))");
  static const std::regex kNumber(
      R"((up to |~|<=|>=|<|>)? ?(\d[\d,]*\.?\d*(?:[eE]\d+)?) ?(x|%)?(?: ?- ?(\d[\d,]*\.?\d*))? ?(\S*))");
  refuse_long(given);
  Figure f;
  f.text = given;
  f.units = {{1.0, ""}};
  const std::string text = plain(given);
  std::smatch m;
  if (std::regex_match(text, std::regex("[Yy]es|[Nn]o"))) {
    f.truth = true;
    f.low = f.high = text.ends_with("es");
  } else if (std::regex_match(text, m, kExponent)) {
    f.exponent_of = m[1].matched ? m[1].str() : "T";
    f.low = f.high = !m[1].matched ? 0 : m[2].matched ? number_in(m[2]) : 1;
  } else if (std::regex_match(text, m, kNumber)) {
    f.about = m[1] == "~";
    const bool range = m[4].matched && m[1] != "up to ";  // another sign before a range says nothing
    f.relation = range ? Figure::Relation::kEqual : relation_of(m[1].str());
    f.low = number_in(m[2]);
    f.high = m[4].matched ? number_in(m[4]) : f.low;
    if (f.high < f.low)
      throw std::invalid_argument("has a range that ends before it begins: '" + given + "'");
    f.last_digit = last_digit_of(m[2]);
    const Unit& unit = unit_named(m[5].length() ? m[5].str() : m[3].str());
    f.units = readings(unit);
    f.duration = unit.duration;
  } else {
    throw std::invalid_argument(
        "must be a figure such as \"0.67 MB\", \"~200x\", \"<0.5 %\", \"30-50 %\", \"yes\" or \"O(T^2)\", "
        "not '" +
        given + "'");
  }
  return f;
}

Window Figure::window(const Tolerance& tolerance, const UnitReading& unit) const {
  const double scale = unit.factor, first = low * scale, last = high * scale;
  const Window within = around(tolerance);
  switch (relation) {
    case Relation::kEqual:
      return {side == Side::kAtMost ? -INFINITY : within.low * scale,
              side == Side::kAtLeast ? INFINITY : within.high * scale};
    case Relation::kUpTo:
      return {within.low * scale, last};
    case Relation::kAtMost:
      return {.high = last};
    case Relation::kBelow:
      return {.high = std::nextafter(last, 0.0)};
    case Relation::kAtLeast:
      return {.low = first};
    case Relation::kAbove:
      return {.low = std::nextafter(first, INFINITY)};
  }
  throw std::logic_error("a figure of no relation");
}

Window Figure::around(const Tolerance& tolerance) const {
  switch (tolerance.kind) {
    case Tolerance::Kind::kShare:
      return {low * (1 - tolerance.value), high * (1 + tolerance.value)};
    case Tolerance::Kind::kFactor:
      return off_by_factor(*this, tolerance.value);
    case Tolerance::Kind::kPlusMinus:
      return {low - tolerance.value, high + tolerance.value};
    case Tolerance::Kind::kAsPrinted:
      break;
  }
  if (truth) return {low, high};
  const double slack = exponent() ? kExponentTolerance : last_digit / 2, share = about ? kAboutShare : 0;
  return {as_decimal(low - std::max(slack, share * low)), as_decimal(high + std::max(slack, share * high))};
}

double in_named_unit(double value, const UnitReading& unit) { return value / unit_named(unit.name).factor; }

std::string Figure::in_unit(double value, const UnitReading& unit) const {
  if (truth) return value != 0 ? "yes" : "no";
  if (exponent()) return "O(" + exponent_of + "^" + short_number(value) + ")";
  const bool close = unit.name == "x" || unit.name == "%";
  return short_number(in_named_unit(value, unit)) + (unit.name.empty() ? "" : (close ? "" : " ") + unit.name);
}

std::string short_number(double value) {
  if (std::abs(value) < 1e-9) return "0";  // rounding error of a difference of logarithms
  // Whole numbers whole, and no powers of ten where the digits say the same.
  const double size = std::abs(value);
  const bool whole = (value == std::round(value) && size < 1e6) || (size >= 1e4 && size < 1e7);
  const std::string text = io::formatted(whole ? "%.0f" : "%.4g", value);
  return text == "-0" ? "0" : text;
}

}  // namespace kv::claims
