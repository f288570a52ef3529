#include "harness/io/bytes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>

namespace kv::io {
namespace {

constexpr std::array kBinaryUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
constexpr std::array kDecimalUnits{"B", "kB", "MB", "GB", "TB", "PB"};

double step(Units units) { return units == Units::kBinary ? 1024.0 : 1000.0; }

const char* name(Units units, size_t power) {
  return units == Units::kBinary ? kBinaryUnits[power] : kDecimalUnits[power];
}

// Bytes of a unit; 0 for what is none.
double unit_bytes(std::string_view text) {
  for (size_t power = 0; power < kBinaryUnits.size(); ++power) {
    for (const Units units : {Units::kBinary, Units::kDecimal}) {
      if (text == name(units, power)) return std::pow(step(units), power);
    }
  }
  return text == "KB" ? 1000.0 : 0.0;
}

}  // namespace

std::string human_bytes(int64_t bytes, Units units) {
  double value = static_cast<double>(bytes);
  size_t power = 0;
  // 1023.7 would be shown as 1024: rounded up, it belongs to the next unit.
  while (value >= step(units) - 0.5 && power + 1 < kBinaryUnits.size()) {
    value /= step(units);
    ++power;
  }
  const int decimals = power == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, name(units, power));
  return text.data();
}

int64_t parse_bytes(const std::string& text, const std::string& option) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(option + " '" + text + "' " + why +
                                "; write it as 16GiB (1024^3 bytes) or 16GB (1000^3 bytes)");
  };
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !(value >= 0.0) || !std::isfinite(value)) refuse("is no number of bytes");
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) refuse("has no unit");
  const double bytes = value * unit_bytes(unit);
  if (unit_bytes(unit) == 0.0) refuse("has a unit that is not B, KiB, MiB, GiB, TiB, kB, MB, GB or TB");
  if (bytes > 1e18) refuse("is more than any machine has");
  return std::llround(bytes);
}

}  // namespace kv::io
