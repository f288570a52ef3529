#include "harness/cli/variants_option.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace kv::cli {

std::vector<Spec> parse_variants(const std::string& text) {
  std::vector<Spec> specs;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const size_t first = part.find_first_not_of(" \n\t"), last = part.find_last_not_of(" \n\t");
    if (first == std::string::npos) continue;
    specs.push_back(parse_spec(part.substr(first, last - first + 1)));
    if (std::count(specs.begin(), specs.end(), specs.back()) > 1) {
      throw std::invalid_argument("--variants names '" + specs.back().print() + "' twice");
    }
  }
  if (specs.empty())
    throw std::invalid_argument("--variants is empty; give it specs, as 'contiguous/f16;concat'");
  return specs;
}

}  // namespace kv::cli
