#include "harness/experiments/engine_cells.h"

#include <algorithm>
#include <stdexcept>

#include "harness/config/axes.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/cell_text.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/model_files.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/peers/engines.h"
#include "harness/peers/peers.h"

namespace kv::experiments {
namespace {

constexpr std::chrono::hours kEnginePatience{1};
constexpr size_t kMostApart = 5;

std::vector<std::string> read_engines(config::Section& section, const std::string& key,
                                      const std::vector<std::string>& fallback) {
  if (!section.has(key)) return fallback;
  std::vector<std::string> arms;
  for (const std::string& written : section.texts(key, {})) {
    try {
      arms.push_back(peers::parse_arm(written).text());
    } catch (const std::invalid_argument& e) {
      section.fail(key, std::string("has a mistake: ") + e.what());
    }
  }
  config::refuse_repeats(section, key, arms);
  return arms;
}

// The reason that the engine cannot run at this point, or empty.
std::string why_no_engine(const measure::SweepPoint& point, const std::string& engine) {
  const config::WorkloadConfig& w = point.config->workload;
  if (point.context->gpu()) return "whole engines run on the CPU";
  if (w.weights == "random" || peers::gguf_of(w.model).empty()) return engine + " reads a model's GGUF file";
  if (w.text_from > 0) return engine + " reads a text from its beginning, not from workload.text_from";
  if (w.k_order == "halves") return engine + " has K's channels in the file's order";
  return peers::why_absent(engine);
}

std::string divergence_text(const results::Row& row) { return with_interval(row, measure::kKlMean, "%.2g"); }

// True unless all of this interval lies above the other's.
bool reaches(const results::Row& row, const results::Row& other) {
  return row[measure::kKlMean.low].value_or(0.0) <= other[measure::kKlMean.high].value_or(0.0);
}

// The same sweep point's cell of this variant; null if there is none.
const results::Row* companion_of(std::span<const results::Row* const> cells, const results::Row& engine) {
  const auto found = std::ranges::find_if(cells, [&](const results::Row* row) {
    return (*row)[results::kVariant] == engine[measure::kPeerVersus] &&
           (*row)[results::kSeqLen] == engine[results::kSeqLen] &&
           (*row)[results::kBatch] == engine[results::kBatch] &&
           (*row)[results::kWorkload] == engine[results::kWorkload] && (*row)[measure::kKlMean];
  });
  return found == cells.end() ? nullptr : *found;
}

}  // namespace

const config::Key<std::vector<std::string>> kEnginesKey{
    "engines",
    config::SharedTable::kSweep,
    {},
    read_engines,
    "whole engines with their caches, as \"llama.cpp(k=q8_0,v=q4_0)\""};

bool has_engines(const measure::SweepPoint& point) { return !settings_of(point)[kEnginesKey].empty(); }

bool runs_engines(const config::Config&, const config::ExperimentConfig& sweep) {
  return !sweep.settings[kEnginesKey].empty();
}

void add_engines(measure::SweepPoint& point) {
  const std::vector<std::string>& arms = settings_of(point)[kEnginesKey];
  for (const std::string& text : arms) {
    const peers::EngineArm arm = peers::parse_arm(text);
    measure::PlannedCell& cell = add_cell(point, LayerSpecs(arm.cache(point.source->shape().head_dim)));
    cell.key = point.key_of(text);
    cell.variant = cell.series = cell.peer = text;
    if (cell.is_measured()) refuse(cell, why_no_engine(point, arm.engine));
  }
}

std::string engines_beside_caches(std::span<const results::Row* const> cells) {
  size_t pairs = 0, apart = 0;
  std::string named;
  for (const results::Row* row : cells) {
    const results::Row* own = (*row)[measure::kPeerVersus].empty() ? nullptr : companion_of(cells, *row);
    if (!own || !(*row)[measure::kKlMean]) continue;
    ++pairs;
    if (reaches(*row, *own) && reaches(*own, *row)) continue;
    if (++apart <= kMostApart)
      named += (named.empty() ? "" : ", ") + row_name(*row) + " " + divergence_text(*row) + " and " +
               row_name(*own) + " " + divergence_text(*own);
  }
  if (pairs == 0) return "";
  return "Engines: the KL divergence of " + std::to_string(pairs - apart) + " of " + std::to_string(pairs) +
         " engines' caches agrees with that of kvlab's cache of the same bits" +
         (apart ? "; not that of " + named : "") + (apart > kMostApart ? ", and more" : "") +
         ". An engine is compared with its own f32 cache, in its own arithmetic of the weights; its "
         "intervals take tokens as independent.\n";
}

nlohmann::json EngineCells::ask(const measure::Cell& cell, nlohmann::json request) {
  const peers::EngineArm arm = peers::parse_arm(cell.peer);
  if (!process_ || process_->has_ended())
    process_ = std::make_unique<peers::Process>(peers::serving(arm.engine), nothing_.file(), point_.threads,
                                                kEnginePatience);
  request["model"] = peers::gguf_of(point_.config->workload.model).string();
  request["cache"] = arm.values;
  request["threads"] = point_.threads;
  return process_->ask(request);
}

namespace {

void set_engine_columns(const nlohmann::json& columns, const measure::SweepPoint& point,
                        measure::Cell& cell) {
  results::Row& row = cell.result;
  for (const auto& [name, value] : columns.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (!row.read(cell_table().at(name), text))
      throw std::runtime_error("the engine's " + name + " is '" + text + "'");
  }
  row[results::kEngines] = peers::commands_of(cell.spec);
  const auto same = std::ranges::find_if(point.cells, [&](const measure::PlannedCell& own) {
    return own.peer.empty() && own.spec == cell.spec;
  });
  if (same != point.cells.end()) row[measure::kPeerVersus] = same->variant;
  row[results::kStatus] = results::Status::kOk;
}

}  // namespace

void EngineCells::read(measure::Cell& cell, const measure::Passages& passages) {
  std::vector<int> tokens;
  for (int s = 0; s < passages.sequences; ++s) {
    for (int64_t at = 0; at < passages.length; ++at) tokens.push_back(passages.id(s, at));
  }
  set_engine_columns(ask(cell, {{"do", "read"},
                                {"text", io::text_to_read(point_.text).string()},
                                {"windows", passages.sequences},
                                {"context", passages.length},
                                {"tokens", tokens}}),
                     point_, cell);
}

EngineCells::Times EngineCells::time(measure::Cell& cell, int64_t depth, bool prompt) {
  const config::MeasureConfig& m = point_.experiment->measure;
  const nlohmann::json answer = ask(cell, {{"do", "time"},
                                           {"depth", depth},
                                           {"steps", m.steps},
                                           {"repetitions", m.repetitions},
                                           {"prompt", prompt}});
  set_engine_columns(answer.at("columns"), point_, cell);
  return {answer.at("step_us").get<std::vector<double>>(), answer.value("prompt_us", std::vector<double>())};
}

}  // namespace kv::experiments
