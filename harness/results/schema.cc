#include "harness/results/schema.h"

#include <nlohmann/json.hpp>

namespace kv::results {

std::string columns_json(const std::vector<Column>& columns) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Column& c : columns) {
    all.push_back({{"name", c.name},
                   {"unit", c.unit},
                   {"type", type_name(c.type)},
                   {"meaning", c.meaning},
                   {"aliases", c.aliases}});
  }
  return all.dump(1) + "\n";
}

}  // namespace kv::results
