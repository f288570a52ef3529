// The budget table: the longest context and the largest batch of each variant whose caches fit into a budget of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/results/row.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::tables {

// The search ends here; an answer of so many means "at least".
inline constexpr int64_t kMostTokens = int64_t{1} << 30;
inline constexpr int64_t kMostSequences = int64_t{1} << 20;

struct Fit {
  int64_t most = 0;         // tokens or sequences; 0: not even one
  int64_t bytes = 0;        // the cache's, in memory
  TierBytes tiers = {};     // the same by tier, files included
  std::string reason = {};  // why more is not possible, unless memory is the limit
};

struct Room {
  int64_t bytes;                   // in memory
  int64_t disk_bytes = INT64_MAX;  // in files
};

// The most tokens for which `batch` sequences' caches have room, and the most sequences of `tokens` tokens, by the closed
// form.
Fit longest_context(const config::Geometry& geometry, const LayerSpecs& spec, int batch, const Room& room);
Fit largest_batch(const config::Geometry& geometry, const LayerSpecs& spec, int64_t tokens, const Room& room);

struct FitTable {
  config::Geometry geometry;
  std::vector<LayerSpecs> variants;
  std::vector<int64_t> lengths;  // tokens
  int batch = 1;
  int64_t budget_bytes = 0;
  std::optional<int64_t> weights_bytes = {};  // part of the budget; none: unknown
  std::string budget_text, weights_text;      // as the user wrote them
  std::string weights_from = {};              // see kWeightsFrom
  std::optional<int64_t> disk_bytes = {};     // limit of files; none: unlimited
  std::string disk_text = {};
};

using io::grouped;

io::TextTable text_table(const FitTable& table, io::Units units);

// The rows of kFitTable.
std::vector<results::Row> results_of(const FitTable& table);

}  // namespace kv::tables
