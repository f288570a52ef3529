// What caches do to a model, looked up in a run that has measured it.
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
  // The cells of a results folder with experiment `quality`; `name`: of the folder, for readers. Throws
  // std::invalid_argument where it has none.
  QualityRun(std::vector<results::Row> cells, std::string name);

  const std::string& name() const { return name_; }
  // The cell of the same codec and retention, with whatever placement: it changes no bit of what attention reads. Of several
  // that with the most tokens of context. Null where there is none. A placement that encodes rows anew is not looked through.
  const results::Row* find(const LayerSpecs& spec) const;
  // Of which model and how long a context, as "another model (6 layers), 1,024 tokens".
  std::string setting(const results::Row& cell, const config::Geometry& geometry) const;

 private:
  std::string name_;
  std::vector<results::Row> cells_;
  std::vector<std::string> keys_;  // beside cells_
};

}  // namespace kv::planner
