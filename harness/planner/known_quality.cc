#include "harness/planner/known_quality.h"

#include <stdexcept>
#include <utility>

#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/tables/fit_table.h"

namespace kv::planner {
namespace {

// The spec without what changes no bit.
std::string key_of(LayerSpecs specs) {
  const auto forget = [plain = parse_spec("contiguous").placement](Spec& spec) {
    if (!has_tiers(spec)) spec.placement = plain;
  };
  forget(specs.fallback);
  for (LayerException& exception : specs.exceptions) forget(exception.spec);
  return specs.print();
}

}  // namespace

QualityRun::QualityRun(std::vector<results::Row> cells, std::string name) : name_(std::move(name)) {
  for (results::Row& cell : cells) {
    if (cell[results::kStatus] != results::Status::kOk || !cell[measure::kLossChange]) continue;
    keys_.push_back(key_of(parse_layer_specs(cell[results::kVariant])));
    cells_.push_back(std::move(cell));
  }
  if (cells_.empty())
    throw std::invalid_argument(name_ +
                                " has no cells of experiment quality, whose perplexities are asked for");
}

const results::Row* QualityRun::find(const LayerSpecs& spec) const {
  const results::Row* found = nullptr;
  const std::string key = key_of(spec);
  for (size_t i = 0; i < cells_.size(); ++i)
    if (keys_[i] == key && (!found || cells_[i][results::kSeqLen] > (*found)[results::kSeqLen]))
      found = &cells_[i];
  return found;
}

std::string QualityRun::setting(const results::Row& cell, const config::Geometry& g) const {
  const bool same = cell[results::kLayers] == g.layers && cell[results::kQHeads] == g.q_heads &&
                    cell[results::kKvHeads] == g.kv_heads && cell[results::kHeadDim] == g.head_dim;
  return (same ? "this geometry"
               : "another model (" + std::to_string(cell[results::kLayers].value_or(0)) + " layers)") +
         ", " + tables::grouped(cell[results::kSeqLen].value_or(0)) + " tokens";
}

}  // namespace kv::planner
