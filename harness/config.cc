#include "harness/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/experiments.h"
#include "harness/paths.h"
#include "harness/placeholder.h"
#include "harness/request_lengths.h"
#include "harness/section.h"
#include "harness/token_ids.h"
#include "harness/workload.h"
#include "kernels/attention.h"

namespace kv {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 24;

// Sets the value under `a.b.c`.
void override_value(toml::table& root, const std::string& key, const toml::node& value) {
  toml::table* at = &root;
  std::stringstream parts(key);
  std::string part, next;
  std::getline(parts, part, '.');
  while (std::getline(parts, next, '.')) {
    if (!at->contains(part)) at->insert(part, toml::table{});
    at = at->get(part)->as_table();
    if (!at) throw std::invalid_argument("--set " + key + ": '" + part + "' is not a table");
    part = next;
  }
  at->insert_or_assign(part, value);
}

// `a.b.c=value`: the value is TOML, or else taken as text.
void apply_override(toml::table& root, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw std::invalid_argument("--set " + assignment +
                                ": expected key=value, as in --set measure.repetitions=3");
  }
  const std::string key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  toml::table parsed;
  try {
    parsed = toml::parse("value = " + text);
  } catch (const toml::parse_error&) {
    parsed.insert("value", text);
  }
  override_value(root, key, *parsed.get("value"));
}

Geometry read_model(Section model) {
  const bool preset = model.has("preset"), file = model.has("config");
  const bool numbers = model.has("q_heads") || model.has("kv_heads") || model.has("head_dim");
  if (preset + file + numbers != 1) {
    model.refuse(
        "needs one of: preset = \"llama-3-8b\", config = \"config.json\", or q_heads, kv_heads and head_dim");
  }
  Geometry g;
  if (preset) {
    g = preset_geometry(model.text("preset", ""));
  } else if (file) {
    g = read_geometry(find_input(model.text("config", ""), "model config").string());
  } else {
    g.q_heads = static_cast<int>(model.integer("q_heads", 0, 1, 4096));
    g.kv_heads = static_cast<int>(model.integer("kv_heads", g.q_heads, 1, 4096));
    g.head_dim = static_cast<int>(model.integer("head_dim", 0, 8, 512));
    if (g.q_heads == 0 || g.head_dim == 0) model.refuse("needs q_heads and head_dim");
    g.name = "custom";
  }
  if (g.latent_dim > 0) {
    model.refuse("'" + g.name + "' keeps one latent row a token and layer (MLA), and no cache here does; " +
                 "`kvlab tables` has its closed form");
  }
  g.name = model.text("name", g.name);
  g.layers = static_cast<int>(model.integer("layers", 1, 1, 1024));
  model.refuse_the_rest();
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

WorkloadConfig read_workload(Section section) {
  WorkloadConfig w;
  w.family = section.text("family", "gaussian");
  w.dump = section.text("dump", "");
  w.model = section.text("model", "");
  w.tokenizer = section.text("tokenizer", "");
  w.text = section.text("text", "");
  section.refuse_the_rest();
  const bool any = !w.model.empty() || !w.tokenizer.empty() || !w.text.empty();
  const bool has_tokenizer = !w.tokenizer.empty() || is_token_file(w.text);
  if (any && (w.model.empty() || w.text.empty() || !has_tokenizer)) {
    section.refuse(
        "needs all three of model, tokenizer and text (without the tokenizer if text is token ids), or none");
  }
  if (any) w.family = "model";
  if (!w.dump.empty()) w.family = "dump";
  return w;
}

std::vector<std::string> known_workloads() {
  std::vector<std::string> names{"dump", "model"};
  for (const FamilyInfo& family : synthetic_families()) names.emplace_back(family.name);
  return names;
}

Spec read_variant(const Section& section, const std::string& text) {
  try {
    return parse_spec(text);
  } catch (const std::invalid_argument& e) {
    section.fail("variants", std::string("has a mistake: ") + e.what());
  }
}

std::string at_budget(const Section& section, const std::string& written, int64_t budget) {
  try {
    return substitute_budget(written, budget);
  } catch (const std::invalid_argument& e) {
    section.fail("variants", "has a mistake in '" + written + "': " + e.what());
  }
}

// Each variant, at each budget if it depends on it.
void expand_variants(const Section& section, Axes& axes) {
  axes.variants.clear();
  axes.series.clear();
  const auto add = [&](const std::string& written, const std::string& text) {
    axes.variants.push_back(read_variant(section, text));
    axes.series.push_back(written);
    if (std::count(axes.variants.begin(), axes.variants.end(), axes.variants.back()) > 1)
      section.fail("variants", "names '" + axes.variants.back().print() + "' twice");
  };
  for (const std::string& written : axes.written) {
    if (!has_placeholder(written)) {
      add(written, written);
      continue;
    }
    if (axes.budget.empty())
      section.fail("variants", "has '" + written + "', but there is no axis budget = [...]");
    for (const int64_t budget : axes.budget) add(written, at_budget(section, written, budget));
  }
}

// A value that comes twice would be two cells of one name.
template <class Value>
void refuse_repeats(const Section& section, const std::string& key, std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice == values.end()) return;
  std::ostringstream value;
  value << *twice;
  section.fail(key, "names " + value.str() + " twice");
}

