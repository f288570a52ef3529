#include "harness/cluster/add_stages.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/stage_columns.h"
#include "harness/peers/peers.h"
#include "harness/results/append_file.h"
#include "harness/results/table.h"

namespace kv::cluster {
namespace {

std::optional<LayerSpecs> specs_of(const std::string& text) {
  try {
    return parse_layer_specs(text);
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // recompute(…), padded, another engine: no cache of kvlab
  }
}

// The specs that store the bits of another engine's cell.
std::optional<LayerSpecs> peer_specs_of(const std::string& text) {
  for (const peers::Format& format : peers::formats())
    if (format.text() == text) return specs_of("contiguous/" + format.stored);
  return std::nullopt;
}

// The folder's config, whose latent rows (MLA) no column tells from others; a plain one where it cannot be read.
config::Config config_of(const std::filesystem::path& folder) {
  try {
    return experiments::load_config((folder / "config.toml").string(), {});
  } catch (const std::exception&) {
    return {};
  }
}

// Rows do not say which kinds of layers a model has: nothing for specs that ask for a kind.
std::optional<ModelShape> shape_of(const results::Row& row, const config::Geometry& model,
                                   const LayerSpecs& specs) {
  using results::Status;
  const bool ran =
      row[results::kStatus] != Status::kUnsupported && row[results::kStatus] != Status::kOutOfMemory;
  if (!ran || !row[results::kLayers] || !row[results::kQHeads] || !row[results::kKvHeads] ||
      !row[results::kHeadDim])
    return std::nullopt;
  const CacheShape shape{.layers = static_cast<int>(*row[results::kLayers]),
                         .q_heads = static_cast<int>(*row[results::kQHeads]),
                         .kv_heads = static_cast<int>(*row[results::kKvHeads]),
                         .head_dim = static_cast<int>(*row[results::kHeadDim]),
                         .max_tokens = std::max<int64_t>(1, row[results::kSeqLen].value_or(1)),
                         .max_sequences = 1,
                         .value_dim = row[results::kHeadDim] == model.latent_dim ? model.value_dim : 0};
  ModelShape all(shape, {});
  try {
    groups_of(specs, all);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  return all;
}

// True for a synthetic workload with some of the model's layers; files of models and dumps have their own.
bool measures_a_part(const config::Config& config) {
  return config.workload.model.empty() && config.workload.dump.empty() &&
         config.served.model_layers > config.geometry.layers;
}

// The bytes of all layers, where the closed form gives the row's own bytes without its prompts' lengths.
void set_model(results::Row& row, const config::Config& config, ModelShape shape, const LayerSpecs& specs) {
  row[results::kModelLayers] = config.served.model_layers;
  if (!row[results::kBatch] || !row[results::kSeqLen] || !row[results::kBytesPredicted]) return;
  shape.max_sequences = static_cast<int>(*row[results::kBatch]);
  const std::vector<int64_t> lengths(static_cast<size_t>(*row[results::kBatch]), *row[results::kSeqLen]);
  if (predicted_bytes(specs, shape, lengths) != row[results::kBytesPredicted]) return;
  shape.layers = config.served.model_layers;
  shape.kinds = config.served.kinds;
  shape.linear = config.served.linear;
  try {
    row[results::kModelBytes] = predicted_bytes(specs, shape, lengths);
  } catch (const std::invalid_argument&) {
    return;  // stages that a layer of another kind does not take
  }
}

void set_stages(results::Row& row, const config::Config& config) {
  const config::Geometry& model = config.geometry;
  if (const auto specs = specs_of(row[results::kVariant])) {
    const auto shape = shape_of(row, model, *specs);
    measure::set_stages(row, *specs, shape ? &*shape : nullptr);
    if (shape && measures_a_part(config)) set_model(row, config, *shape, *specs);
  } else if (const auto stored = peer_specs_of(row[results::kVariant])) {
    const auto shape = shape_of(row, model, *stored);
    measure::set_peer_codec(row, *stored, shape ? &*shape : nullptr);
  }
}

}  // namespace

bool add_stages(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "cells.csv";
  const std::string text = results::read_whole(path);
  if (text.empty() || text.back() != '\n')
    throw std::invalid_argument(path.string() + ": no such file, or its last line is torn (no line end)");
  const results::Table &all = experiments::cell_table(), there = results::table_in(path, all);
  const config::Config config = config_of(folder);
  std::vector<results::Row> rows = results::read_csv(path, all);
  for (results::Row& row : rows) {
    const results::Row written = row;
    set_stages(row, config);
    row.copy(written, there.columns);
  }
  experiments::judge_cells(rows);
  results::Table table{all.file, {}, all.told_by};
  for (const results::AnyColumn* column : all.columns) {
    const auto has_it = [&](const results::Row& row) { return !row.text(*column).empty(); };
    if (column->is_stage || std::ranges::count(there.columns, column) > 0 ||
        std::ranges::any_of(rows, has_it))
      table.columns.push_back(column);
  }
  const std::string now = results::csv_text(table, rows);
  if (now != text) results::write_whole(path, now);
  results::write_whole(folder / "columns.json", experiments::layout_of(table).columns_json);
  return now != text;
}

}  // namespace kv::cluster
