// Texts of others, made fit to be shown or stored: a file's name may be any bytes, a config's value any number of them.
#pragma once

#include <string>
#include <string_view>

namespace kv::io {

// Each byte that belongs to no character as U+FFFD.
std::string as_utf8(std::string_view text);

// At most about so many bytes of it, the middle left out: a message begins with the place and ends with what is right.
std::string shortened(const std::string& text, size_t most);

// Text of several lines fit for a terminal: UTF-8, a space for each control character but tabs and line ends.
std::string printable(std::string_view text);

// A message fit for a terminal: UTF-8, no control characters, a few lines at most however much it quotes.
// Lines that are indented, as a spec with its mistake marked, stay lines of their own.
std::string as_message(std::string_view text);

// The text without the mark that some editors and spreadsheets put before UTF-8.
std::string without_byte_order_mark(std::string text);
// True if it holds nothing but spaces, tabs and line ends.
bool is_blank(std::string_view text);

// The text that std::printf prints.
std::string formatted(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// "a, b, c".
std::string joined(const auto& texts, const char* between = ", ") {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : between) + std::string(text);
  return all;
}

// The same for things that have a name.
std::string joined_names(const auto& things) {
  std::string all;
  for (const auto& thing : things) all += (all.empty() ? "" : ", ") + std::string(thing.name);
  return all;
}

}  // namespace kv::io
