// Values of parameters, read from their text.
#include "variants/core/entry.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace kv {

int64_t Stage::integer(const std::string& key) const { return std::stoll(values.at(key)); }
int64_t Stage::rows(const std::string& key, int64_t whole) const {
  const std::string& value = values.at(key);
  if (value.find_first_not_of("0123456789.") != std::string::npos)
    throw std::invalid_argument("'" + key + "=" + value + "' is the layer's own " + key +
                                ", and there is no model here: give a number");
  if (value.find('.') == std::string::npos) return std::stoll(value);
  return std::max<int64_t>(1, std::llround(std::stod(value) * static_cast<double>(whole)));
}
const std::string& Stage::text(const std::string& key) const { return values.at(key); }

std::string Parameter::range() const {
  if (kind == Kind::kText) return "any text without ',' and ')'";
  const std::string numbers = std::to_string(min) + "…" + std::to_string(max);
  if (kind == Kind::kInteger) return numbers;
  if (kind == Kind::kRows) return word.empty() ? "rows or 0.x" : "rows, 0.x or " + std::string(word);
  std::string all;
  for (const std::string_view choice : choices) all += (all.empty() ? "" : "|") + std::string(choice);
  return all;
}

std::vector<std::string> Parameter::trial_values() const {
  std::vector<std::string> values;
  for (const std::string_view choice : choices) {
    if (choice != fallback) values.emplace_back(choice);
  }
  for (const int64_t trial : trials) {
    if (std::to_string(trial) != fallback) values.push_back(std::to_string(trial));
  }
  return values;
}

}  // namespace kv
