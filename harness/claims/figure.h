// A figure as a document prints it, and whether a value is that figure.
//
//   "0.67 MB"  "~200x"  "<0.5 %"  "≤12"  "> 25 tok/s"  "30–50 %"  "up to 8x"  "4.2e14 FLOPs"  "yes"  "O(T^2)"
//
// Unless a claim says otherwise, a value agrees within half a unit of the last printed digit, within 10 % behind a "~" if that
// is more, and within 0.2 of an exponent. A bound is taken literally. A factor of a ratio is one of its gain over 1x: factor 2
// of 1.1x is 1.05x to 1.2x, since half and double of 1.1x would have room for every other ratio.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace kv::claims {

// Values that agree with a figure, in the base unit (bytes, seconds, shares of 1).
struct Window {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool contains(const Window& other) const { return low <= other.low && other.high <= high; }
  bool contains(double x) const { return low <= x && x <= high; }
};

struct Tolerance {
  enum class Kind { kAsPrinted, kShare, kFactor, kPlusMinus };
  Kind kind = Kind::kAsPrinted;
  double value = 0;
};
// "as printed", "5 %", "factor 2" or "+-0.2". Throws std::invalid_argument.
Tolerance parse_tolerance(const std::string& text);

// One meaning of a printed unit. A document may mean powers of 1000 or of 1024 by MB and GB, or MiB and 1000 MiB.
struct UnitReading {
  double factor;                  // of the printed number
  std::string name;               // of the unit in which values are said: "MB", or "MiB" where MB is read so
  std::string read_as = {};       // "MiB" or "1000 MiB" where it is not the literal one
  double mega = 1e6, giga = 1e9;  // MB and GB in the claim's expressions
};

// A value of the base unit, in the unit by whose name it is said.
double in_named_unit(double value, const UnitReading& unit);

struct Figure {
  enum class Relation { kEqual, kUpTo, kAtMost, kBelow, kAtLeast, kAbove };
  std::string text;  // printed form
  Relation relation = Relation::kEqual;
  double low = 0, high = 0;  // the same unless a range; in printed units
  double last_digit = 1;     // one unit of the last printed digit
  bool about = false;        // behind a "~"
  bool truth = false;        // "yes" or "no": 1 or 0
  bool duration = false;     // a time, for which a bound is the least
  // A claim may read a figure without a sign as one-sided: all values on the other side agree as well.
  enum class Side { kBoth, kAtMost, kAtLeast };
  Side side = Side::kBoth;
  std::string exponent_of;         // "O(T^2)": "T", with the value 2; else empty
  std::vector<UnitReading> units;  // at least one; the first is the literal one

  bool exponent() const { return !exponent_of.empty(); }
  bool is_ratio() const { return units.front().name == "x"; }
  bool has_sign() const { return relation != Relation::kEqual; }

  // For kUpTo the values that reach the figure: less is allowed, more is not.
  Window window(const Tolerance& tolerance, const UnitReading& unit) const;
  // A value of the base unit in the figure's own: "4.194 MB", "yes", "O(T^1.97)".
  std::string in_unit(double value, const UnitReading& unit) const;

 private:
  Window around(const Tolerance& tolerance) const;  // in printed units, both sides
};

// Throws std::invalid_argument that says how figures are written.
Figure parse_figure(const std::string& text);

// Four significant digits: "4.194", "1.374e+11".
std::string short_number(double value);

}  // namespace kv::claims
