#include "harness/cli/choose_readings.h"

#include <toml++/toml.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "harness/choose/layer_formats.h"
#include "harness/cli/choose.h"
#include "harness/cli/commands.h"
#include "harness/cli/progress.h"
#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/sensitivity.h"
#include "harness/io/bytes.h"
#include "harness/io/text.h"
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
constexpr int64_t kFewestTimed = 64;    // tokens; steps need some context
constexpr int64_t kUsualTokens = 8192;  // of all windows
constexpr int64_t kShortest = 512;      // window that is taken to keep --minutes, tokens

int64_t stretches_of(int64_t window) { return (window + measure::kStretch - 1) / measure::kStretch; }

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
  ModelShape shape;
  // A short one first: too long a context is a mistake in --context, not in the experiment's keys.
  for (const int64_t window : {int64_t{2}, reading.window}) {
    Reading planned = reading;
    planned.window = window;
    const config::Config config = config_of(question, planned);
    const memory::RunContext context(config.device, config.isa, config.threads);
    const experiments::Sweep sweep = experiments::plan_sweep(config, context);
    const measure::SweepPoint& point = sweep.points.front();
    const int most = point.source->model()->config().max_tokens;
    if (question.context_tokens > most)
      throw std::invalid_argument("--context " + question.options.context + " is more than the " +
                                  std::to_string(most) + " tokens that the model was trained for");
    shape = measure::cache_shape(point, question.options.users);
  }
  shape.max_tokens = question.context_tokens;
  return shape;
} catch (...) {
  std::filesystem::remove_all(question.folder);
  throw;
}

std::map<std::string, choose::ExtraLoss> losses(const ChoiceQuestion& question, const Reading& reading) {
  std::map<std::string, choose::ExtraLoss> by_spec;
  for (const results::Row& row : cells_of(question, reading)) {
    const results::Number &value = row[measure::kLossChange], &error = row[measure::kLossChangeSe];
    const auto stretches = static_cast<double>(reading.windows * stretches_of(reading.window));
    if (value && error) by_spec[row[results::kVariant]] = {*value, *error, stretches - 1};
  }
  return by_spec;
}

choose::LayerLosses losses_by_layer(const ChoiceQuestion& question) {
  Reading alone{"layers",
                &experiments::kSensitivity,
                std::min(question.window, kLayerWindow),
                std::min(question.windows, kLayerWindows),
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
    const results::Number &p50 = row[measure::kStepP50Us], &low = row[measure::kStepP50Us.low],
                          &high = row[measure::kStepP50Us.high];
    if (p50 && low && high) {
      speeds.by_spec[row[results::kVariant]] = {1e6 / *p50, 1e6 / *high, 1e6 / *low};
    } else {
      speeds.missing = row[results::kReason];
    }
  }
  return speeds;
}

int fewest_windows(int64_t window) {
  const int64_t stretches = stretches_of(window);
  return static_cast<int>((choose::kFewestStretches + stretches - 1) / stretches);
}

int usual_windows(int64_t window) {
  return std::max(fewest_windows(window), static_cast<int>((kUsualTokens + window - 1) / window));
}

namespace {

std::string minutes_text(double seconds) { return io::formatted("%.3g", std::ceil(seconds / 6) / 10); }

// Those to try, the shortest first: the user's own, or the context halved until it is short.
std::vector<int64_t> window_lengths(const ChoiceQuestion& question) {
  std::vector<int64_t> lengths{question.window};
  while (question.options.window == 0 && lengths.back() > kShortest)
    lengths.push_back((lengths.back() + 1) / 2);
  std::ranges::reverse(lengths);
  return lengths;
}

// One of so many tokens that took so many seconds.
choose::FirstWindow first_window(const ChoiceQuestion& question, int64_t tokens, double seconds,
                                 double caches, size_t most_confirmed) {
  const auto alone = static_cast<double>(choose::cached_layers(question.shape).size() * 2 *
                                         std::size(choose::kMixtureCodecs));
  const auto read =
      static_cast<double>(std::min(usual_windows(tokens), kLayerWindows) * std::min(tokens, kLayerWindow));
  return {.seconds = seconds,
          .confirmation_share = std::min(1.0, static_cast<double>(most_confirmed + 1) / caches),
          .mixture_windows = alone / caches * read / static_cast<double>(tokens)};
}

}  // namespace

bool fit_into_minutes(ChoiceQuestion& question, Reading calibration, size_t most_confirmed) {
  const ChooseOptions& o = question.options;
  const auto caches = static_cast<double>(calibration.specs.size());
  double spent = 0, before = 0,
         needed = 0;   // seconds: of all first windows, of the last, for the fewest windows
  int64_t window = 0;  // the longest that fits
  choose::FittingParts fitting{};
  for (const int64_t length : window_lengths(question)) {
    calibration.name = "first_window_" + std::to_string(length);
    calibration.window = length;
    calibration.windows = 1;
    const auto first = [&](double seconds) {
      return first_window(question, length, seconds, caches, most_confirmed);
    };
    // A window of twice the tokens takes two to four times as long.
    needed = choose::seconds_for(fewest_windows(length), first(3 * before));
    if (window > 0 && spent + needed > 60 * o.minutes) break;
    const auto begin = std::chrono::steady_clock::now();
    if (cells_of(question, calibration).empty()) return false;
    before = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    needed = choose::seconds_for(fewest_windows(length), first(before));
    const int asked = o.windows > 0 ? o.windows : usual_windows(length);
    const auto fits = choose::fitting_parts(60 * o.minutes - spent, first(before), {asked, o.mixture});
    spent += before;
    if (fits.windows < fewest_windows(length)) break;
    window = length;
    fitting = fits;
    const int left = asked - fits.windows;
    question.left_out =
        left > 0 ? std::to_string(left) + " of " + std::to_string(asked) + " windows" : std::string();
  }
  if (window == 0) {
    std::filesystem::remove_all(question.folder);
    throw std::invalid_argument(io::formatted("--minutes %g", o.minutes) + " is too short for " +
                                std::to_string(fewest_windows(calibration.window)) + " windows of " +
                                std::to_string(calibration.window) +
                                " tokens, and as many to confirm on; give --minutes " + minutes_text(needed));
  }
  const auto leave_out = [&](const std::string& what) {
    question.left_out += (question.left_out.empty() ? "" : " and ") + what;
  };
  if (o.mixture && !fitting.mixture) leave_out("the mixture by layer");
  if (window < question.window)
    leave_out("windows of more than " + io::grouped(window) +
              " tokens: the next longer ones need --minutes " + minutes_text(spent + needed) + " or more");
  question.window = window;
  question.windows = fitting.windows;
  question.mixture = fitting.mixture;
  return true;
}

}  // namespace kv::cli
