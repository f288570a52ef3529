// The rows of a sequence that a sliding window keeps, where a codec encodes several together: whole units go, the oldest
// first. A new unit takes the place of the one that goes, so nothing moves and no row is encoded twice.
//
//   first rows | sinks' units | a ring of the window's units | rows that wait raw
#pragma once

#include <algorithm>
#include <cstdint>

#include "variants/core/codec.h"

namespace kv {

class UnitRing {
 public:
  // Every unit stays.
  explicit UnitRing(const RowUnits& units) : units_(units) {}
  // The first `sinks` rows, and of the others at most the newest `window`: as many whole units as fit beside the rows that
  // wait.
  UnitRing(const RowUnits& units, int64_t sinks, int64_t window)
      : units_(units),
        sinks_((sinks - units.first) / units.rows),
        window_(std::max<int64_t>(1, (window - units.waiting + 1) / units.rows - 1)) {}
  // The fewest rows of a window that has room for one unit.
  static int64_t least_window(const RowUnits& units) { return units.waiting + 2 * units.rows - 1; }

  // Kept rows of the first `tokens`.
  int64_t rows(int64_t tokens) const {
    return tokens - std::max<int64_t>(0, units_.encoded(tokens) - most()) * units_.rows;
  }
  bool drops(int64_t tokens) const { return units_.encoded(tokens) > most(); }
  // The place of a unit among those that are kept.
  int64_t place(int64_t unit) const { return unit < most() ? unit : sinks_ + (unit - sinks_) % window_; }
  // The row of a token once its unit is encoded.
  int64_t row_of(int64_t token) const {
    const int64_t behind = token - units_.first;
    return behind < 0 ? token
                      : units_.first + place(behind / units_.rows) * units_.rows + behind % units_.rows;
  }
  // The token in row `row` of those kept of `tokens`.
  int64_t token_at(int64_t row, int64_t tokens) const {
    const int64_t units = units_.encoded(tokens), behind = row - units_.first;
    if (behind >= std::min(units, most()) * units_.rows) return row + tokens - rows(tokens);
    const int64_t place = behind / units_.rows;
    if (behind < 0 || place < sinks_ || units <= most()) return row;
    const int64_t newest = units - 1 - sinks_, unit = newest - (newest - (place - sinks_)) % window_;
    return units_.first + (sinks_ + unit) * units_.rows + behind % units_.rows;
  }
  // The kept rows of `tokens` in the order of their tokens are these: [0, begin), then [oldest, end), [begin, oldest)
  // and the rest.
  struct Order {
    int64_t begin, oldest, end;
  };
  Order order(int64_t tokens) const {
    if (!drops(tokens)) return {0, 0, 0};
    const auto row = [&](int64_t place) { return units_.first + place * units_.rows; };
    return {row(sinks_), row(place(units_.encoded(tokens))), row(most())};
  }
  // The most tokens, at least `tokens`, of which none but the one numbered tokens - 1 takes an older one's place.
  int64_t undisturbed(int64_t tokens) const {
    return units_.first + units_.waiting + (std::max(most(), units_.encoded(tokens)) + 1) * units_.rows - 1;
  }

 private:
  int64_t most() const { return sinks_ + window_; }

  RowUnits units_;
  int64_t sinks_ = 0, window_ = int64_t{1} << 40;  // units
};

}  // namespace kv
