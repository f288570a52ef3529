#include "harness/cli/listing.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "harness/cli/eval_columns.h"
#include "harness/config/geometry.h"
#include "harness/config/section.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/paths.h"
#include "harness/results/table.h"
#include "harness/verify/metrics/metrics.h"
#include "harness/workload/workload.h"
#include "kernels/cpu/isa.h"
#include "variants/list.h"

namespace kv::cli {
namespace {

// Pads with at least two spaces.
std::string padded(std::string_view text, size_t width) {
  std::string out(text);
  out.resize(std::max(width, text.size() + 2), ' ');
  return out;
}

template <class Table>
std::string entries(const char* kind, const Table& table) {
  std::string text = std::string(kind) + "\n";
  for (const auto* entry : table) {
    text += "  " + padded(entry->name, 14) + std::string(entry->help);
    if (!entry->source.empty()) text += "  [" + std::string(entry->source) + "]";
    text += "\n";
    for (const Parameter& p : entry->parameters) {
      text += "    " + padded(p.name, 12) + padded(p.range(), 17) + " default " + padded(p.fallback, 12) +
              std::string(p.help) + "\n";
    }
  }
  return text + "\n";
}

std::string configs() {
  std::string text = "configs\n";
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = io::project_home() / "configs";
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::string title;
    try {
      title = config::parse_toml_file(file.string())["title"].value_or("");
    } catch (const std::invalid_argument&) {
      title = "(not valid TOML)";
    }
    text += "  " + padded("configs/" + file.filename().string(), 32) + title + "\n";
  }
  return text + "\n";
}

}  // namespace

std::string columns_listing() {
  std::string text;
  std::map<std::string_view, std::set<std::string_view>> writers;
  for (const experiments::Experiment* experiment : experiments::experiments()) {
    for (const experiments::ColumnGroup& group : experiment->columns) {
      for (const results::AnyColumn* column : group.columns)
        writers[column->name].insert(experiment->info.name);
    }
  }
  const auto some = [&](const results::AnyColumn& column) {
    const std::set<std::string_view>& names = writers[column.name];
    if (names.size() == experiments::experiments().size()) return std::string();
    std::string list;
    for (const experiments::Experiment* experiment : experiments::experiments()) {
      if (names.contains(experiment->info.name))
        list += (list.empty() ? " [" : " ") + std::string(experiment->info.name);
    }
    return list + "]";
  };
  const auto add = [&](const results::Table& table, const auto& after) {
    text += (text.empty() ? "" : "\n") + std::string(table.file) + "\n";
    for (const results::AnyColumn* c : table.columns) {
      text += "  " + padded(c->name, 26) + padded(results::type_name(c->type), 9) + padded(c->unit, 10) +
              std::string(c->meaning) + after(*c) + "\n";
    }
  };
  const auto nothing = [](const results::AnyColumn&) { return ""; };
  add(experiments::cell_table(), some);
  for (const results::Table* table : experiments::side_tables()) add(*table, nothing);
  add(kHeads, nothing);
  return text;
}

std::string listing() {
  std::string text =
      "A spec is placement[/codec][/retention][/selection]; what is left out is contiguous/f32/full/all.\n"
      "Layers of a model may have their own: SPEC + 0-1:SPEC + sliding:SPEC, by number or by kind.\n\n";
  text += entries("placements", kPlacements) + entries("codecs", kCodecs) +
          entries("retentions", kRetentions) + entries("selections", kSelections) + configs();
  text += "models\n  " + std::to_string(config::preset_names().size()) +
          " in configs/models: `kvlab list --models`\n\n";
  text += "experiments\n";
  for (const experiments::Experiment* experiment : experiments::experiments())
    text += "  " + padded(experiment->info.name, 14) + std::string(experiment->info.help) + "\n";
  text += "\nworkloads\n";
  for (const workload::FamilyInfo& family : workload::synthetic_families()) {
    text += "  " + padded(family.name, 14) + std::string(family.formula) + "\n";
  }
  text +=
      "  dump          q, k and v of a safetensors file\n  model         a llama2.c model's own layers on a "
      "text\n\n";
  text += "metrics\n";
  for (const verify::Metric* m : verify::metrics()) {
    text += "  " + padded(m->column.name, 14) +
            padded(std::string(m->column.unit) + ", " + std::string(m->better) + " is better", 24) +
            std::string(m->column.meaning) + "\n";
  }
  text += "\ninstruction sets of this build and machine, best first\n  ";
  for (const std::string& isa : cpu::available_isas()) text += isa + " ";
  text += "\n";
  const std::string left_out = cpu::why_isas_are_missing();
  return left_out.empty() ? text : text + "  " + left_out + "\n";
}

}  // namespace kv::cli
