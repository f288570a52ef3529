#include "harness/config/toml_depth.h"

#include <algorithm>
#include <stdexcept>

namespace kv::config {
namespace {

constexpr int kMostParts = 16, kMostNested = 64;

// The end of the string that begins at `at`, or of the text if the string does not end.
size_t string_end(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool multiline = text.substr(at, 3) == three;
  for (at += multiline ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (multiline ? text.substr(at, 3) == three : text[at] == quote || text[at] == '\n') {
      return at + (multiline ? 3 : text[at] == quote);
    }
  }
  return text.size();
}

}  // namespace

void refuse_deep_toml(std::string_view text, const std::string& path) {
  int parts = 1, nested = 0;
  const auto refuse_beyond = [&](int count, int most, size_t at, const char* what) {
    if (count <= most) return;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw std::invalid_argument(path + ":" + std::to_string(line) + ": " + what + " more than " +
                                std::to_string(most) + " deep");
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = string_end(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.') refuse_beyond(++parts, kMostParts, at, "a dotted key is");
    if (c == '[' || c == '{') refuse_beyond(++nested, kMostNested, at, "brackets are nested");
    if ((c == ']' || c == '}') && nested > 0) --nested;
    if (std::string_view(",=[]{}\n").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
}

}  // namespace kv::config
