// The experiments and workloads that a config may name. Folders above this one define both, so the caller of
// load_config passes them (experiments/list.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/shared_axes.h"

namespace kv::config {

struct ExperimentConfig;

struct ExperimentInfo {
  std::string_view name;
  std::string_view help;
  std::span<const AnyAxis* const> axes = kLengthAxes;  // outermost first
  std::span<const AnyKey* const> keys = {};            // beside the axes and the shared keys
  // Throws std::invalid_argument for keys that exclude each other; `own` is the experiment's own table.
  void (*check)(const Section& own, const ExperimentConfig& sweep) = nullptr;
  bool has_workload = true;        // false: takes requests over the geometry of [model]
  bool needs_model = false;        // its only workload is "model"
  bool takes_latent_rows = false;  // MLA's rows
  bool runs_random_weights = false;
  bool runs_uncached = false;   // variants may name kUncached
  std::string_view table = {};  // the table that overrides [sweep] and [measure] for it; empty: its name
  std::string own_table() const { return std::string(table.empty() ? name : table); }
};

struct Catalog {
  std::vector<ExperimentInfo> experiments;  // in the order of messages
  std::vector<std::string> workloads;
};

// Throws std::out_of_range for a name that load_config would refuse.
const ExperimentInfo& info_of(const Catalog& catalog, std::string_view experiment);

}  // namespace kv::config
