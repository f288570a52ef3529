#include "harness/results/benchmark_json.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "harness/io/json.h"

namespace kv::results {
namespace {

// The times of each repetition, in the order in which the repetitions are met.
struct Repetitions {
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, std::vector<double>> times;
  std::vector<Key> order;

  template <class Row>
  void add(const Row& row, const std::string& suffix) {
    const Key key{row.cell + suffix, row.repetition.value_or(0)};
    std::vector<double>& of_key = times[key];
    if (of_key.empty()) order.push_back(key);
    of_key.push_back(row.step_us.value_or(row.attend_us.value_or(0.0)));
  }
};

double upper_median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

std::string benchmark_json(std::span<const SampleResult> samples, std::span<const GrowthResult> growth,
                           const nlohmann::json& environment) {
  Repetitions repetitions;
  for (const SampleResult& row : samples) repetitions.add(row, row.kind == "step" ? "" : " " + row.kind);
  for (const GrowthResult& row : growth) repetitions.add(row, "");
  nlohmann::json benchmarks = nlohmann::json::array();
  for (const Repetitions::Key& key : repetitions.order) {
    std::vector<double>& times = repetitions.times[key];
    const double median = upper_median(times);
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
  const nlohmann::json context = {{"date", environment.value("started", "")},
                                  {"executable", "kvlab"},
                                  {"num_cpus", environment["cpu"]["cores"]},
                                  {"library_build_type", "release"}};
  return io::json_text({{"context", context}, {"benchmarks", benchmarks}}, 1) + "\n";
}

}  // namespace kv::results
