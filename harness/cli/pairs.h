// The pairs of variants that work together, as Markdown: the text of variants/pairs.md.
#pragma once

#include <string>

namespace kv::cli {

std::string pairs_page();

}  // namespace kv::cli