void read_lengths(Section& section, std::vector<std::string>& lengths) {
  lengths = section.texts("lengths", lengths);
  refuse_repeats(section, "lengths", lengths);
  for (const std::string& text : lengths) {
    try {
      check_lengths(text);
    } catch (const std::invalid_argument& e) {
      section.fail("lengths", std::string("has a mistake: ") + e.what());
    }
  }
}

void read_small_integers(Section& section, const std::string& key, int64_t most, std::vector<int>& values) {
  const std::vector<int64_t> read =
      section.integers(key, std::vector<int64_t>(values.begin(), values.end()), 1, most);
  refuse_repeats(section, key, read);
  values.assign(read.begin(), read.end());
}

void read_axes(Section& section, Axes& axes) {
  axes.written = section.texts("variants", axes.written);
  axes.budget = section.integers("budget", axes.budget, 1, kMaxTokens);
  refuse_repeats(section, "budget", axes.budget);
  expand_variants(section, axes);
  axes.seq_len = section.integers("seq_len", axes.seq_len, 1, kMaxTokens);
  std::sort(axes.seq_len.begin(), axes.seq_len.end());
  refuse_repeats(section, "seq_len", axes.seq_len);
  std::vector<int64_t> batch(axes.batch.begin(), axes.batch.end());
  batch = section.integers("batch", batch, 1, 4096);
  refuse_repeats(section, "batch", batch);
  axes.batch.assign(batch.begin(), batch.end());
  axes.chunk = section.integers("chunk", axes.chunk, 1, kMaxTokens);
  refuse_repeats(section, "chunk", axes.chunk);
  read_lengths(section, axes.lengths);
  axes.distance = section.integers("distance", axes.distance, 1, kMaxTokens);
  refuse_repeats(section, "distance", axes.distance);
  axes.passage = section.integers("passage", axes.passage, 1, kMaxTokens);
  refuse_repeats(section, "passage", axes.passage);
  read_small_integers(section, "kv_heads", 4096, axes.kv_heads);
  read_small_integers(section, "head_dim", kMaxHeadDim, axes.head_dim);
  read_small_integers(section, "threads", 4096, axes.threads);
  axes.workload = section.texts("workload", axes.workload);
  refuse_repeats(section, "workload", axes.workload);
  const std::vector<std::string> known = known_workloads();
  for (const std::string& name : axes.workload) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string list;
      for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
      section.fail("workload", "must be among " + list + ", not '" + name + "'");
    }
  }
}

void read_measure(Section& section, MeasureConfig& m) {
  m.repetitions = static_cast<int>(section.integer("repetitions", m.repetitions, 1, 1000));
  m.steps = static_cast<int>(section.integer("steps", m.steps, 1, 100000));
  m.cold_steps = static_cast<int>(section.integer("cold_steps", m.cold_steps, 0, 100000));
  m.attend = section.boolean("attend", m.attend);
  m.null_ab = section.boolean("null_ab", m.null_ab);
  m.allocator = section.choice("allocator", m.allocator, {"warm", "fresh"});
  m.step_tokens = section.integer("step_tokens", m.step_tokens, 1, kMaxTokens);
  m.prompt = section.integer("prompt", m.prompt, 0, kMaxTokens);
  m.passages = section.choice("passages", m.passages, {"random", "text"});
  m.temperature = section.numbers("temperature", m.temperature, 0.0, 100.0);
  refuse_repeats(section, "temperature", m.temperature);
  m.recompute = section.integers("recompute", m.recompute, 1, kMaxTokens);
  refuse_repeats(section, "recompute", m.recompute);
  m.stride = section.integer("stride", m.stride, 1, kMaxTokens);
  m.memory_share = section.number("memory_share", m.memory_share, 0.01, 1.0);
}

