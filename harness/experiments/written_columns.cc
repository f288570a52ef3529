#include "harness/experiments/written_columns.h"
#include "harness/experiments/reading_keys.h"

#include <map>

namespace kv::experiments {
namespace {

template <class Predicate>
bool any_spec(const config::ExperimentConfig& sweep, const Predicate& holds) {
  return std::ranges::any_of(sweep.axes.variants, [&](const LayerSpecs& specs) { return specs.any(holds); });
}

void add_tables(std::span<const results::Table* const> tables, std::vector<const results::Table*>& all) {
  for (const results::Table* table : tables) {
    if (std::ranges::find(all, table) == all.end()) all.push_back(table);
  }
}

using Writers = std::map<std::string_view, std::vector<std::string_view>>;

void add_writer(std::string_view name, std::span<const ColumnGroup> groups, Writers& writers) {
  for (const ColumnGroup& group : groups) {
    for (const results::AnyColumn* column : group.columns) writers[column->name].push_back(name);
  }
}

// The experiments that declare each column.
Writers all_writers() {
  Writers writers;
  for (const Experiment* experiment : experiments())
    add_writer(experiment->info.name, experiment->columns, writers);
  return writers;
}

}  // namespace

const results::Table& cell_table() {
  static const results::Table table = [] {
    results::Table all{"cells.csv", {}};
    for (const Experiment* experiment : experiments()) {
      for (const ColumnGroup& group : experiment->columns) all.add(group.columns);
    }
    return all;
  }();
  return table;
}

std::span<const results::Table* const> side_tables() {
  static const std::vector<const results::Table*> tables = [] {
    std::vector<const results::Table*> all;
    for (const Experiment* experiment : experiments()) add_tables(experiment->tables, all);
    return all;
  }();
  return tables;
}

results::Layout layout_of(const config::Config& config) {
  results::Layout layout{.cells = {"cells.csv", {}}, .sides = {}, .columns_json = {}};
  for (const config::ExperimentConfig& sweep : config.experiments) {
    const Experiment& experiment = experiment_named(sweep.kind);
    for (const ColumnGroup& group : experiment.columns) {
      if (!group.when || group.when(config, sweep)) layout.cells.add(group.columns);
    }
    add_tables(experiment.tables, layout.sides);
  }
  layout.columns_json = results::columns_json(layout.cells, all_writers());
  return layout;
}

results::Layout layout_of(std::string_view writer, std::span<const ColumnGroup> columns) {
  results::Layout layout{.cells = {"cells.csv", {}}, .sides = {}, .columns_json = {}};
  for (const ColumnGroup& group : columns) layout.cells.add(group.columns);
  Writers writers = all_writers();
  add_writer(writer, columns, writers);
  layout.columns_json = results::columns_json(layout.cells, writers);
  return layout;
}

results::Layout layout_of(const results::Table& cells) {
  return {.cells = cells,
          .sides = {side_tables().begin(), side_tables().end()},
          .columns_json = results::columns_json(cells, all_writers())};
}

const results::AnyColumn* step_column(std::string_view name) {
  for (const results::Table* table : side_tables()) {
    const results::AnyColumn* column = table->find(measure::kStepUs.name) ? table->find(name) : nullptr;
    if (column) return column;
  }
  return nullptr;
}

std::vector<results::Row> timed_steps(const std::filesystem::path& folder) {
  std::vector<results::Row> steps;
  for (const results::Table* table : side_tables()) {
    if (!table->find(measure::kStepUs.name) || !std::filesystem::exists(folder / table->file)) continue;
    std::ranges::move(results::read_csv(folder / table->file, *table), std::back_inserter(steps));
  }
  return steps;
}

bool has_tiers(const config::Config&, const config::ExperimentConfig& sweep) {
  return any_spec(sweep, [](const Spec& spec) { return kv::has_tiers(spec); });
}

bool evicts(const config::Config& config, const config::ExperimentConfig& sweep) {
  return runs_model(config, sweep) ||  // whose layers may have windows of their own
         any_spec(sweep, [](const Spec& spec) { return !retention_of(spec).keeps_all; });
}

bool calls_functions(const config::Config&, const config::ExperimentConfig& sweep) {
  return any_spec(sweep, [](const Spec& spec) { return !functions_of(spec).empty(); });
}

bool selects(const config::Config&, const config::ExperimentConfig& sweep) {
  return any_spec(sweep, [](const Spec& spec) { return !selection_of(spec).reads_all(); });
}

bool runs_model(const config::Config&, const config::ExperimentConfig& sweep) {
  return std::ranges::count(sweep.axes.workload, "model") > 0;
}

bool runs_on_gpu(const config::Config& config, const config::ExperimentConfig&) {
  return config.device == "cuda";
}

bool reads_in_chunks(const config::Config&, const config::ExperimentConfig& sweep) {
  return sweep.settings[kStepTokensKey] > 1;
}

}  // namespace kv::experiments
