#include "harness/io/bytes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "harness/io/text.h"

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
  return formatted("%.*f %s", decimals, value, name(units, power));
}

int64_t parse_bytes(const std::string& text, const std::string& option) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(option + ": '" + text + "' " + why +
                                "; write 16GiB (1024^3 bytes) or 16GB (1000^3 bytes)");
  };
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !(value >= 0.0) || !std::isfinite(value)) refuse("is not a number of bytes");
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) refuse("has no unit");
  const double bytes = value * unit_bytes(unit);
  if (unit_bytes(unit) == 0.0) refuse("has an unknown unit (known: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)");
  if (bytes > 1e18) refuse("is more than any machine has");
  return std::llround(bytes);
}

std::optional<int64_t> parse_token_count(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'k')) unit = int64_t{1} << 10;
  if (!text.empty() && (text.back() == 'M' || text.back() == 'm')) unit = int64_t{1} << 20;
  if (unit > 1) text.remove_suffix(1);
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const int64_t most = (int64_t{1} << 62) / unit;
  if (error != std::errc() || end != text.data() + text.size() || count > most || count < -most) return {};
  return count * unit;
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace kv::io
