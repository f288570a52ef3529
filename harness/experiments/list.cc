#include "harness/experiments/list.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "harness/workload/workload.h"

namespace kv::experiments {
namespace {

#define KVLAB_ADDRESS(name) &name,
constexpr std::array kExperiments{KVLAB_EXPERIMENTS(KVLAB_ADDRESS)};
#undef KVLAB_ADDRESS

}  // namespace

std::span<const Experiment* const> experiments() { return kExperiments; }

const Experiment* find_experiment(std::string_view name) {
  const auto found = std::find_if(kExperiments.begin(), kExperiments.end(),
                                  [&](const Experiment* e) { return e->info.name == name; });
  return found == kExperiments.end() ? nullptr : *found;
}

size_t judge_cells(std::vector<results::Row>& cells) {
  size_t judged = 0;
  for (const Experiment* experiment : kExperiments) {
    std::vector<results::Row*> own;
    for (results::Row& cell : cells)
      if (experiment->judge && cell[results::kExperiment] == experiment->info.name) own.push_back(&cell);
    if (!own.empty()) experiment->judge(own);
    judged += own.size();
  }
  return judged;
}

std::vector<results::Row> cells_with(bool Experiment::*fact, std::vector<results::Row> cells) {
  std::erase_if(cells, [&](const results::Row& cell) {
    const Experiment* experiment = find_experiment(cell[results::kExperiment]);
    return !experiment || !(experiment->*fact);
  });
  return cells;
}

const Experiment& experiment_named(std::string_view name) {
  if (const Experiment* found = find_experiment(name)) return *found;
  throw std::logic_error("no experiment '" + std::string(name) + "'");
}

const Experiment& experiment_of(const measure::SweepPoint& point) {
  return experiment_named(point.experiment->kind);
}

config::Catalog catalog() {
  config::Catalog all{{}, {"dump", "model"}};
  for (const Experiment* e : kExperiments) all.experiments.push_back(e->info);
  for (const workload::FamilyInfo& family : workload::synthetic_families())
    all.workloads.emplace_back(family.name);
  return all;
}

config::Config load_config(const std::string& path, const config::Overrides& overrides) {
  return config::load_config(path, overrides, catalog());
}

}  // namespace kv::experiments
