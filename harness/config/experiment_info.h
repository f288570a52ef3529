// What reading a config takes to know of the experiments and workloads that it may name. Both are defined in
// rooms above this one, so who loads a config passes them (experiments/list.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv::config {

// Which axis says how long sequences are.
enum class LengthAxis { kSeqLen, kLengths, kDistance, kRequests };

// Which columns the summary's table of an experiment has (cli/summary_tables.cc): times of steps, or its own.
enum class SummaryTable { kSteps, kQuality, kStream, kGenerate, kModel, kReplay };

struct ExperimentInfo {
  std::string_view name;
  std::string_view help;
  LengthAxis length_axis = LengthAxis::kSeqLen;
  // Its axes beside its length and those of all experiments.
  std::span<const std::string_view> own_axes = {};
  bool needs_model = false;        // its only workload is "model"
  bool takes_latent_rows = false;  // MLA's
  bool runs_random_weights = false;
  bool runs_uncached = false;   // its variants may name kUncached
  std::string_view table = {};  // of a config that overrides [sweep] and [measure] for it; empty: its name
  SummaryTable summary = SummaryTable::kSteps;
  std::string own_table() const { return std::string(table.empty() ? name : table); }
};

struct Catalog {
  std::vector<ExperimentInfo> experiments;  // in the order of their messages
  std::vector<std::string> workloads;
  std::vector<std::string> (*peers)();  // "ggml/q8_0", …; read where a config names one
};

// Throws std::out_of_range for a name that load_config would have refused.
const ExperimentInfo& info_of(const Catalog& catalog, std::string_view experiment);

}  // namespace kv::config
