#include "harness/io/text.h"

#include <cstdarg>
#include <cstdio>

#include "harness/io/json.h"

namespace kv::io {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// A space for each control character: those of ASCII, and U+0080 to U+009F, which many terminals obey as well. `text` is UTF-8.
std::string without_controls(const std::string& text, const auto& stays) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool longer = c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    out += longer || ((c < 0x20 || c == 0x7F) && !stays(i)) ? ' ' : text[i];
    i += longer;
  }
  return out;
}

}  // namespace

std::string as_utf8(std::string_view text) {
  // Its writer replaces what is not UTF-8, and its parser takes back what the writer escaped.
  return nlohmann::json::parse(json_text(text)).get<std::string>();
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t first = most / 2, last = text.size() - (most - 1) / 2;
  while (first > 0 && continues_character(text[first])) --first;
  while (last < text.size() && continues_character(text[last])) ++last;
  return text.substr(0, first) + "…" + text.substr(last);
}

std::string without_byte_order_mark(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

std::string as_message(std::string_view text) {
  constexpr size_t kMost = 2000;
  const std::string message = shortened(as_utf8(text), kMost);
  return without_controls(
      message, [&](size_t i) { return message[i] == '\n' && message.compare(i + 1, 2, "  ") == 0; });
}

std::string printable(std::string_view text) {
  const std::string whole = as_utf8(text);
  return without_controls(whole, [&](size_t i) { return whole[i] == '\n' || whole[i] == '\t'; });
}

std::string formatted(const char* pattern, ...) {
  char text[256];
  std::va_list values;
  va_start(values, pattern);
  std::vsnprintf(text, sizeof text, pattern, values);
  va_end(values);
  return text;
}

}  // namespace kv::io
