#include "harness/io/aligned_text.h"

#include <algorithm>

namespace kv::io {

size_t text_width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string aligned_text(const std::vector<std::vector<std::string>>& rows, size_t left_columns) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - text_width(row[i]), ' ');
      line += " " + (i < left_columns ? row[i] + gap : gap + row[i]) + " ";
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace kv::io
