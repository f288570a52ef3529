#include "harness/results/value.h"

#include <array>
#include <charconv>

namespace kv::results {
namespace {

constexpr std::array<std::string_view, 5> kStatusNames{"", "ok", "failed", "unsupported", "out_of_memory"};

template <class T>
bool parse_number(const std::string& text, std::optional<T>& value) {
  value.reset();
  if (text.empty()) return true;
  T parsed{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || at != end) return false;
  value = parsed;
  return true;
}

}  // namespace

std::string_view type_name(Type type) {
  constexpr std::array<std::string_view, 4> kNames{"text", "integer", "number", "text"};
  return kNames[static_cast<size_t>(type)];
}

std::string text_of(const Integer& value) { return value ? std::to_string(*value) : ""; }

std::string text_of(const Number& value) {
  if (!value) return "";
  std::array<char, 32> digits;
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), *value, std::chars_format::general, 9);
  return {digits.data(), end.ptr};
}

std::string text_of(Status status) { return std::string(kStatusNames[static_cast<size_t>(status)]); }

bool parse(const std::string& text, Integer& value) { return parse_number(text, value); }

bool parse(const std::string& text, Number& value) {
  std::optional<double> parsed;
  const bool good = parse_number(text, parsed);
  value = parsed ? Number(*parsed) : Number();
  return good;
}

bool parse(const std::string& text, Status& value) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] != text) continue;
    value = static_cast<Status>(i);
    return true;
  }
  return false;
}

}  // namespace kv::results
