#include "harness/experiments/list.h"

#include <array>
#include <stdexcept>

#include "harness/peers/peers.h"
#include "harness/workload/workload.h"

namespace kv::experiments {
namespace {

#define KVLAB_ADDRESS(name) &name,
constexpr std::array kExperiments{KVLAB_EXPERIMENTS(KVLAB_ADDRESS)};
#undef KVLAB_ADDRESS

std::vector<std::string> peer_names() {
  std::vector<std::string> names;
  for (const peers::Format& format : peers::formats()) names.push_back(format.text());
  return names;
}

}  // namespace

std::span<const Experiment* const> experiments() { return kExperiments; }

const Experiment& experiment_named(std::string_view name) {
  for (const Experiment* e : kExperiments) {
    if (e->info.name == name) return *e;
  }
  throw std::logic_error("no experiment '" + std::string(name) + "'");
}

const Experiment& experiment_of(const measure::SweepPoint& point) {
  return experiment_named(point.experiment->kind);
}

config::Catalog catalog() {
  config::Catalog all{{}, {"dump", "model"}, peer_names};
  for (const Experiment* e : kExperiments) all.experiments.push_back(e->info);
  for (const workload::FamilyInfo& family : workload::synthetic_families())
    all.workloads.emplace_back(family.name);
  return all;
}

config::Config load_config(const std::string& path, const config::Overrides& overrides) {
  return config::load_config(path, overrides, catalog());
}

}  // namespace kv::experiments
