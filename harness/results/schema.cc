#include "harness/results/schema.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kv::results {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::string columns_json(const std::vector<Column>& columns) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Column& c : columns) {
    nlohmann::ordered_json& column = all.emplace_back(nlohmann::ordered_json{{"name", c.name},
                                                                             {"unit", c.unit},
                                                                             {"type", type_name(c.type)},
                                                                             {"meaning", c.meaning},
                                                                             {"aliases", c.aliases}});
    if (!c.experiments.empty()) column["experiments"] = words_of(c.experiments);
    if (!c.values.empty()) column["values"] = c.values;
    if (c.stage) column["stage"] = true;
  }
  return all.dump(1) + "\n";
}

}  // namespace kv::results
