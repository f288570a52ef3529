// Arithmetic that a claim file states as text, "2 * layers * T / 1024", evaluated by muParser.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kv::claims {

using ValueOf = std::function<double(const std::string& name)>;

// muParser's operators and functions (+ - * / ^, comparisons, && ||, min, max, sqrt, log2, …), and floor, ceil.
class Expression {
 public:
  // Throws std::invalid_argument with the text and its mistake.
  explicit Expression(std::string text);

  // Names that it needs values for.
  const std::vector<std::string>& names() const { return names_; }
  // An exception that `value_of` throws passes through.
  double value(const ValueOf& value_of) const;
  // The text with every name as its number, for readers who check it by hand.
  std::string with_numbers(const ValueOf& value_of) const;

 private:
  std::string text_;
  std::vector<std::string> names_;
};

// The numbers that names stand for: `leaf` knows one, or `define` has an expression for it. Each is found once, since a chain
// in which every name has the one before it twice has 2^n paths.
class Names {
 public:
  using Leaf = std::function<std::optional<double>(const std::string& name)>;
  // `define` must outlive this object.
  Names(const std::map<std::string, std::string>& define, Leaf leaf)
      : define_(define), leaf_(std::move(leaf)) {}

  // Throws std::invalid_argument for a name that is defined by itself or through more than 100 others.
  double value(const std::string& expression);
  double find(const std::string& name);
  // Call before a value for which leaves are other numbers.
  void forget() { found_.clear(), depth_ = 0; }

 private:
  const std::map<std::string, std::string>& define_;
  const Leaf leaf_;
  std::map<std::string, std::optional<double>> found_;  // empty while it is looked up
  int depth_ = 0;
};

}  // namespace kv::claims
