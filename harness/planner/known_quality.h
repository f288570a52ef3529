// The quality of a model with a cache, looked up in a run that has measured it.
#pragma once

#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/results/cell_columns.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::planner {

class QualityRun {
 public:
  QualityRun() = default;
  // The cells of a results folder with experiment `quality`; `name`: the folder's, for messages. Throws
  // std::invalid_argument if there are none.
  QualityRun(std::vector<results::Row> cells, std::string name);

  const std::string& name() const { return name_; }
  // The cell of the same codec and retention with the most tokens of context, or null. Its placement may differ, since a
  // placement changes no bit that attention reads, unless it re-encodes rows.
  const results::Row* find(const LayerSpecs& spec) const;
  // The cell's model and context, as "another model (6 layers), 1,024 tokens".
  std::string setting(const results::Row& cell, const config::Geometry& geometry) const;

 private:
  std::string name_;
  std::vector<results::Row> cells_;
  std::vector<std::string> keys_;  // beside cells_
};

}  // namespace kv::planner
