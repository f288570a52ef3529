#include "harness/config/braces.h"

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
      throw std::invalid_argument("{" + inside + "} has an empty item; a list is as {f16,q8_0}");
  }
  return items;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& text) {
  std::vector<std::string> all{""};
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find_first_of("{}", at);
    for (std::string& one : all) one += text.substr(at, open - at);
    if (open == std::string::npos) break;
    if (text[open] == '}') throw std::invalid_argument("a '}' has no '{' before it");
    const size_t close = text.find_first_of("{}", open + 1);
    if (close == std::string::npos) throw std::invalid_argument("a '{' has no '}'");
    if (text[close] == '{')
      throw std::invalid_argument("braces inside braces are not known; write them as variants of their own");
    const std::string inside = text.substr(open + 1, close - open - 1);
    std::vector<std::string> items = items_of(inside);
    if (items.size() == 1) items.front() = "{" + inside + "}";  // a placeholder
    if (all.size() * items.size() > kMostVariants)
      throw std::invalid_argument("its lists make more than " + std::to_string(kMostVariants) + " variants");
    std::vector<std::string> product;
    for (const std::string& one : all) {
      for (const std::string& item : items) product.push_back(one + item);
    }
    all = std::move(product);
    at = close + 1;
  }
  return all;
}

}  // namespace kv::config
