#include "harness/cli/listing.h"

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "harness/cli/eval_columns.h"
#include "harness/config/geometry.h"
#include "harness/config/section.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"
#include "harness/peers/engines.h"
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

using Json = nlohmann::ordered_json;

constexpr std::array kStages{"placements", "codecs", "retentions", "selections"};

template <class Table>
Json entries(const Table& table) {
  Json all = Json::array();
  for (const auto* entry : table) {
    Json parameters = Json::array();
    for (const Parameter& p : entry->parameters)
      parameters.push_back(
          {{"name", p.name}, {"range", p.range()}, {"default", p.fallback}, {"help", p.help}});
    all.push_back({{"name", entry->name},
                   {"help", entry->help},
                   {"source", entry->source},
                   {"oracle", entry->oracle},
                   {"parameters", std::move(parameters)}});
  }
  return all;
}

Json configs() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = io::project_home() / "configs";
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  Json all = Json::array();
  for (const auto& file : files) {
    std::string title;
    try {
      title = config::parse_toml_file(file.string())["title"].value_or("");
    } catch (const std::invalid_argument&) {
      title = "(not valid TOML)";
    }
    all.push_back({{"name", "configs/" + file.filename().string()}, {"help", title}});
  }
  return all;
}

// All that `kvlab list` shows, by its headings.
Json everything() {
  Json all;
  all["placements"] = entries(kPlacements);
  all["codecs"] = entries(kCodecs);
  all["retentions"] = entries(kRetentions);
  all["selections"] = entries(kSelections);
  all["configs"] = configs();
  all["models"] = config::preset_names();
  for (const experiments::Experiment* experiment : experiments::experiments())
    all["experiments"].push_back({{"name", experiment->info.name}, {"help", experiment->info.help}});
  for (const workload::FamilyInfo& family : workload::synthetic_families())
    all["workloads"].push_back({{"name", family.name}, {"help", family.formula}});
  all["workloads"].push_back({{"name", "dump"}, {"help", "q, k and v of a safetensors file"}});
  all["workloads"].push_back({{"name", "model"}, {"help", "a model's own layers on a text"}});
  for (const verify::Metric* m : verify::metrics())
    all["metrics"].push_back({{"name", m->column.name},
                              {"unit", m->column.unit},
                              {"better", m->better},
                              {"help", m->column.meaning}});
  for (const peers::Engine& engine : peers::engines())
    all["engines"].push_back({{"name", engine.name},
                              {"help", engine.can},
                              {"source", "checked against " + std::string(engine.version)}});
  all["isas"] = cpu::available_isas();
  return all;
}

std::string text_at(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::string entries_text(const Json& all, const char* kind, size_t width = 14) {
  std::string text = std::string(kind) + "\n";
  for (const Json& entry : all.at(kind)) {
    text += "  " + padded(text_at(entry, "name"), width);
    if (entry.contains("better"))
      text += padded(text_at(entry, "unit") + ", " + text_at(entry, "better") + " is better", 24);
    text += text_at(entry, "help");
    if (const std::string oracle = entry.value("oracle", ""); !oracle.empty())
      text += "; an oracle, which " + oracle + ": no answer recommends it";
    if (const std::string source = entry.value("source", ""); !source.empty()) text += "  [" + source + "]";
    text += "\n";
    for (const Json& p : entry.value("parameters", Json::array())) {
      text += "    " + padded(text_at(p, "name"), 12) + padded(text_at(p, "range"), 17) + " default " +
              padded(text_at(p, "default"), 12) + text_at(p, "help") + "\n";
    }
  }
  return text + "\n";
}

// The experiments that write a column, unless all do.
std::vector<std::string> writers_of(const results::AnyColumn& column) {
  std::vector<std::string> names;
  for (const experiments::Experiment* experiment : experiments::experiments()) {
    const bool writes = std::ranges::any_of(experiment->columns, [&](const experiments::ColumnGroup& group) {
      return std::ranges::any_of(group.columns,
                                 [&](const results::AnyColumn* own) { return own->name == column.name; });
    });
    if (writes) names.emplace_back(experiment->info.name);
  }
  return names.size() == experiments::experiments().size() ? std::vector<std::string>() : names;
}

// By file.
Json columns() {
  Json all;
  const auto add = [&](const results::Table& table) {
    const bool is_of_cells = &table == &experiments::cell_table();
    Json& own = all[std::string(table.file)];
    for (const results::AnyColumn* c : table.columns)
      own.push_back({{"name", c->name},
                     {"type", results::type_name(c->type)},
                     {"unit", c->unit},
                     {"help", c->help()},
                     {"experiments", is_of_cells ? writers_of(*c) : std::vector<std::string>()}});
  };
  add(experiments::cell_table());
  for (const results::Table* table : experiments::side_tables()) add(*table);
  add(kHeads);
  return all;
}

}  // namespace

std::string columns_listing(bool json) {
  const Json all = columns();
  if (json) return all.dump(1) + "\n";
  std::string text;
  for (const auto& [file, own] : all.items()) {
    text += (text.empty() ? "" : "\n") + file + "\n";
    for (const Json& c : own) {
      const std::string writers = io::joined(c.at("experiments").get<std::vector<std::string>>(), " ");
      text += "  " + padded(text_at(c, "name"), 26) + padded(text_at(c, "type"), 9) +
              padded(text_at(c, "unit"), 10) + text_at(c, "help") +
              (writers.empty() ? "" : " [" + writers + "]") + "\n";
    }
  }
  return text;
}

std::string listing(bool json, bool only_variants) {
  Json all = everything();
  for (auto at = all.begin(); only_variants && at != all.end();)
    at = std::ranges::count(kStages, at.key()) ? std::next(at) : all.erase(at);
  if (json) return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string text =
      "A spec is placement[/codec][/retention][/selection]; the defaults are contiguous/f32/full/all.\n"
      "Layers of a model may have their own: SPEC + 0-1:SPEC + sliding:SPEC, by number or by kind.\n\n";
  for (const char* kind : kStages) text += entries_text(all, kind);
  if (only_variants) return text;
  text += entries_text(all, "configs", 32) + "models\n  " + std::to_string(all.at("models").size()) +
          " in configs/models: `kvlab list --models`\n\n";
  for (const char* kind : {"experiments", "workloads", "metrics", "engines"}) text += entries_text(all, kind);
  text += "instruction sets of this build and machine, best first\n  ";
  for (const std::string& isa : cpu::available_isas()) text += isa + " ";
  text += "\n";
  const std::string left_out = cpu::why_isas_are_missing();
  return left_out.empty() ? text : text + "  " + left_out + "\n";
}

}  // namespace kv::cli