// A file's place, whole, so that the config as run means the same wherever it is run from. The project's own
// files are found from everywhere, and keep their names on every machine.
void settle_path(toml::table& root, const char* section, const char* key) {
  toml::table* table = root[section].as_table();
  const auto path = table ? (*table)[key].value<std::string>() : std::nullopt;
  if (path && !path->empty()) {
    const bool may_be_folder = std::string_view(key) == "model";
    const auto place =
        may_be_folder ? find_model(*path) : find_input(*path, std::string(section) + "." + key);
    std::error_code ignored;
    if (std::filesystem::equivalent(place, project_home() / *path, ignored)) return;
    table->insert_or_assign(key, std::filesystem::absolute(place).lexically_normal().string());
  }
}

// [key], or each [[key]].
std::vector<toml::table*> tables_under(toml::table& root, std::string_view key) {
  std::vector<toml::table*> tables;
  if (toml::table* one = root[key].as_table()) tables.push_back(one);
  if (toml::array* several = root[key].as_array()) {
    for (toml::node& item : *several) {
      if (item.is_table()) tables.push_back(item.as_table());
    }
  }
  return tables;
}

// The command line's options become keys, so that the config as run holds all that was asked for.
void apply_options(toml::table& root, const Overrides& overrides, const std::string& name) {
  for (const std::string& assignment : overrides.set) apply_override(root, assignment);
  if (overrides.seed >= 0) root.insert_or_assign("seed", overrides.seed);
  if (overrides.threads > 0) root.insert_or_assign("threads", overrides.threads);
  if (!overrides.isa.empty()) root.insert_or_assign("isa", overrides.isa);
  if (!overrides.device.empty()) root.insert_or_assign("device", overrides.device);
  if (!root.contains("name")) root.insert("name", name);
  const WorkloadConfig& w = overrides.workload;
  const auto set_text = [&](const std::string& key, const std::string& text) {
    if (!text.empty()) override_value(root, key, toml::value<std::string>(text));
  };
  if (toml::table* old = root["workload"].as_table(); old && !w.model.empty()) {
    // Another model's tokenizer and text are not this one's.
    old->erase("tokenizer");
    old->erase("text");
  }
  set_text("workload.model", w.model);
  set_text("workload.tokenizer", w.tokenizer);
  set_text("workload.text", w.text);
  if (!w.model.empty()) {
    // Who names a model on the command line wants it measured, whatever the config sweeps over.
    set_text("sweep.workload", "model");
    for (const Experiment& experiment : experiments()) {
      for (toml::table* own : tables_under(root, experiment.name)) own->erase("workload");
    }
  }
  for (const char* key : {"dump", "model", "tokenizer", "text"}) settle_path(root, "workload", key);
  settle_path(root, "model", "config");
}

void require(bool present, const std::string& path, const std::string& what) {
  if (!present) throw std::invalid_argument(path + ": " + what);
}

// The axes kv_heads and head_dim stand in for the model's own, so they have to be possible beside its query
// heads.
void require_shapes(const Config& config, const ExperimentConfig& experiment) {
  const Axes& axes = experiment.axes;
  if (axes.kv_heads.empty() && axes.head_dim.empty()) return;
  for (const std::string& workload : axes.workload) {
    require(workload != "model" && workload != "dump", config.path,
            "sweep.kv_heads and sweep.head_dim are for synthetic workloads; '" + workload +
                "' brings its own shape");
  }
  for (const int kv_heads : axes.kv_heads) {
    require(config.geometry.q_heads % kv_heads == 0, config.path,
            "sweep.kv_heads has " + std::to_string(kv_heads) + ", which does not divide the model's " +
                std::to_string(config.geometry.q_heads) + " query heads");
  }
  for (const int head_dim : axes.head_dim) {
    require(head_dim % 8 == 0, config.path,
            "sweep.head_dim has " + std::to_string(head_dim) + "; it must be a multiple of 8");
  }
}

