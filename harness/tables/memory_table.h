// The memory table: a model cache's bytes by sequence length and variant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/results/row.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::tables {

struct MemoryCell {
  enum class Status { kMeasured, kComputed, kUnsupported };
  Status status = Status::kComputed;
  std::string reason;      // why it is unsupported
  int64_t bytes = 0;       // payload, metadata and slack
  int64_t disk_bytes = 0;  // in files besides
};

struct MemoryTable {
  config::Geometry geometry;
  std::vector<LayerSpecs> variants;
  std::vector<int64_t> lengths;  // tokens
  int batch = 1;
  int64_t measured_up_to = 0;                  // bytes: larger caches are computed only
  std::vector<std::vector<MemoryCell>> cells;  // [length][variant]
};

// Fills `cells`. Builds, fills and counts each cache of at most `measured_up_to` bytes that this machine can build; throws
// std::logic_error if the count differs from the closed form. `progress` gets the cells done, their total and the next one.
void compute(MemoryTable& table, const std::function<void(int, int, const std::string&)>& progress);

// The stages of a spec but the placement `without`: "contiguous", "kivi(bits=2)", "ring". The default codec is spelled out
// as f32.
std::vector<std::string> stages(const LayerSpecs& spec, const std::string& without = "");

// The placement of several variants that share one, else empty. A table that names it once fits a terminal of 80 columns.
std::string common_placement(const std::vector<LayerSpecs>& variants);

io::TextTable text_table(const MemoryTable& table, io::Units units);

// The rows of kMemoryTable.
std::vector<results::Row> results_of(const MemoryTable& table);

}  // namespace kv::tables
