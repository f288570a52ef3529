#include "harness/cli/variants_option.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "harness/config/braces.h"

namespace kv::cli {
namespace {

std::vector<std::string> expanded(const std::string& text) {
  try {
    return config::expand_braces(text);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("--variants has a mistake in '" + text + "': " + e.what());
  }
}

}  // namespace

std::vector<LayerSpecs> parse_variants(const std::string& text) {
  std::vector<LayerSpecs> specs;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const size_t first = part.find_first_not_of(" \n\t"), last = part.find_last_not_of(" \n\t");
    if (first == std::string::npos) continue;
    for (const std::string& spec : expanded(part.substr(first, last - first + 1))) {
      specs.push_back(parse_layer_specs(spec));
      if (std::count(specs.begin(), specs.end(), specs.back()) > 1)
        throw std::invalid_argument("--variants names '" + specs.back().print() + "' twice");
    }
  }
  if (specs.empty())
    throw std::invalid_argument("--variants is empty; give it specs, as 'contiguous/f16;concat'");
  return specs;
}

}  // namespace kv::cli
