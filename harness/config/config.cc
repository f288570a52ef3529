#include "harness/config/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "harness/config/axes.h"
#include "harness/config/overrides.h"
#include "harness/config/section.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"
#include "kernels/attention.h"

namespace kv::config {
namespace {

// The table of a key, for messages: "[model]", "[sweep] …"; empty for an unknown key.
std::string table_of(std::string_view key, const Catalog& catalog) {
  const nlohmann::json tables = config_schema(catalog)["properties"];
  const auto has = [&](const std::string& table) {
    const nlohmann::json& one = tables[table];
    return (one.contains("anyOf") ? one["anyOf"][0] : one)["properties"].contains(key);
  };
  for (const std::string shared : {"sweep", "measure"})
    if (has(shared)) return "[" + shared + "], or the table of one experiment, such as [[decode]]";
  for (const std::string table : {"model", "workload"})
    if (has(table)) return "[" + table + "]";
  for (const ExperimentInfo& experiment : catalog.experiments)
    if (has(experiment.own_table())) return "[" + experiment.own_table() + "]";
  return "";
}

std::function<std::string(std::string_view key)> placing(const Catalog& catalog) {
  return [&catalog](std::string_view key) { return table_of(key, catalog); };
}

struct ModelKeys {
  std::string preset, config, name;
  bool trust_config;
  int64_t q_heads, kv_heads, head_dim, layers;  // 0: not given
};

ModelKeys read_model_keys(Section& model) {
  return {.preset = model.text("preset", ""),
          .config = model.text("config", ""),
          .name = model.text("name", ""),
          .trust_config = model.boolean("trust_config", false),
          .q_heads = model.integer("q_heads", 0, 1, 4096),
          .kv_heads = model.integer("kv_heads", 0, 1, 4096),
          .head_dim = model.integer("head_dim", 0, 8, kMaxHeadDim),
          .layers = model.integer("layers", 0, 1, 1024)};
}

// `whole`: create weights for all of the model's layers; else for the measured ones. `served` is the model with all
// of its layers; a config that gives the numbers serves as many as it measures.
Geometry read_model(Section model, bool whole, const Catalog& catalog, Geometry& served) {
  const bool preset = model.has("preset"), file = model.has("config");
  const bool numbers = model.has("q_heads") || model.has("kv_heads") || model.has("head_dim");
  for (const char* key : {"kv_heads", "head_dim"}) {
    if (model.is_array(key)) model.fail(key, "takes one number; a list belongs in " + table_of(key, catalog));
  }
  if (preset + file + numbers != 1) {
    model.refuse(
        "needs one of: preset = \"llama-3-8b\", config = \"config.json\", or q_heads, kv_heads and head_dim");
  }
  const ModelKeys keys = read_model_keys(model);
  Geometry g;
  if (!file && keys.trust_config) model.fail("trust_config", "is for config = \"config.json\"");
  if (preset) {
    g = preset_geometry(keys.preset);
  } else if (file) {
    g = read_geometry(io::find_input(keys.config, "model config").string(), keys.trust_config);
  } else {
    if (keys.q_heads == 0 || keys.head_dim == 0) model.refuse("needs q_heads and head_dim");
    g.q_heads = static_cast<int>(keys.q_heads);
    g.kv_heads = static_cast<int>(keys.kv_heads > 0 ? keys.kv_heads : keys.q_heads);
    g.head_dim = static_cast<int>(keys.head_dim);
    g.name = "custom";
  }
  if (!keys.name.empty()) g.name = keys.name;
  if (whole && g.path.empty())
    model.refuse(
        "needs preset = \"llama-3.2-1b\" or config = \"config.json\" if workload.weights is \"random\"");
  if (whole && model.has("layers"))
    model.fail("layers", "cannot be set if workload.weights is \"random\": the model has all of its layers");
  served = g;
  if (!whole) g.layers = static_cast<int>(std::max<int64_t>(keys.layers, 1));
  if (g.path.empty()) {
    served.layers = served.model_layers = g.layers;
    served.kinds.resize(static_cast<size_t>(g.layers));
  }
  model.refuse_the_rest(placing(catalog));
  if (g.q_heads % g.kv_heads != 0) {
    model.fail("q_heads", "(" + std::to_string(g.q_heads) + ") must be a multiple of kv_heads (" +
                              std::to_string(g.kv_heads) + ")");
  }
  if (g.head_dim % 8 != 0 || g.head_dim > kMaxHeadDim) {
    model.refuse("head_dim must be a multiple of 8 up to " + std::to_string(kMaxHeadDim) + ", not " +
                 std::to_string(g.head_dim));
  }
  return g;
}

WorkloadConfig read_workload(Section section, const Catalog& catalog) {
  WorkloadConfig w;
  w.family = section.choice("family", "gaussian", catalog.workloads);
  w.dump = section.text("dump", "");
  w.model = section.text("model", "");
  w.tokenizer = section.text("tokenizer", "");
  w.texts = section.texts("text", {}, {});
  refuse_repeats(section, "text", w.texts);
  w.text_from = section.integer("text_from", 0, 0, kMaxTokens);
  w.weights = section.choice("weights", w.weights, {"file", "random"});
  const bool random = w.weights == "random";
  if (!random && section.has("weights_type"))
    section.fail("weights_type", "is for weights = \"random\"; a file has its own type");
  w.weights_type = section.choice("weights_type", w.weights_type, {"bf16", "f32"});
  w.products = section.choice("products", w.products, {"f32", "bf16"});
  w.k_order = section.choice("k_order", w.k_order, {"file", "halves"});
  section.refuse_the_rest(placing(catalog));
  if (random) {
    for (const char* key : {"model", "tokenizer", "text", "text_from", "dump", "k_order"})
      if (section.has(key)) section.fail(key, "has no effect if weights = \"random\"; remove it");
    w.family = "model";
    return w;
  }
  const bool any = !w.model.empty() || !w.tokenizer.empty() || !w.texts.empty();
  if (any && w.model.empty()) section.refuse("needs a model, because it has a text or a tokenizer");
  if (any) w.family = "model";
  for (const char* key : {"text_from", "products", "k_order"})
    if (!any && section.has(key))
      section.fail(key, "has no effect without a model; remove it or give a model");
  if (!w.dump.empty()) w.family = "dump";
  return w;
}

void read_measure(Section& section, MeasureConfig& m) {
  m.repetitions = static_cast<int>(section.integer("repetitions", m.repetitions, 1, 1000));
  m.steps = static_cast<int>(section.integer("steps", m.steps, 1, 100000));
  m.retries = static_cast<int>(section.integer("retries", m.retries, 0, 100));
  if (section.has("aa_test") && section.has("null_ab"))
    section.fail("null_ab", "is the old name of aa_test; give only one of them");
  m.aa_test = section.boolean("aa_test", section.boolean("null_ab", m.aa_test));
  m.allocator = section.choice("allocator", m.allocator, {"warm", "fresh"});
  m.memory_share = section.number("memory_share", m.memory_share, 0.01, 1.0);
  m.memory = section.bytes("memory", m.memory, 1, INT64_MAX);
}

void require(bool present, const std::string& path, const std::string& what) {
  if (!present) throw std::invalid_argument(path + ": " + what);
}

// The axes kv_heads and head_dim replace the model's, so they must suit its query heads.
void require_shapes(const Config& config, const ExperimentConfig& experiment) {
  const Axes& axes = experiment.axes;
  if (axes.kv_heads.empty() && axes.head_dim.empty()) return;
  const auto place = [&](const char* key) {
    return (experiment.own_keys.count(key) ? experiment.kind : "sweep") + "." + key;
  };
  for (const std::string& workload : axes.workload) {
    require(workload != "model" && workload != "dump", config.path,
            place("kv_heads") + " and " + place("head_dim") + " are for synthetic workloads; '" + workload +
                "' brings its own shape");
  }
  for (const int kv_heads : axes.kv_heads) {
    require(config.geometry.q_heads % kv_heads == 0, config.path,
            place("kv_heads") + " has " + std::to_string(kv_heads) + ", which does not divide the model's " +
                std::to_string(config.geometry.q_heads) + " query heads");
  }
  for (const int head_dim : axes.head_dim) {
    require(head_dim % 8 == 0, config.path,
            place("head_dim") + " has " + std::to_string(head_dim) + "; it must be a multiple of 8");
  }
}

// For a model with latent rows (MLA) the axes give heads instead; not every experiment takes latent rows.
void require_latent_rows_taken(const Config& config, const ExperimentConfig& experiment,
                               const ExperimentInfo& info) {
  if (config.geometry.latent_dim == 0) return;
  const Axes& axes = experiment.axes;
  require(axes.kv_heads.empty() == axes.head_dim.empty(), config.path,
          "'" + config.geometry.name +
              "' has latent rows (MLA); to give it heads instead, set both kv_heads and " + "head_dim");
  require(info.takes_latent_rows || !axes.kv_heads.empty(), config.path,
          "'" + experiment.kind + "' does not support the latent rows (MLA) of '" + config.geometry.name +
              "'; decode and growth do; or set kv_heads and head_dim");
}

void require_axes(const ExperimentConfig& experiment, const ExperimentInfo& info, const std::string& path) {
  for (const AnyAxis* axis : info.axes) {
    const std::string table =
        axis->key().table == SharedTable::kSweep && axis == &kSeqLen ? "sweep" : info.own_table();
    require(axis->has_values(experiment.settings), path,
            table + "." + std::string(axis->key().name) + " is missing, for example " +
                std::string(axis->example));
  }
}

void require_model(const Section& top, const ExperimentConfig& experiment) {
  for (const std::string& workload : experiment.axes.workload) {
    if (workload == "model") continue;
    top.fail("experiment", "'" + experiment.kind + "' runs a model, but its workload is '" + workload +
                               "': give workload.model, and its workload.tokenizer and workload.text");
  }
}

// Random weights cost the same time as real ones, but their outputs mean nothing.
void require_real_weights(Section& top, const WorkloadConfig& workload, const ExperimentInfo& info) {
  if (workload.weights != "random" || info.runs_random_weights) return;
  top.fail("experiment", "'" + std::string(info.name) +
                             "' needs a model's own weights: workload.weights = \"random\" is for 'model'");
}

// True if any experiment uses the geometry in [model].
bool any_synthetic(const std::vector<ExperimentConfig>& experiments, const Catalog& catalog) {
  for (const ExperimentConfig& experiment : experiments) {
    if (!info_of(catalog, experiment.kind).has_workload) return true;
    for (const std::string& workload : experiment.axes.workload) {
      if (workload != "model" && workload != "dump") return true;
    }
  }
  return false;
}

// The sweeps of one experiment. Its table overrides [sweep] and [measure] for it alone; several tables are several
// sweeps.
std::vector<ExperimentConfig> read_own_tables(Section& top, const ExperimentInfo& info,
                                              const ExperimentConfig& defaults, const Catalog& catalog) {
  std::vector<ExperimentConfig> sweeps;
  for (Section& own : top.section_or_sections(info.own_table())) {
    ExperimentConfig& sweep = sweeps.emplace_back(defaults);
    sweep.kind = info.name;
    for (const char* key : {"kv_heads", "head_dim"}) {
      if (own.has(key)) sweep.own_keys.insert(key);
    }
    read_axes(own, sweep.axes, catalog);
    read_own_keys(own, info, sweep.settings);
    if (info.has_workload) read_measure(own, sweep.measure);
    refuse_foreign_keys(own, info, catalog);
    if (info.check) info.check(own, sweep);
    own.refuse_the_rest(placing(catalog));
  }
  return sweeps;
}

// Reads [sweep] and [measure], every experiment's defaults.
ExperimentConfig read_defaults(Section& top, const Config& config, const Catalog& catalog) {
  ExperimentConfig defaults;
  defaults.axes.arithmetic = config.arithmetic;
  defaults.axes.workload = {config.workload.family};
  Section sweep = top.section("sweep"), measured = top.section("measure");
  read_axes(sweep, defaults.axes, catalog);
  read_measure(measured, defaults.measure);
  read_shared_keys(sweep, SharedTable::kSweep, catalog, defaults.settings);
  read_shared_keys(measured, SharedTable::kMeasure, catalog, defaults.settings);
  sweep.refuse_the_rest(placing(catalog));
  measured.refuse_the_rest(placing(catalog));
  return defaults;
}

std::vector<std::string> names_of(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const ExperimentInfo& info : catalog.experiments) names.emplace_back(info.name);
  return names;
}

// The tables of experiments that can run without a cache.
std::string uncached_names(const Catalog& catalog) {
  std::string names;
  for (const ExperimentInfo& info : catalog.experiments)
    if (info.runs_uncached) names += (names.empty() ? "[" : ", [") + info.own_table() + "]";
  return names;
}

// The sweeps of every experiment, by its name. A table may belong to an experiment that is not run.
std::map<std::string, std::vector<ExperimentConfig>> read_sweeps(Section& top, const Config& config,
                                                                 const Catalog& catalog) {
  const ExperimentConfig defaults = read_defaults(top, config, catalog);
  std::map<std::string, std::vector<ExperimentConfig>> known;
  for (const ExperimentInfo& info : catalog.experiments) {
    known[std::string(info.name)] = read_own_tables(top, info, defaults, catalog);
    top.explain(info.own_table(), info.help);
  }
  return known;
}

std::vector<ExperimentConfig> read_experiments(Section& top, const Config& config, const Catalog& catalog,
                                               const std::vector<std::string>& kinds) {
  require(!kinds.empty(), config.path,
          "experiment is missing; give one of " + io::joined(names_of(catalog)) + ", or an array of them");
  refuse_repeats(top, "experiment", kinds);
  const auto known = read_sweeps(top, config, catalog);
  std::vector<ExperimentConfig> experiments;
  for (const std::string& kind : kinds) {
    const ExperimentInfo& info = info_of(catalog, kind);
    for (const ExperimentConfig& experiment : known.at(kind)) {
      require(!experiment.axes.variants.empty(), config.path,
              experiment.axes.uncached
                  ? "sweep.variants has no cache to compare with 'none'; write [\"contiguous\", \"none\"]"
                  : "sweep.variants is missing; `kvlab list` shows all variants");
      require(!experiment.axes.uncached || info.runs_uncached, config.path,
              "sweep.variants names 'none' (no cache), but '" + kind +
                  "' needs a cache: give 'none' to the variants of " + uncached_names(catalog));
      require_axes(experiment, info, config.path);
      if (info.needs_model) require_model(top, experiment);
      require_real_weights(top, config.workload, info);
      experiments.push_back(experiment);
    }
  }
  return experiments;
}

// The keys before all tables. Returns the experiments' names.
std::vector<std::string> read_top(Section& top, const Catalog& catalog, Config& config) {
  config.name = io::as_utf8(top.text("name", ""));
  config.title = top.text("title", config.name);
  config.seed = static_cast<uint64_t>(top.integer("seed", 1, 0, INT64_MAX));
  config.threads = static_cast<int>(top.integer("threads", 0, 0, 4096));
  config.isa = top.text("isa", "auto");
  config.device = top.text("device", "cpu");
  config.arithmetic = top.choice("arithmetic", "exact", {"exact", "int8"});
  return top.texts("experiment", {}, names_of(catalog));
}

}  // namespace

