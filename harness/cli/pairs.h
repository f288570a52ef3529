// Which pairs of variants work, as Markdown: variants/README.md is what this returns.
#pragma once

#include <string>

namespace kv::cli {

std::string pairs_page();

}  // namespace kv::cli
