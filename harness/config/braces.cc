#include "harness/config/braces.h"

#include <charconv>
#include <stdexcept>

namespace kv::config {
namespace {

constexpr size_t kMostVariants = 1000;

// The parts between commas outside parentheses.
std::vector<std::string> items_of(const std::string& inside) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char c : inside) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      items.emplace_back();
    } else if (c != ' ' || !items.back().empty()) {
      items.back() += c;
    }
  }
  for (std::string& item : items) {
    item.erase(item.find_last_not_of(' ') + 1);
    if (item.empty())
      throw std::invalid_argument("{" + inside + "} has an empty item; write a list like {f16,q8_0}");
  }
  return items;
}

constexpr std::string_view kName = "budget";

[[noreturn]] void fail(std::string_view inside, const std::string& what) {
  throw std::invalid_argument("{" + std::string(inside) + "} " + what);
}

int64_t value_of(std::string_view inside, int64_t budget) {
  const auto unknown = [&] {
    fail(inside, "is unknown; write {budget}, {budget/2}, {budget-4}, or a list like {f16,q8_0}");
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
    fail(inside, "is not a whole number for a budget of " + std::to_string(budget));
  const int64_t value = operation == '/' ? budget / n : budget - n;
  if (value < 1) fail(inside, "is below 1 for a budget of " + std::to_string(budget));
  return value;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& text) {
  std::vector<std::string> all{""};
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find_first_of("{}", at);
    for (std::string& one : all) one += text.substr(at, open - at);
    if (open == std::string::npos) break;
    if (text[open] == '}') throw std::invalid_argument("a '}' without a '{' before it");
    const size_t close = text.find_first_of("{}", open + 1);
    if (close == std::string::npos) throw std::invalid_argument("a '{' without a '}'");
    if (text[close] == '{') throw std::invalid_argument("braces cannot be nested; write separate variants");
    const std::string inside = text.substr(open + 1, close - open - 1);
    std::vector<std::string> items = items_of(inside);
    if (items.size() == 1) items.front() = "{" + inside + "}";  // a placeholder
    if (all.size() * items.size() > kMostVariants)
      throw std::invalid_argument("its lists expand to more than " + std::to_string(kMostVariants) +
                                  " variants");
    std::vector<std::string> product;
    for (const std::string& one : all) {
      for (const std::string& item : items) product.push_back(one + item);
    }
    all = std::move(product);
    at = close + 1;
  }
  return all;
}

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
