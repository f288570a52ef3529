#include "harness/planner/known_quality.h"

#include <stdexcept>
#include <utility>

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

QualityRun::QualityRun(std::vector<results::CellResult> cells, std::string name) : name_(std::move(name)) {
  for (results::CellResult& cell : cells) {
    if (cell.experiment != "quality" || cell.status != results::Status::kOk || !cell.loss_change) continue;
    keys_.push_back(key_of(parse_layer_specs(cell.variant)));
    cells_.push_back(std::move(cell));
  }
  if (cells_.empty())
    throw std::invalid_argument(name_ +
                                " has no cells of experiment quality, whose perplexities are asked for");
}

const results::CellResult* QualityRun::find(const LayerSpecs& spec) const {
  const results::CellResult* found = nullptr;
  const std::string key = key_of(spec);
  for (size_t i = 0; i < cells_.size(); ++i)
    if (keys_[i] == key && (!found || cells_[i].seq_len > found->seq_len)) found = &cells_[i];
  return found;
}

std::string QualityRun::setting(const results::CellResult& cell, const config::Geometry& g) const {
  const bool same = cell.layers == g.layers && cell.q_heads == g.q_heads && cell.kv_heads == g.kv_heads &&
                    cell.head_dim == g.head_dim;
  return (same ? "this geometry" : "another model (" + std::to_string(cell.layers.value_or(0)) + " layers)") +
         ", " + tables::grouped(cell.seq_len.value_or(0)) + " tokens";
}

}  // namespace kv::planner
