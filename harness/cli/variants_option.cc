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
    throw std::invalid_argument("--variants: '" + text + "': " + e.what());
  }
}

// A comma that is not inside brackets is one between specs.
bool has_bare_comma(const std::string& text) {
  int depth = 0;
  return std::any_of(text.begin(), text.end(), [&](char c) {
    depth += (c == '(') - (c == ')');
    return c == ',' && depth == 0;
  });
}

LayerSpecs parsed(const std::string& text) {
  try {
    return parse_layer_specs(text);
  } catch (const std::invalid_argument&) {
    if (!has_bare_comma(text)) throw;
    throw std::invalid_argument("--variants: separate the specs of '" + text +
                                "' with ';', e.g. 'contiguous/f16;concat'");
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
      specs.push_back(parsed(spec));
      if (std::count(specs.begin(), specs.end(), specs.back()) > 1)
        throw std::invalid_argument("--variants names '" + specs.back().print() + "' twice");
    }
  }
  if (specs.empty())
    throw std::invalid_argument("--variants is empty; give specs, e.g. 'contiguous/f16;concat'");
  return specs;
}

}  // namespace kv::cli
