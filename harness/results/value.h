// The value of a result's field: a text, an integer, a number or a status; each may be absent.
//
// Only this file converts values to text when a file is written, and text to values when it is read.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv::results {

using Integer = std::optional<int64_t>;

// A measured number. A number that is not finite counts as absent, since a file has no text for it.
class Number : public std::optional<double> {
 public:
  Number() = default;
  Number(double value) {  // implicit, like std::optional's
    if (std::isfinite(value)) emplace(value);
  }
  friend bool operator==(const Number& a, const Number& b) {
    return static_cast<const std::optional<double>&>(a) == static_cast<const std::optional<double>&>(b);
  }
};

// A cell's outcome; kNone while it is measured.
enum class Status { kNone, kOk, kFailed, kUnsupported, kOutOfMemory };

enum class Type { kText, kInteger, kNumber, kStatus };
std::string_view type_name(Type type);  // its name in columns.json

// Empty for an absent value. Numbers keep nine significant digits.
inline std::string text_of(const std::string& text) { return text; }
std::string text_of(const Integer& value);
std::string text_of(const Number& value);
std::string text_of(Status status);

// Sets the value that a text stands for; returns false if the text does not fit the type.
inline bool parse(const std::string& text, std::string& value) { return value = text, true; }
bool parse(const std::string& text, Integer& value);
bool parse(const std::string& text, Number& value);
bool parse(const std::string& text, Status& value);

}  // namespace kv::results
