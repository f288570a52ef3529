// A sweep config (TOML), read, overridden and checked. configs/keys.md lists the keys.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/config/key.h"
#include "variants/model_cache/layer_specs.h"

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

// The source of Q, K and V: a synthetic family's name, or "dump" or "model" with their files.
struct WorkloadConfig {
  std::string family;
  std::string weights =
      "file";  // family == "model": `model`'s weights, or "random" ones at the geometry of [model]
  std::string weights_type = "bf16";  // type of random weights; or f32
  std::string products = "f32";       // what a model multiplies in; or bf16
  std::string dump;                   // family == "dump": a safetensors file
  std::string model, tokenizer;       // family == "model"; token ids need no tokenizer
  std::string k_order = "file";       // of K's channels in caches: as `model` has them; or halves
  std::vector<std::string> texts;     // each read by itself; none: Python's documentation
  int64_t text_from = 0;              // tokens of a text before the first that is read
};

struct Axes {
  std::vector<std::string> written;  // variants as the config writes them, with their braces
  std::vector<int64_t> budget;       // values of {budget}
  std::vector<LayerSpecs> variants;  // each of `written`, expanded
  std::vector<std::string> series;   // each of `variants` before {budget} became a number
  std::string arithmetic = "exact";  // for variants whose codecs can choose
  bool uncached = false;             // `variants` also names kUncached
  std::string baseline;              // the config's text; empty: the first. Comes first in `variants`
  std::vector<std::string> workload;
  // Replace the model's heads and the run's threads if given; synthetic workloads only.
  std::vector<int> kv_heads, head_dim, threads;
};

// The one name in `variants` that is no spec: no cache at all. Tables use the second name, since table readers may
// take the first for a missing value.
inline constexpr std::string_view kUncached = "none", kUncachedInTables = "no_cache";

struct MeasureConfig {
  int repetitions = 7;  // a cell's, interleaved over the cells of a sweep point
  int steps = 32;       // decode steps or operations a repetition; errors are means over the last ones
  int retries = 1;      // repeats of a sweep point with disturbed times; then it counts as noisy
  bool aa_test = true;  // each sweep point measures its first variant twice; also spelled null_ab
  std::string allocator = "warm";  // warm: freed blocks are reused; fresh: every large block is new pages
  double memory_share = 0.8;       // share of the memory available at the start
  int64_t memory = INT64_MAX;      // for the caches of one cell, copies and workspace included
};

struct ExperimentConfig {
  std::string kind;  // its name in the catalog
  Axes axes;
  MeasureConfig measure;
  Settings settings;               // values of its own axes and keys
  std::set<std::string> own_keys;  // kv_heads and head_dim, if its own table has them
};

struct Config {
  std::string name;  // the file's stem, unless it says otherwise
  std::string path;
  std::string title;
  Geometry geometry;  // `layers` are the measured ones
  Geometry served;    // the whole model, for replayed requests
  WorkloadConfig workload;
  std::vector<ExperimentConfig> experiments;  // one a sweep: an experiment may have several
  uint64_t seed = 1;
  int threads = 0;  // 0: one a core
  std::string isa = "auto";
  std::string arithmetic = "exact";
  std::string device = "cpu";  // or "cuda"
  std::string as_run;          // TOML with every override applied
};

// Overrides from the command line.
struct Overrides {
  std::vector<std::string> set;  // "sweep.seq_len=[256, 512]"
  int64_t seed = -1;
  int threads = 0;
  std::string isa, device, arithmetic;
  WorkloadConfig workload;  // model, tokenizer and texts
};

// Throws std::invalid_argument with file, line, key and the correction. Unknown keys are mistakes.
Config load_config(const std::string& path, const Overrides& overrides, const Catalog& catalog);

// A JSON schema (draft 2020-12) of configs. The functions that read a config note each key that they ask for.
nlohmann::json config_schema(const Catalog& catalog);

}  // namespace kv::config
