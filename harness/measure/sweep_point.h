// A sweep point: one value of every axis, whose cells (the variants) are measured together. All that can be
// known of it beforehand is decided where the sweep is planned, once: its cells' keys, whether each can run,
// whether it fits into memory and beside which others.
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
  std::string variant;    // as tables name it: the spec, where a cache is behind it
  std::string series;     // the config's text that it comes from
  size_t arm = 0;         // of those that the experiment itself compares, if it does
  bool aa_test = false;   // the first variant a second time
  bool uncached = false;  // no cache at all; then there is no spec
  std::string peer = {};  // another engine, as "ggml/q8_0"; `spec` then stores the same bits
  results::Status status = results::Status::kNone;  // why it is not measured; kNone if it is
  std::string reason = {};
  int64_t needed_bytes = 0;  // at its peak
  size_t group = 0;          // cells of one group are measured side by side

  bool is_measured() const { return status == results::Status::kNone; }
};

struct SweepPoint {
  const memory::RunContext* context;
  const config::Config* config;
  const config::ExperimentConfig* experiment;
  workload::Source* source;
  std::string workload;
  int threads;
  // What the axes kv_heads, head_dim and threads make of it: for the cells' keys.
  std::string shape = {};
  int batch = 0;
  int64_t seq_len = 0;
  results::Row axes = {};            // the values of the experiment's axes, by their columns
  std::vector<int64_t> tokens = {};  // of each sequence of a ragged batch, of which seq_len is the longest
  int64_t memory_bytes = 0;          // what a run may use
  int64_t cache_bytes = 0;           // and of it the caches of one cell
  std::vector<PlannedCell> cells = {};

  std::string key(const LayerSpecs& spec, const std::string& suffix = "") const {
    return key_of(spec.print(), suffix);
  }
  std::string key_of(const std::string& variant, const std::string& suffix = "") const;
};

ModelShape cache_shape(const SweepPoint& point, int sequences);
// Values of all of a point's heads, sequences and layers. In floating point, since a config may ask for
// absurdly many.
double value_count(const SweepPoint& point, double heads, double tokens);
// Payload, metadata and slack of a variant at the point's length; beyond any machine's memory, roughly.
int64_t held_bytes(const SweepPoint& point, const LayerSpecs& spec);
// What attention reads in place of them where a variant copies its rows for every read.
int64_t copied_bytes(const SweepPoint& point, const LayerSpecs& spec);

// What a run is asked and told while it goes on.
struct RunControl {
  std::function<bool()> stop;  // asked between steps; true ends the sweep point early
  // Told now and then what part of a long sweep point is done; one call at a time.
  std::function<void(double part)> progress = [](double) {};
};

// What is done of a sweep point whose cells run side by side; threads may share one.
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
