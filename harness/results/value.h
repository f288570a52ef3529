// What a field of a result can be: a text, a whole number, a number or a status, absent where there is none.
//
// Text is made here, when a file is written, and read here, when one is read again; nothing else converts.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv::results {

using Integer = std::optional<int64_t>;

// A number that was measured. What is not finite counts as absent: a file has nothing to write for it.
class Number : public std::optional<double> {
 public:
  Number() = default;
  Number(double value) {  // implicit, as std::optional's
    if (std::isfinite(value)) emplace(value);
  }
  friend bool operator==(const Number& a, const Number& b) {
    return static_cast<const std::optional<double>&>(a) == static_cast<const std::optional<double>&>(b);
  }
};

// How a cell ended; kNone while it is measured.
enum class Status { kNone, kOk, kFailed, kUnsupported, kOutOfMemory };

enum class Type { kText, kInteger, kNumber, kStatus };
std::string_view type_name(Type type);  // as columns.json has it

// Empty where there is no value. Numbers keep the nine digits that tell them apart.
inline std::string text_of(const std::string& text) { return text; }
std::string text_of(const Integer& value);
std::string text_of(const Number& value);
std::string text_of(Status status);

// The value that a text stands for; false where it stands for none.
inline bool parse(const std::string& text, std::string& value) { return value = text, true; }
bool parse(const std::string& text, Integer& value);
bool parse(const std::string& text, Number& value);
bool parse(const std::string& text, Status& value);

}  // namespace kv::results