const ExperimentInfo& info_of(const Catalog& catalog, std::string_view experiment) {
  for (const ExperimentInfo& info : catalog.experiments) {
    if (info.name == experiment) return info;
  }
  throw std::out_of_range("no experiment '" + std::string(experiment) + "'");
}

Config load_config(const std::string& given_path, const Overrides& overrides, const Catalog& catalog) {
  Config config;
  config.path = io::find_input(given_path, "config").string();
  toml::table root = parse_toml_file(config.path);
  apply_overrides(root, overrides, std::filesystem::path(config.path).stem().string(), catalog);

  Section top(root, config.path, "");
  const std::vector<std::string> kinds = read_top(top, catalog, config);
  config.workload = read_workload(top.section("workload"), catalog);
  config.experiments = read_experiments(top, config, catalog, kinds);
  // A real model and a dump have their own shape.
  Section model = top.section("model");
  const bool random = config.workload.weights == "random";
  if (random || any_synthetic(config.experiments, catalog))
    config.geometry = read_model(model, random, catalog, config.served);
  for (const ExperimentConfig& experiment : config.experiments) {
    require_shapes(config, experiment);
    require_latent_rows_taken(config, experiment, info_of(catalog, experiment.kind));
  }
  top.refuse_the_rest(placing(catalog));
  std::ostringstream as_run;
  as_run << root << "\n";
  config.as_run = io::as_utf8(as_run.str());
  return config;
}

nlohmann::json config_schema(const Catalog& catalog) {
  const toml::table nothing;
  nlohmann::json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                        {"title", "kvlab sweep config"},
                        {"required", {"experiment"}}};
  Section top(nothing, "", "", &schema);
  Config config;
  read_top(top, catalog, config);
  config.workload = read_workload(top.section("workload"), catalog);
  read_sweeps(top, config, catalog);
  Section model = top.section("model");
  read_model_keys(model);
  return schema;
}

}  // namespace kv::config
