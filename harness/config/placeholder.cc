#include "harness/config/placeholder.h"

#include <charconv>
#include <stdexcept>

namespace kv::config {
namespace {

constexpr std::string_view kName = "budget";

[[noreturn]] void fail(std::string_view inside, const std::string& what) {
  throw std::invalid_argument("{" + std::string(inside) + "} " + what);
}

int64_t value_of(std::string_view inside, int64_t budget) {
  const auto unknown = [&] {
    fail(inside, "is not known; there are {budget}, {budget/2} and {budget-4}, and lists as {f16,q8_0}");
  };
  if (inside.substr(0, kName.size()) != kName) unknown();
  if (inside == kName) return budget;
  const std::string_view number = inside.substr(kName.size() + 1);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error != std::errc() || end != number.data() + number.size() || n < 1) unknown();
  const char operation = inside[kName.size()];
  if (operation != '/' && operation != '-') unknown();
  if (operation == '/' && budget % n != 0)
    fail(inside, "is not a whole number at a budget of " + std::to_string(budget));
  const int64_t value = operation == '/' ? budget / n : budget - n;
  if (value < 1) fail(inside, "is below 1 at a budget of " + std::to_string(budget));
  return value;
}

}  // namespace

bool has_placeholder(std::string_view text) { return text.find('{') != std::string_view::npos; }

std::string substitute_budget(std::string_view text, int64_t budget) {
  std::string result;
  while (has_placeholder(text)) {
    const size_t open = text.find('{'), close = text.find('}', open);
    if (close == std::string_view::npos) throw std::invalid_argument("a '{' has no '}'");
    result += text.substr(0, open);
    result += std::to_string(value_of(text.substr(open + 1, close - open - 1), budget));
    text.remove_prefix(close + 1);
  }
  return result + std::string(text);
}

}  // namespace kv::config
