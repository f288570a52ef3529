#include "harness/cli/choose_readings.h"

#include <toml++/toml.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "harness/choose/layer_formats.h"
#include "harness/choose/minutes.h"
#include "harness/cli/choose.h"
#include "harness/cli/commands.h"
#include "harness/cli/progress.h"
#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/sensitivity.h"
#include "harness/math/stats.h"
#include "harness/measure/prediction.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/run_context.h"
#include "harness/model/model.h"
#include "harness/results/append_file.h"
#include "harness/results/cell_columns.h"

namespace kv::cli {
namespace {

// A mixture's layers are read with each codec alone, hundreds of caches, so on fewer tokens.
constexpr int64_t kLayerWindow = 256;
constexpr int kLayerWindows = 4;
constexpr int64_t kFewestTimed = 64;  // tokens; steps need some context

std::string quoted_list(const std::vector<std::string>& specs) {
  toml::array list;
  for (const std::string& spec : specs) list.push_back(spec);
  std::ostringstream text;
  text << list;
  return text.str();
}

config::Config config_of(const ChoiceQuestion& question, const Reading& reading) {
  const ChooseOptions& o = question.options;
  const std::filesystem::path path = question.folder / (reading.name + ".toml");
  std::ostringstream text;
  text << "experiment = \"" << reading.experiment->info.name
       << "\"\n[workload]\ntext_from = " << reading.first_window * reading.window << "\n["
       << reading.experiment->info.own_table() << "]\n"
       << reading.more << "seq_len = " << reading.window << "\nbatch = " << reading.windows
       << "\nvariants = " << quoted_list(reading.specs) << "\n";
  results::write_whole(path, text.str());
  config::Overrides overrides;
  overrides.workload.model = o.model;
  overrides.workload.tokenizer = o.tokenizer;
  if (!o.text.empty()) overrides.workload.texts = {o.text};
  return experiments::load_config(path.string(), overrides);
}

// The cells of a run; empty if it was stopped.
std::vector<results::Row> cells_of(const ChoiceQuestion& question, const Reading& reading) {
  Progress progress;
  const experiments::RunOutcome outcome = experiments::run_config(
      config_of(question, reading),
      {.out = question.folder / reading.name,
       .stop = is_stopped,
       .note = [&](const std::string& line) { progress.note(line); },
       .progress =
           [&](int done, int total, const std::string& what, double weight, double all) {
             progress.update(done, total, reading.name + ": " + what, weight, all);
           }});
  progress.clear();
  return outcome.finished ? outcome.cells : std::vector<results::Row>{};
}

}  // namespace

ModelShape shape_at(const ChoiceQuestion& question, const Reading& reading) try {
  const config::Config config = config_of(question, reading);
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  const measure::SweepPoint& point = sweep.points.front();
  const int most = point.source->model()->config().max_tokens;
  if (question.context_tokens > most)
    throw std::invalid_argument("--context " + question.options.context + " is more than the " +
                                std::to_string(most) + " tokens that the model was trained for");
  ModelShape shape = measure::cache_shape(point, question.options.users);
  shape.max_tokens = question.context_tokens;
  return shape;
} catch (...) {
  std::filesystem::remove_all(question.folder);
  throw;
}

std::map<std::string, choose::ExtraLoss> losses(const ChoiceQuestion& question, const Reading& reading) {
  std::map<std::string, choose::ExtraLoss> by_spec;
  for (const results::Row& row : cells_of(question, reading)) {
    const results::Number &value = row[measure::kLossChange], &low = row[measure::kLossChangeCiLow],
                          &high = row[measure::kLossChangeCiHigh];
    if (value && low && high) by_spec[row[results::kVariant]] = {*value, *low, *high};
  }
  return by_spec;
}

choose::LayerLosses losses_by_layer(const ChoiceQuestion& question) {
  const ChooseOptions& o = question.options;
  Reading alone{"layers",
                &experiments::kSensitivity,
                std::min(o.window, kLayerWindow),
                std::min(o.windows, kLayerWindows),
                0,
                {"contiguous"}};
  for (const char* codec : choose::kMixtureCodecs) alone.specs.push_back(std::string("contiguous/") + codec);
  return experiments::layer_losses(cells_of(question, alone));
}

Speeds speeds_of(const ChoiceQuestion& question, const std::vector<std::string>& specs) {
  const Reading timed{"speed",
                      &experiments::kModel,
                      std::max(question.context_tokens, kFewestTimed),
                      question.options.users,
                      0,
                      specs,
                      "context = \"synthetic\"\nsteps = 4\nrepetitions = 5\nretries = 0\naa_test = false\n"};
  const std::vector<results::Row> cells = cells_of(question, timed);
  Speeds speeds{.finished = !cells.empty()};
  for (const results::Row& row : cells) {
    const results::Number &p50 = row[measure::kStepP50Us], &low = row[measure::kStepCiLowUs],
                          &high = row[measure::kStepCiHighUs];
    if (p50 && low && high) {
      speeds.by_spec[row[results::kVariant]] = {1e6 / *p50, 1e6 / *high, 1e6 / *low};
    } else {
      speeds.missing = row[results::kReason];
    }
  }
  return speeds;
}

int fewest_windows(int64_t window) {
  const int64_t stretches = (window + measure::kStretch - 1) / measure::kStretch;
  return static_cast<int>((math::kMinSamples + stretches - 1) / stretches);
}

bool fit_into_minutes(ChoiceQuestion& question, Reading calibration, const ModelShape& shape,
                      size_t most_confirmed) {
  const ChooseOptions& o = question.options;
  calibration.name = "first_window";
  calibration.windows = 1;
  const auto begin = std::chrono::steady_clock::now();
  if (cells_of(question, calibration).empty()) return false;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto caches = static_cast<double>(calibration.specs.size());
  const auto alone =
      static_cast<double>(choose::cached_layers(shape).size() * 2 * std::size(choose::kMixtureCodecs));
  const auto tokens =
      static_cast<double>(std::min(o.windows, kLayerWindows) * std::min(o.window, kLayerWindow));
  const choose::FirstWindow first{
      .seconds = took.count(),
      .confirmation_share = std::min(1.0, static_cast<double>(most_confirmed + 1) / caches),
      .mixture_windows = alone / caches * tokens / static_cast<double>(o.window)};
  const choose::FittingParts fitting = choose::fitting_parts(60 * o.minutes, first, {o.windows, o.mixture});
  if (const int fewest = fewest_windows(o.window); fitting.windows < fewest) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "--minutes %g are too few: a window of %lld tokens takes %.2g s. Give --minutes %.2g or a "
                  "shorter --window",
                  o.minutes, static_cast<long long>(o.window), first.seconds,
                  std::ceil(choose::seconds_for(fewest, first) / 6) / 10);
    std::filesystem::remove_all(question.folder);
    throw std::invalid_argument(text);
  }
  question.windows = fitting.windows;
  question.mixture = fitting.mixture;
  if (fitting.windows < o.windows)
    question.left_out =
        std::to_string(o.windows - fitting.windows) + " of " + std::to_string(o.windows) + " windows";
  if (o.mixture && !fitting.mixture)
    question.left_out += std::string(question.left_out.empty() ? "" : " and ") + "the mixture by layer";
  return true;
}

}  // namespace kv::cli
