// A sweep config (TOML), read, overridden and checked. configs/README.md lists the keys.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/config/experiment_info.h"
#include "harness/config/geometry.h"
#include "harness/config/replay_config.h"
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
  std::vector<int64_t> seq_len;
  std::vector<int> batch;
  std::vector<std::string> workload;
  // In place of the model's own and of the run's threads, where they are given; synthetic workloads only.
  std::vector<int> kv_heads, head_dim, threads;
  std::vector<int64_t> chunk = {512};   // prefill: tokens of a chunk
  std::vector<std::string> lengths;     // batch: in place of seq_len, as in request_lengths.h
  std::vector<int64_t> distance;        // recall: tokens from a passage to its copy, in place of seq_len
  std::vector<int64_t> passage = {64};  // recall: tokens of one copy
  std::vector<std::string> peers;       // decode: other engines and their formats, as "ggml/q8_0"
};

// What `variants` may name beside specs: no cache at all. Tables have the second name, since readers of tables may take
// the first for a missing value.
inline constexpr std::string_view kUncached = "none", kUncachedInTables = "no_cache";

struct MeasureConfig {
  int repetitions = 7;  // of every cell, interleaved over the cells of a sweep point
  int steps = 32;       // decode: steps a repetition; budget: last tokens that errors are means over;
                        // checkpoint: operations a repetition
  int64_t draft = 0;  // decode: tokens that a step verifies besides its own; 0 leaves the draft columns empty
  double accept = 0.7;  // the probability that one is accepted if those before it were
  int cold_steps = 16;  // decode: attends over rotating caches a repetition; 0 leaves the cold columns empty
  int peer_timeout = 300;  // decode: seconds in which a peer has to answer
  int retries = 1;       // of a sweep point whose times were disturbed; what still is then is marked as noisy
  bool attend = true;    // growth: false measures append and view alone
  bool aa_test = true;   // each sweep point measures its first variant a second time; or spelled null_ab
  bool padding = false;  // batch: also the time of padding to the longest, with a mask
  bool unmasked = false;            // prefill: also without a causal mask
  int64_t step_tokens = 1;          // quality, recall: 1 is decode; more is the faster chunked mode
  int64_t prompt = 0;               // quality, generate: tokens of a sequence that come first, as one step
  std::string passages = "random";  // recall: of random tokens, or of the text
  std::vector<double> temperature = {0.0};  // generate: 0 is greedy
  int samples = 1;                          // generate: texts of each prompt, which is read once
  std::vector<int64_t> recompute;           // stream: windows that are read again for every `stride` tokens
  int64_t stride = 32;
  std::string allocator =
      "warm";  // warm: freed blocks are kept for reuse; fresh: every large block is new pages
  std::string context =
      "prefill";               // model: what precedes the steps is read by the model, or "synthetic" rows
  double memory_share = 0.8;   // of the memory that is available at the start
  int64_t memory = INT64_MAX;  // bytes that the caches of one cell may hold, copies and workspace included
};

struct ExperimentConfig {
  std::string kind;  // its name in the catalog
  Axes axes;
  MeasureConfig measure;
  ReplayConfig replay;             // replay alone has one
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
