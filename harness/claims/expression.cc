#include "harness/claims/expression.h"

#include <muParser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "harness/io/text.h"

namespace kv::claims {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// muParser's own reader takes a number that no double holds for a name without letters.
int read_number(const char* text, int* position, double* value) {
  if (!is_digit(*text) && *text != '.') return 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), *value);
  if (error == std::errc::result_out_of_range)
    throw mu::ParserError("the number " + std::string(text, end) + " is not between 1e-307 and 1e308");
  *position += static_cast<int>(end - text);
  return end > text;
}

// The result of `use` with a parser of the text.
template <class Use>
auto parsed(const std::string& text, Use use) {
  try {
    mu::Parser parser;
    parser.AddValIdent(read_number);
    parser.DefineFun(
        "floor", +[](double x) { return std::floor(x); });
    parser.DefineFun(
        "ceil", +[](double x) { return std::ceil(x); });
    parser.SetExpr(text);
    return use(parser);
  } catch (const mu::ParserError& error) {
    throw std::invalid_argument("'" + text + "': " + error.GetMsg());
  }
}

std::string number(double x) {
  return io::formatted(std::abs(x) < 1e15 && x == std::floor(x) ? "%.0f" : "%.6g", x);
}

}  // namespace

Expression::Expression(std::string text) : text_(std::move(text)) {
  constexpr size_t kMost = 4096;
  if (text_.size() > kMost) {
    throw std::invalid_argument("is an expression of " + std::to_string(text_.size()) + " bytes; at most " +
                                std::to_string(kMost) + " are read");
  }
  parsed(text_, [&](mu::Parser& parser) {
    for (const auto& [name, unset] : parser.GetUsedVar()) names_.push_back(name);
  });
  value([](const std::string&) { return 1.0; });  // a mistake shows now
}

double Expression::value(const ValueOf& value_of) const {
  std::map<std::string, double> values;
  for (const std::string& name : names_) values[name] = value_of(name);
  return parsed(text_, [&](mu::Parser& parser) {
    for (auto& [name, value] : values) parser.DefineVar(name, &value);
    return parser.Eval();
  });
}

std::string Expression::with_numbers(const ValueOf& value_of) const {
  std::string out;
  for (size_t at = 0; at < text_.size();) {
    size_t end = at;
    while (end < text_.size() && in_name(text_[end])) ++end;
    const std::string word = text_.substr(at, std::max<size_t>(end - at, 1));
    out += std::ranges::count(names_, word) ? number(value_of(word)) : word;
    at += word.size();
  }
  return out;
}

double Names::value(const std::string& expression) {
  return Expression(expression).value([this](const std::string& name) { return find(name); });
}

double Names::find(const std::string& name) {
  constexpr int kMostDeep = 100;  // look-ups are recursive
  const auto [at, first] = found_.try_emplace(name);
  if (!first && at->second) return *at->second;
  if (!first) throw std::invalid_argument("has '" + name + "', which is defined by itself");
  at->second = leaf_(name);
  if (at->second) return *at->second;
  if (++depth_ > kMostDeep)
    throw std::invalid_argument("has '" + name + "', which is one of more than " + std::to_string(kMostDeep) +
                                " that are defined by one another");
  const double value = this->value(define_.at(name));
  --depth_;
  return *(at->second = value);
}

}  // namespace kv::claims
