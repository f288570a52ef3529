// Arithmetic that a claim file states as text, "2 * layers * T / 1024", evaluated by muParser.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kv::claims {

// What muParser knows (+ - * / ^, comparisons, && ||, min, max, sqrt, log2, …), and floor, ceil.
class Expression {
 public:
  // Throws std::invalid_argument with the text and what is wrong with it.
  explicit Expression(std::string text);

  const std::string& text() const { return text_; }
  // Names that it needs values for.
  const std::vector<std::string>& names() const { return names_; }
  // `value_of` may throw; what is thrown passes through.
  double value(const std::function<double(const std::string& name)>& value_of) const;
  // The text with every name as its number: how a reader can check it by hand.
  std::string with_numbers(const std::function<double(const std::string& name)>& value_of) const;

 private:
  std::string text_;
  std::vector<std::string> names_;
};

}  // namespace kv::claims
