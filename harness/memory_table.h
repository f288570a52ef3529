// How a model's cache grows: bytes by sequence length and variant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/bytes.h"
#include "harness/geometry.h"
#include "harness/results.h"
#include "harness/text_table.h"
#include "variants/spec.h"

namespace kv {

struct MemoryCell {
  enum class Status { kMeasured, kComputed, kUnsupported };
  Status status = Status::kComputed;
  std::string reason;      // why it is unsupported
  int64_t bytes = 0;       // payload, metadata and slack
  int64_t disk_bytes = 0;  // in files besides
};

struct MemoryTable {
  Geometry geometry;
  std::vector<Spec> variants;
  std::vector<int64_t> lengths;  // tokens
  int batch = 1;
  int64_t measured_up_to = 0;                  // bytes: larger caches are computed only
  std::vector<std::vector<MemoryCell>> cells;  // [length][variant]
};

// Fills `cells`. Each cache of at most `measured_up_to` bytes that can be built is built, filled and counted;
// std::logic_error if the count is not the closed form's. `progress`: cells done, of how many, and what is
// next.
void compute(MemoryTable& table, const std::function<void(int, int, const std::string&)>& progress);

TextTable text_table(const MemoryTable& table, Units units);

std::vector<Row> csv_rows(const MemoryTable& table);
std::span<const Column> memory_columns();

}  // namespace kv
