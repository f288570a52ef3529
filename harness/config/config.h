// A sweep config (TOML), read, overridden and checked. configs/README.md lists the keys.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/config/experiment_info.h"
#include "harness/config/geometry.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::config {

// Where Q, K, V come from: a synthetic family's name, or "dump" or "model" with their files.
struct WorkloadConfig {
  std::string family;
  std::string weights =
      "file";  // family == "model": those of `model`, or "random" ones at the geometry of [model]
  std::string weights_type = "bf16";   // of random ones, or f32
  std::string dump;                    // family == "dump": a safetensors file
  std::string model, text, tokenizer;  // family == "model"; token ids need no tokenizer
};

struct Axes {
  std::vector<std::string> written;  // variants as the config has them, with their braces
  std::vector<int64_t> budget;       // what {budget} stands for
  std::vector<LayerSpecs> variants;  // each of `written`, expanded
  std::vector<std::string> series;   // what each of `variants` was before {budget} became a number
  std::string arithmetic = "exact";  // of the variants whose codecs can choose
  bool uncached = false;             // `variants` names kUncached beside them
  std::string baseline;              // as the config has it; empty: the first. Comes first in `variants`
  std::vector<std::string> workload;
  // In place of the model's own and of the run's threads, where they are given; synthetic workloads only.
  std::vector<int> kv_heads, head_dim, threads;
};

// What `variants` may name beside specs: no cache at all. Tables have the second name, since readers of tables may take
// the first for a missing value.
inline constexpr std::string_view kUncached = "none", kUncachedInTables = "no_cache";

struct MeasureConfig {
  int repetitions = 7;  // of every cell, interleaved over the cells of a sweep point
  int steps = 32;       // decode steps or operations a repetition; last tokens that errors are means over
  int retries = 1;  // of a sweep point whose times were disturbed; one that still is then is marked as noisy
  bool aa_test = true;  // each sweep point measures its first variant a second time; or spelled null_ab
  std::string allocator =
      "warm";                  // warm: freed blocks are kept for reuse; fresh: every large block is new pages
  double memory_share = 0.8;   // of the memory that is available at the start
  int64_t memory = INT64_MAX;  // bytes that the caches of one cell may hold, copies and workspace included
};

struct ExperimentConfig {
  std::string kind;  // its name in the catalog
  Axes axes;
  MeasureConfig measure;
  Settings settings;               // values of its own axes and keys
  std::set<std::string> own_keys;  // those of kv_heads and head_dim that its own table has
};

struct Config {
  std::string name;  // the file's stem, unless it says otherwise
  std::string path;
  std::string title;
  Geometry geometry;  // `layers` are those that are measured
  Geometry served;    // the whole model, where requests are replayed
  WorkloadConfig workload;
  std::vector<ExperimentConfig> experiments;  // one a sweep: an experiment may have several
  uint64_t seed = 1;
  int threads = 0;  // 0: one a core
  std::string isa = "auto";
  std::string arithmetic = "exact";
  std::string device = "cpu";  // or "cuda"
  std::string as_run;          // TOML, every override applied
};

// What the command line may override.
struct Overrides {
  std::vector<std::string> set;  // "sweep.seq_len=[256, 512]"
  int64_t seed = -1;
  int threads = 0;
  std::string isa, device, arithmetic;
  WorkloadConfig workload;  // model, tokenizer and text
};

// Throws std::invalid_argument: file, line, key, and what would be right. Unknown keys are mistakes.
Config load_config(const std::string& path, const Overrides& overrides, const Catalog& catalog);

}  // namespace kv::config