void require_lengths(const ExperimentConfig& experiment, const std::string& path) {
  switch (experiment_named(experiment.kind).axis) {
    case LengthAxis::kSeqLen:
      return require(!experiment.axes.seq_len.empty(), path,
                     "sweep.seq_len is missing, as in seq_len = [256, 512, 1024]");
    case LengthAxis::kLengths:
      return require(!experiment.axes.lengths.empty(), path,
                     "sweep.lengths is missing, as in lengths = [\"16,32,500\", \"uniform(16,512)\"]");
    case LengthAxis::kDistance:
      return require(!experiment.axes.distance.empty(), path,
                     "recall.distance is missing, as in distance = [100, 200, 400]");
  }
}

void require_model(const Section& top, const ExperimentConfig& experiment) {
  for (const std::string& workload : experiment.axes.workload) {
    if (workload == "model") continue;
    top.fail("experiment", "'" + experiment.kind + "' runs a model, but its workload is '" + workload +
                               "': give workload.model, workload.text and its workload.tokenizer");
  }
}

bool any_synthetic(const std::vector<ExperimentConfig>& experiments) {
  for (const ExperimentConfig& experiment : experiments) {
    for (const std::string& workload : experiment.axes.workload) {
      if (workload != "model" && workload != "dump") return true;
    }
  }
  return false;
}

}  // namespace

Config load_config(const std::string& given_path, const Overrides& overrides) {
  Config config;
  config.path = find_input(given_path, "config").string();
  toml::table root = parse_toml_file(config.path);
  apply_options(root, overrides, std::filesystem::path(config.path).stem().string());

  Section top(root, config.path, "");
  config.name = top.text("name", "");
  config.title = top.text("title", config.name);
  config.seed = static_cast<uint64_t>(top.integer("seed", 1, 0, INT64_MAX));
  config.threads = static_cast<int>(top.integer("threads", 0, 0, 4096));
  config.isa = top.text("isa", "auto");
  config.device = top.text("device", "cpu");
  config.workload = read_workload(top.section("workload"));

  Axes axes;
  axes.batch = {1};
  axes.workload = {config.workload.family};
  MeasureConfig measure;
  Section sweep = top.section("sweep"), measured = top.section("measure");
  read_axes(sweep, axes);
  read_measure(measured, measure);
  sweep.refuse_the_rest();
  measured.refuse_the_rest();

  const std::vector<std::string> kinds = top.texts("experiment", {});
  std::string names;
  for (const Experiment& e : experiments()) names += (names.empty() ? "" : ", ") + std::string(e.name);
  require(!kinds.empty(), config.path,
          "experiment is missing; it is one of " + names + ", or an array of them");
  refuse_repeats(top, "experiment", kinds);
  // A table of the experiment's name overrides [sweep] and [measure] for it alone, and several are as many
  // sweeps; they may be there for an experiment that is not run.
  std::map<std::string, std::vector<ExperimentConfig>> known;
  for (const Experiment& e : experiments()) {
    const std::string kind(e.name);
    for (Section& own : top.section_or_sections(kind)) {
      ExperimentConfig& experiment = known[kind].emplace_back(ExperimentConfig{kind, axes, measure});
      read_axes(own, experiment.axes);
      read_measure(own, experiment.measure);
      own.refuse_the_rest();
    }
  }
  for (const std::string& kind : kinds) {
    if (!known.count(kind)) top.fail("experiment", "must be one of " + names + ", not '" + kind + "'");
    for (const ExperimentConfig& experiment : known.at(kind)) {
      require(!experiment.axes.variants.empty(), config.path,
              "sweep.variants is missing; `kvlab list` shows what there is");
      require_lengths(experiment, config.path);
      if (experiment_named(kind).needs_model()) require_model(top, experiment);
      config.experiments.push_back(experiment);
    }
  }
  // A real model and a dump bring their own shape.
  Section model = top.section("model");
  if (any_synthetic(config.experiments)) config.geometry = read_model(model);
  for (const ExperimentConfig& experiment : config.experiments) require_shapes(config, experiment);
  top.refuse_the_rest();
  std::ostringstream as_run;
  as_run << root << "\n";
  config.as_run = as_run.str();
  return config;
}

}  // namespace kv
