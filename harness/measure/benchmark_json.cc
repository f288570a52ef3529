#include "harness/measure/benchmark_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "harness/io/json.h"
#include "harness/math/stats.h"
#include "harness/measure/time_columns.h"

namespace kv::measure {

std::string benchmark_json(std::span<const results::Row> steps, const nlohmann::json& environment) {
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, std::vector<double>> times;
  std::vector<Key> order;  // order of first appearance
  const auto times_of = [&](const results::Row& row, const std::string& kind) -> std::vector<double>& {
    const std::string& host = row[results::kHost];
    const Key key{row[results::kCell] + kind + (host.empty() ? "" : " on " + host),
                  row[kRepetition].value_or(0)};
    std::vector<double>& of_key = times[key];
    if (of_key.empty()) order.push_back(key);
    return of_key;
  };
  for (const results::Row& row : steps) {
    const std::string& kind = row[kKind];
    times_of(row, kind.empty() || kind == "step" ? "" : " " + kind)
        .push_back(row[kStepUs].value_or(row[kAttendUs].value_or(0.0)));
    if (!kind.empty()) continue;
    std::vector<double>& total = times_of(row, std::string(kAppendTotal));  // a growth run's
    if (total.empty()) total.push_back(0.0);
    total.front() += row[kAppendUs].value_or(0.0) + row[kViewUs].value_or(0.0);
  }
  nlohmann::json benchmarks = nlohmann::json::array();
  for (const Key& key : order) {
    const double median = math::median(times[key]);
    benchmarks.push_back({{"name", key.first},
                          {"run_name", key.first},
                          {"run_type", "iteration"},
                          {"repetition_index", key.second},
                          {"threads", 1},
                          {"iterations", times[key].size()},
                          {"real_time", median},
                          {"cpu_time", median},
                          {"time_unit", "us"}});
  }
  const auto cores = "/cpu/cores"_json_pointer;
  const nlohmann::json context = {
      {"date", io::text_at(environment, "/started")},
      {"executable", "kvlab"},
      {"num_cpus", environment.contains(cores) ? environment[cores] : nlohmann::json()},
      {"library_build_type", "release"},
      {"kvlab_real_time", kRealTime}};
  return io::json_text({{"context", context}, {"benchmarks", benchmarks}}, 1) + "\n";
}

RepetitionTimes repetition_times(const nlohmann::json& benchmark) {
  RepetitionTimes times;
  for (const nlohmann::json& entry : benchmark.value("benchmarks", nlohmann::json::array())) {
    if (entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
        entry.contains("real_time") && entry["real_time"].is_number())
      times[entry["name"].get<std::string>()].push_back(entry["real_time"].get<double>());
  }
  return times;
}

}  // namespace kv::measure
