// Spec strings: `placement['/'codec]['/'retention]`, a stage is `name` or `name(key=value,…)`.
//
// What is left out is `contiguous/f32/full`. The canonical form leaves out every stage and parameter that has
// its default value, except the placement's name; parse(print(s)) == s.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

// One stage with every parameter filled in, as checked text (`"16"`, `"0.25"`, `"copy"`, `"q8_0"`).
struct Stage {
  std::string name;
  std::map<std::string, std::string> values;

  int64_t integer(const std::string& key) const;
  // A number of rows that may be given as a share of `whole`: then rounded to the nearest, at least 1.
  int64_t rows(const std::string& key, int64_t whole) const;
  const std::string& text(const std::string& key) const;
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Spec {
  Stage placement, codec, retention;

  // The canonical form: the key in every CSV, benchmark name and chart.
  std::string print() const;
  friend bool operator==(const Spec&, const Spec&) = default;
};

// Throws std::invalid_argument with the text, a caret under the mistake, what is known, and the nearest name.
Spec parse_spec(std::string_view text);

}  // namespace kv
