// A sweep point: one value of every axis. Its cells (the variants) are measured together. The planner decides once,
// before any measurement: the cells' keys, whether each can run and fits into memory, and its group.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/memory/run_context.h"
#include "harness/results/row.h"
#include "harness/workload/sources.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::measure {

struct PlannedCell {
  std::string key;  // in cells.csv
  LayerSpecs spec;
  std::string variant;        // its name in tables: the spec, if it has a cache
  std::string series;         // the config's text that it was expanded from
  results::Row columns = {};  // values that tell it from the point's other cells of its variant
  bool aa_test = false;       // the first variant measured a second time
  bool uncached = false;      // neither cache nor spec
  std::string peer = {};      // another engine, as "ggml/q8_0"; `spec` then stores the same bits
  results::Status status = results::Status::kNone;  // the reason it is not measured; kNone: it is
  std::string reason = {};
  int64_t needed_bytes = 0;  // at its peak
  size_t group = 0;          // cells of one group are measured side by side

  bool is_measured() const { return status == results::Status::kNone; }
};

struct SweepPoint {
  const memory::RunContext* context;
  const config::Config* config;
  const config::ExperimentConfig* experiment;
  workload::Source* source;  // null in an experiment without a workload
  std::string workload;      // a synthetic family, "dump", "model", or a text's name if a model reads several
  std::string text = {};     // the model's, as the config names it; empty: Python's documentation
  int threads = 0;
  // The axes kv_heads, head_dim and threads as text for the cells' keys.
  std::string shape = {};
  int batch = 0;
  int64_t seq_len = 0;
  results::Row axes = {};            // values of the experiment's axes, by column
  std::vector<int64_t> tokens = {};  // tokens of each sequence of a ragged batch; seq_len is their maximum
  int64_t memory_bytes = 0;          // memory that a run may use
  int64_t cache_bytes = 0;           // the part of it for one cell's caches
  std::vector<PlannedCell> cells = {};
  int64_t peak_bytes = 0;  // of what its cells hold at once, in memory, by the closed form; 0: not known

  std::string key(const LayerSpecs& spec, const std::string& suffix = "") const {
    return key_of(spec.print(), suffix);
  }
  std::string key_of(const std::string& variant, const std::string& suffix = "") const;
};

// The workload's shape, or the served model's in an experiment without a workload.
workload::WorkloadShape shape_of(const SweepPoint& point);
ModelShape cache_shape(const SweepPoint& point, int sequences);
// The same of all layers of the model, where a synthetic workload has some of them.
ModelShape model_shape(const SweepPoint& point, int sequences);
// Values of all heads, sequences and layers of a point. Floating point, since a config may ask for absurdly many.
double value_count(const SweepPoint& point, double heads, double tokens);
// Payload, metadata and slack of a variant at the point's length; approximate beyond any machine's memory.
int64_t held_bytes(const SweepPoint& point, const LayerSpecs& spec);
// Bytes that attention reads instead if the variant copies its rows for every read.
int64_t copied_bytes(const SweepPoint& point, const LayerSpecs& spec);

// Callbacks during a run.
struct RunControl {
  std::function<bool()> stop;  // called between steps; true ends the sweep point early
  // Called now and then with the finished share of a long sweep point; one call at a time.
  std::function<void(double part)> progress = [](double) {};
};

// Progress of a sweep point whose cells run side by side; threads may share it.
class PointProgress {
 public:
  PointProgress(const RunControl& control, double total) : control_(control), total_(total) {}
  void add(double work);

 private:
  const RunControl& control_;
  const double total_;
  double done_ = 0;
  std::mutex mutex_;
};

}  // namespace kv::measure
