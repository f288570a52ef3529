// An estimate: a value and the two ends of its interval, three columns by one declaration. The ends are named
// NAME_ci_low and NAME_ci_high, or by a pattern with a star in place of low and high.
//
//   inline constexpr auto kTtftP99S = estimate<"ttft_p99_s">("s", "time to the first token, 99th percentile");
//   row.set(kTtftP99S, median, interval);   with_interval(row, kTtftP99S, "%.3g")
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/results/column.h"

namespace kv::results {

struct Estimate : NumberColumn {
  NumberColumn low, high;

  constexpr const NumberColumn& value() const { return *this; }  // without its ends
  constexpr Estimate called(std::string_view heading_) const {
    Estimate estimate = *this;
    estimate.heading = heading_;
    return estimate;
  }
};

// A text as a template's argument.
template <size_t kSize>
struct Literal {
  char text[kSize];
  constexpr Literal(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
  constexpr std::string_view view() const { return {text, kSize - 1}; }
};

// The name of an end: the pattern with `kEnd` for its star; without a pattern NAME_ci_END.
template <Literal kName, Literal kPattern, Literal kEnd>
inline constexpr auto kEndName = [] {
  constexpr bool is_regular = kPattern.view().empty();
  constexpr size_t star = is_regular ? 0 : kPattern.view().find('*');
  constexpr std::array<std::string_view, 4> parts{is_regular ? kName.view() : kPattern.view().substr(0, star),
                                                  is_regular ? "_ci_" : "", kEnd.view(),
                                                  is_regular ? "" : kPattern.view().substr(star + 1)};
  std::array<char, parts[0].size() + parts[1].size() + parts[2].size() + parts[3].size()> name{};
  auto at = name.begin();
  for (const std::string_view part : parts) at = std::ranges::copy(part, at).out;
  return name;
}();

// `interval` is its confidence and kind.
template <Literal kName, Literal kPattern = "">
constexpr Estimate estimate(std::string_view unit, std::string_view meaning,
                            std::string_view interval = "95 % interval") {
  const auto end = [&](const auto& name, std::string_view which) {
    NumberColumn column{{name.data(), name.size()}, unit, interval};
    column.end = which;
    column.end_of = kName.view();
    return column;
  };
  return {{kName.view(), unit, meaning},
          end(kEndName<kName, kPattern, "low">, "lower"),
          end(kEndName<kName, kPattern, "high">, "upper")};
}

}  // namespace kv::results
