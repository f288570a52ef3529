// Values of parameters, read from their text.
#include "variants/core/entry.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace kv {

int64_t Stage::integer(const std::string& key) const { return std::stoll(values.at(key)); }
int64_t Stage::hundredths(const std::string& key) const { return read_hundredths(values.at(key)); }
int64_t Stage::rows(const std::string& key, int64_t whole) const {
  const std::string& value = values.at(key);
  if (value.find_first_not_of("0123456789.") != std::string::npos)
    throw std::invalid_argument("'" + key + "=" + value + "' is the layer's own " + key +
                                ", and there is no model here: give a number");
  if (value.find('.') == std::string::npos) return std::stoll(value);
  return std::max<int64_t>(1, std::llround(std::stod(value) * static_cast<double>(whole)));
}
bool Stage::names_head(const std::string& key, int head, int heads) const {
  const std::string& value = values.at(key);
  if (value.find('.') != std::string::npos) return head < std::llround(std::stod(value) * heads);
  bool named = false;
  for (size_t at = 0; at < value.size(); at = std::min(value.find('+', at), value.size() - 1) + 1) {
    const int number = std::stoi(value.substr(at));
    if (number >= heads) {
      throw std::invalid_argument("'" + key + "=" + value + "': there is no KV head " +
                                  std::to_string(number) + "; a layer has " + std::to_string(heads) +
                                  ", counted from 0");
    }
    named |= number == head;
  }
  return named;
}
const std::string& Stage::text(const std::string& key) const { return values.at(key); }

Stage default_stage(const Entry& entry) {
  Stage stage{std::string(entry.name), {}};
  for (const Parameter& p : entry.parameters) stage.values.emplace(p.name, p.fallback);
  return stage;
}

std::string print_hundredths(int64_t hundredths) {
  std::string text = std::to_string(hundredths / 100);
  if (const int64_t rest = hundredths % 100; rest > 0) {
    text += "." + std::to_string(rest / 10);
    if (rest % 10 > 0) text += std::to_string(rest % 10);
  }
  return text;
}

int64_t read_hundredths(std::string_view text) {
  constexpr size_t kMostDigits = 12;
  const size_t point = text.find('.');
  std::string digits(text.substr(0, point));
  std::string places(point == std::string_view::npos ? "" : text.substr(point + 1));
  while (places.size() > 2 && places.back() == '0') places.pop_back();
  if (digits.empty() || places.size() > 2 || (point != std::string_view::npos && places.empty())) return -1;
  digits += places + std::string(2 - places.size(), '0');
  if (digits.size() > kMostDigits || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

std::string Parameter::range() const {
  if (kind == Kind::kText) return "any text without ',' and ')'";
  if (kind == Kind::kInteger) return std::to_string(min) + "…" + std::to_string(max);
  if (kind == Kind::kDecimal) return print_hundredths(min) + "…" + print_hundredths(max);
  if (kind == Kind::kRows) return word.empty() ? "rows or 0.x" : "rows, 0.x or " + std::string(word);
  if (kind == Kind::kHeads) return "heads a+b or 0.x";
  if (kind == Kind::kCodec) return "any codec but split, as in kivi(bits=2)";
  std::string all;
  for (const std::string_view choice : choices) all += (all.empty() ? "" : "|") + std::string(choice);
  return max > 0 ? all + "|" + std::to_string(min) + "…" + std::to_string(max) : all;
}

std::vector<std::string> Parameter::trial_values() const {
  std::vector<std::string> values;
  for (const std::string_view choice : choices) {
    if (choice != fallback) values.emplace_back(choice);
  }
  for (const int64_t trial : trials) {
    std::string value = kind == Kind::kDecimal ? print_hundredths(trial) : std::to_string(trial);
    if (value != fallback) values.push_back(std::move(value));
  }
  return values;
}

}  // namespace kv
