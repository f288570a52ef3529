#include "harness/results/schema.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kv::results {
namespace {

// A column whose value a sweep can vary.
struct Axis {
  std::string_view name;
  std::string_view title;  // how a panel's title says a value; empty: values lie within a panel
  std::string_view key;    // in a config's section of the experiment; empty: no config sets it
};
constexpr Axis kAxes[] = {
    {"device", "{}", ""},
    {"threads", "{} threads", "threads"},
    {"experiment", "{}", ""},
    {"phase", "{}", ""},
    {"workload", "{}", "workload"},
    {"layers", "{} layers", ""},
    {"q_heads", "{} query heads", ""},
    {"kv_heads", "{} KV heads", "kv_heads"},
    {"head_dim", "head dim {}", "head_dim"},
    {"batch", "batch {}", "batch"},
    {"seq_len", "", "seq_len"},
    {"lengths", "", "lengths"},
    {"chunk_tokens", "", "chunk"},
    {"distance", "", "distance"},
    {"passage_tokens", "passage of {} tokens", "passage"},
    {"temperature", "", "temperature"},
    {"arrivals", "{}", ""},
    {"machine", "{} of memory", ""},
    {"step_tokens", "steps of {} tokens", ""},
};

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
    for (const Axis& axis : kAxes) {
      if (axis.name != c.name) continue;
      column["axis"] = true;
      if (!axis.title.empty()) column["title"] = axis.title;
      if (!axis.key.empty()) column["key"] = axis.key;
    }
  }
  return all.dump(1) + "\n";
}

}  // namespace kv::results
