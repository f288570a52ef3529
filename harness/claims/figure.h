// A figure as a document prints it, and whether a value is that figure.
//
//   "0.67 MB"  "~200x"  "<0.5 %"  "≤12"  "> 25 tok/s"  "30–50 %"  "up to 8x"  "4.2e14 FLOPs"  "yes"  "O(T^2)"
//
// What it means to agree is part of the figure unless a claim says otherwise: half a unit of the last digit
// that was printed, and 10 % behind a "~" where that is more; 0.2 of an exponent. A bound is what it says. A
// factor of a ratio is one of its gain, what it is over 1x: factor 2 of 1.1x is 1.05x to 1.2x, where half and
// double of 1.1x would have room for every other ratio.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace kv::claims {

// Values that agree with a figure, in the base unit (bytes, seconds, shares of 1).
struct Window {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool contains(double x) const { return low <= x && x <= high; }
};

struct Tolerance {
  enum class Kind { kAsPrinted, kShare, kFactor, kPlusMinus };
  Kind kind = Kind::kAsPrinted;
  double value = 0;
};
// "as printed", "5 %", "factor 2" or "+-0.2". Throws std::invalid_argument.
Tolerance parse_tolerance(const std::string& text);

// What a document may mean by MB and GB: powers of 1000, powers of 1024, or MiB and 1000 of them.
struct Prefixes {
  double mega = 1e6, giga = 1e9;
};

// What one printed unit is.
struct UnitReading {
  double factor;
  std::string name;          // "MB", or "MiB" where MB is read so
  std::string read_as = {};  // "MiB" or "1000 MiB" where it is not the literal one
  Prefixes prefixes = {};
};

struct Figure {
  enum class Relation { kEqual, kAtMost, kBelow, kAtLeast, kAbove, kBetween, kUpTo };
  std::string text;  // as printed
  Relation relation = Relation::kEqual;
  double low = 0, high = 0;  // the same unless a range; in printed units
  double last_digit = 1;     // what one unit of the last printed digit is worth
  bool about = false;        // behind a "~"
  bool truth = false;        // "yes" or "no": 1 or 0
  bool duration = false;     // a time, of which a bound is the least
  // How a claim reads a figure without a sign: what lies on the other side of it agrees as well.
  enum class Side { kBoth, kAtMost, kAtLeast };
  Side side = Side::kBoth;
  bool exponent() const { return !exponent_of.empty(); }
  bool is_ratio() const { return units.front().name == "x"; }
  std::string exponent_of;         // "O(T^2)": "T", with the value 2; else empty
  std::vector<UnitReading> units;  // at least one; the first is the literal one

  // Of kUpTo the values that reach the figure: less is allowed, and more is not.
  Window window(const Tolerance& tolerance, const UnitReading& unit) const;
  // A value of the base unit in the figure's own: "4.194 MB", "yes", "O(T^1.97)".
  std::string in_unit(double value, const UnitReading& unit) const;

 private:
  Window around(const Tolerance& tolerance) const;  // in printed units, both sides
};

// Throws std::invalid_argument that says what can be written.
Figure parse_figure(const std::string& text);

// Four significant digits: "4.194", "1.374e+11".
std::string short_number(double value);

}  // namespace kv::claims
