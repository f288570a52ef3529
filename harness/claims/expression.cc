#include "harness/claims/expression.h"

#include <muParser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

namespace kv::claims {
namespace {

mu::Parser parser_of(const std::string& text) {
  mu::Parser parser;
  parser.DefineFun(
      "floor", +[](double x) { return std::floor(x); });
  parser.DefineFun(
      "ceil", +[](double x) { return std::ceil(x); });
  parser.SetExpr(text);
  return parser;
}

[[noreturn]] void fail(const std::string& text, const mu::ParserError& error) {
  throw std::invalid_argument("'" + text + "': " + error.GetMsg());
}

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// muParser would take such a number for a name that is empty.
void refuse_huge_numbers(const std::string& text) {
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    if (!in_name(*at) && *at != '.') {
      ++at;
      continue;
    }
    double value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool digit = std::isdigit(static_cast<unsigned char>(*at)) || *at == '.';
    if (digit && error == std::errc::result_out_of_range) {
      throw std::invalid_argument("'" + text + "' has the number " + std::string(at, next) +
                                  "; what is computed with lies between 1e-307 and 1e308");
    }
    at = digit && next > at ? next : at + 1;
    while (!digit && at < end && in_name(*at)) ++at;  // the rest of a name
  }
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, std::abs(x) < 1e15 && x == std::floor(x) ? "%.0f" : "%.6g", x);
  return text;
}

}  // namespace

Expression::Expression(std::string text) : text_(std::move(text)) {
  constexpr size_t kMost = 4096;
  if (text_.size() > kMost) {
    throw std::invalid_argument("is an expression of " + std::to_string(text_.size()) + " bytes; at most " +
                                std::to_string(kMost) + " are read");
  }
  refuse_huge_numbers(text_);
  try {
    mu::Parser parser = parser_of(text_);
    std::map<std::string, double> ones;
    for (const auto& [name, unset] : parser.GetUsedVar()) {
      names_.push_back(name);
      ones[name] = 1;
    }
    // Once with numbers, so that a mistake shows now.
    for (auto& [name, one] : ones) parser.DefineVar(name, &one);
    parser.Eval();
  } catch (const mu::ParserError& error) {
    fail(text_, error);
  }
}

double Expression::value(const std::function<double(const std::string&)>& value_of) const {
  std::map<std::string, double> values;
  for (const std::string& name : names_) values[name] = value_of(name);
  try {
    mu::Parser parser = parser_of(text_);
    for (auto& [name, value] : values) parser.DefineVar(name, &value);
    return parser.Eval();
  } catch (const mu::ParserError& error) {
    fail(text_, error);
  }
}

std::string Expression::with_numbers(const std::function<double(const std::string&)>& value_of) const {
  std::string out;
  for (size_t at = 0; at < text_.size();) {
    size_t end = at;
    while (end < text_.size() && in_name(text_[end])) ++end;
    const std::string word = text_.substr(at, std::max<size_t>(end - at, 1));
    const bool name = std::find(names_.begin(), names_.end(), word) != names_.end();
    out += name ? number(value_of(word)) : word;
    at += word.size();
  }
  return out;
}

}  // namespace kv::claims
