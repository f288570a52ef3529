#include "harness/cluster/add_stages.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/csv.h"
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

// The position of field `number` in the record that begins at `at`; the record's end, a line feed, if it has fewer.
size_t field_at(const std::string& text, size_t at, size_t number) {
  for (bool quoted = false; number > 0 && at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted) continue;
    if (text[at] == '\n') return at;
    number -= text[at] == ',';
  }
  return at;
}

}  // namespace

bool add_stages(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "cells.csv";
  const results::Table& table = experiments::cell_table();
  const std::string text = results::read_whole(path);
  if (text.empty() || text.back() != '\n')
    throw std::invalid_argument(path.string() + ": no such file, or its last line is torn (no line end)");
  const io::CsvRecord header = io::read_csv(path).header;
  results::ColumnList stages;
  const config::Config config = config_of(folder);
  const auto is_derived = [&](const results::AnyColumn* column) {
    return column->is_stage ||
           ((column == &results::kModelLayers || column == &results::kModelBytes) && measures_a_part(config));
  };
  for (const results::AnyColumn* known : table.columns)
    if (is_derived(known) && std::ranges::count(header, known->name) == 0) stages.push_back(known);
  if (!stages.empty()) {
    const size_t column =
        static_cast<size_t>(std::ranges::find(header, std::string_view("device")) - header.begin()) + 1;
    std::string names;
    for (const results::AnyColumn* stage : stages) names += std::string(stage->name) + ",";
    size_t at = field_at(text, 0, column), end = field_at(text, at, header.size()) + 1;
    std::string whole = text.substr(0, at) + names + text.substr(at, end - at);
    for (results::Row& row : results::read_csv(path, table)) {
      set_stages(row, config);
      io::CsvRecord fields;
      for (const results::AnyColumn* stage : stages) fields.push_back(row.text(*stage));
      fields.emplace_back();  // the comma behind the last of them
      std::string inserted = io::csv_line(fields);
      inserted.pop_back();
      at = field_at(text, end, column);
      const size_t next = field_at(text, end, header.size()) + 1;
      whole += text.substr(end, at - end) + inserted + text.substr(at, next - at);
      end = next;
    }
    results::write_whole(path, whole);
  }
  results::write_whole(folder / "columns.json",
                       experiments::layout_of(results::table_in(path, table)).columns_json);
  return !stages.empty();
}

}  // namespace kv::cluster
