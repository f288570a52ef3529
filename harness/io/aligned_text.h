// Rows of text as aligned columns.
#pragma once

#include <string>
#include <vector>

namespace kv::io {

// Counts code points, so that an en dash counts once.
size_t text_width(const std::string& text);

// Columns as wide as they need, the first `left_columns` left-aligned; the first row is the head.
std::string aligned_text(const std::vector<std::vector<std::string>>& rows, size_t left_columns = 1);

}  // namespace kv::io
