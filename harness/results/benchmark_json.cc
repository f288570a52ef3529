#include "harness/results/benchmark_json.h"

#include <map>
#include <utility>
#include <vector>

#include "harness/io/json.h"
#include "harness/math/stats.h"

namespace kv::results {
namespace {

// The times of each repetition, in the order in which the repetitions are met.
struct Repetitions {
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, std::vector<double>> times;
  std::vector<Key> order;

  template <class Row>
  void add(const Row& row, const std::string& suffix) {
    const std::string host = row.host.empty() ? "" : " on " + row.host;
    const Key key{row.cell + suffix + host, row.repetition.value_or(0)};
    std::vector<double>& of_key = times[key];
    if (of_key.empty()) order.push_back(key);
    of_key.push_back(row.step_us.value_or(row.attend_us.value_or(0.0)));
  }
};

}  // namespace

std::string benchmark_json(std::span<const SampleResult> samples, std::span<const GrowthResult> growth,
                           const nlohmann::json& environment) {
  Repetitions repetitions;
  for (const SampleResult& row : samples) repetitions.add(row, row.kind == "step" ? "" : " " + row.kind);
  for (const GrowthResult& row : growth) repetitions.add(row, "");
  nlohmann::json benchmarks = nlohmann::json::array();
  for (const Repetitions::Key& key : repetitions.order) {
    const std::vector<double>& times = repetitions.times[key];
    const double median = math::median(times);
    benchmarks.push_back({{"name", key.first},
                          {"run_name", key.first},
                          {"run_type", "iteration"},
                          {"repetition_index", key.second},
                          {"threads", 1},
                          {"iterations", times.size()},
                          {"real_time", median},
                          {"cpu_time", median},
                          {"time_unit", "us"}});
  }
  const nlohmann::json context = {
      {"date", environment.value("started", "")},
      {"executable", "kvlab"},
      {"num_cpus", environment.value("/cpu/cores"_json_pointer, nlohmann::json())},
      {"library_build_type", "release"},
      {"kvlab_real_time", "median of the repetition's steps"}};
  return io::json_text({{"context", context}, {"benchmarks", benchmarks}}, 1) + "\n";
}

}  // namespace kv::results
