// How a model's cache grows: bytes by sequence length and variant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/results/schema.h"
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

// Fills `cells`. Each cache of at most `measured_up_to` bytes that can be built is built, filled and counted;
// std::logic_error if the count is not the closed form's. `progress`: cells done, of how many, and what is
// next.
void compute(MemoryTable& table, const std::function<void(int, int, const std::string&)>& progress);

// The stages of a spec, `without` its placement where that is given: "contiguous", "kivi(bits=2)", "ring". A placement
// alone would not say that it stores f32.
std::vector<std::string> stages(const LayerSpecs& spec, const std::string& without = "");

// The placement of several variants that share one, else empty. Said once, it makes tables narrower: one, and not two, in
// a terminal of 80 columns.
std::string common_placement(const std::vector<LayerSpecs>& variants);

io::TextTable text_table(const MemoryTable& table, io::Units units);

// A row of the table as CSV.
struct MemoryResult {
  std::string model;
  results::Integer batch, seq_len;
  std::string variant, status, reason;
  results::Integer bytes;
  results::Number bytes_per_token;
  results::Integer disk_bytes;
};
const results::Schema<MemoryResult>& memory_schema();
std::vector<MemoryResult> results_of(const MemoryTable& table);

}  // namespace kv::tables
