#include "harness/cli/choose.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "harness/choose/candidates.h"
#include "harness/choose/choice.h"
#include "harness/cli/choose_readings.h"
#include "harness/cli/commands.h"
#include "harness/experiments/list.h"
#include "harness/io/bytes.h"
#include "harness/io/text.h"
#include "harness/measure/exposure.h"
#include "harness/results/results_folder.h"
#include "harness/tables/fit_table.h"

namespace kv::cli {
namespace {

constexpr size_t kMostConfirmed = 6, kLongestLabel = 44;

// A choice and the candidates it was made among, for Document.
struct ChoiceTable {
  const ChoiceQuestion& question;
  const std::vector<choose::Candidate>& candidates;
  const std::vector<size_t>& confirmed;
  const choose::Choice& choice;
  const std::vector<results::Row>& untested;
};

std::string nats(double value) { return io::formatted("%.2g", value); }

std::string with_ends(const choose::ExtraLoss& loss) {
  return nats(loss.value) + " (" + nats(loss.low()) + " to " + nats(loss.high()) + ")";
}

std::string rate_text(const choose::Rate& rate) {
  const char* form = rate.low < 100 ? "%.3g (%.3g–%.3g)" : "%.0f (%.0f–%.0f)";
  return io::formatted(form, rate.value, rate.low, rate.high);
}

std::string answer_of(const ChoiceTable& table, size_t i) {
  const choose::Candidate& candidate = table.candidates[i];
  if (candidate.bytes > table.question.memory_bytes) return "too_large";
  if (!candidate.confirmed) return "left";
  if (std::ranges::count(table.choice.best, i)) return "best";
  const ChooseOptions& o = table.question.options;
  if (!std::ranges::count(choose::keeping(table.candidates, o.most_loss), i)) return "over";
  return o.least_rate > 0 && !(candidate.speed && candidate.speed->low >= o.least_rate) ? "slow" : "keeps";
}

// The beginning of a cache's row: what it exposes in a window of the text and at the context.
results::Row row_of(const ChoiceQuestion& question, const std::string& spec) {
  results::Row row;
  row[results::kVariant] = spec;
  row[choose::kWindow] = row[results::kSeqLen] = question.window;
  ModelShape shape = question.shape;
  shape.max_tokens = question.window;
  measure::record_exposure(row, parse_layer_specs(spec), shape, {.length = question.window},
                           question.context_tokens);
  return row;
}

std::vector<results::Row> results_of(const ChoiceTable& table) {
  std::vector<results::Row> rows;
  for (size_t i = 0; i < table.candidates.size(); ++i) {
    const choose::Candidate& candidate = table.candidates[i];
    results::Row& row = rows.emplace_back();
    row = row_of(table.question, candidate.spec);
    row[choose::kBytes] = candidate.bytes;
    row[choose::kCalibrated] = candidate.calibrated.value;
    row[choose::kCalibrated.low] = candidate.calibrated.low();
    row[choose::kCalibrated.high] = candidate.calibrated.high();
    if (candidate.confirmed) {
      row[choose::kHeldOut] = candidate.confirmed->value;
      row[choose::kHeldOut.low] = candidate.confirmed->low();
      row[choose::kHeldOut.high] = candidate.confirmed->high();
      row[choose::kHeldOutBound] =
          choose::upper_bound(*candidate.confirmed, static_cast<int>(table.confirmed.size()));
    }
    if (candidate.speed) {
      row[choose::kUserRate] = candidate.speed->value;
      row[choose::kUserRate.low] = candidate.speed->low;
      row[choose::kUserRate.high] = candidate.speed->high;
    }
    row[choose::kAnswer] = answer_of(table, i);
  }
  rows.insert(rows.end(), table.untested.begin(), table.untested.end());
  return rows;
}

std::string users_text(const ChoiceQuestion& question) {
  const int users = question.options.users;
  return std::to_string(users) + (users == 1 ? " user" : " users") + " of " +
         tables::grouped(question.context_tokens) + " tokens";
}

// "8 windows of 1,024 tokens"
std::string windows_text(const ChoiceQuestion& question) {
  return std::to_string(question.windows) + (question.windows == 1 ? " window" : " windows") + " of " +
         tables::grouped(question.window) + " tokens";
}

io::TextTable text_table(const ChoiceTable& table, io::Units units) {
  const ChoiceQuestion& question = table.question;
  const ChooseOptions& o = question.options;
  const choose::Candidate& first = table.candidates[table.choice.best.front()];
  io::TextTable text;
  text.title = first.spec + " keeps " + std::filesystem::path(o.model).stem().string() + " within " +
               nats(o.most_loss) + " nats of the full f32 cache at " + tables::grouped(question.window) +
               " tokens, in " + io::human_bytes(first.bytes, units) + " for " + users_text(question);
  text.facts = "On held-out text it loses " + with_ends(*first.confirmed) + " nats in " +
               windows_text(question) + "; at this length, the true losses of all " +
               std::to_string(table.confirmed.size()) +
               " confirmed caches are together below their bounds with 95 % confidence.";
  if (first.speed)
    text.facts += " Each user gets " + rate_text(*first.speed) + " tokens per second on this machine.";
  if (const std::string commands = peers::commands_of(parse_layer_specs(first.spec)); !commands.empty())
    text.facts += " In an engine: " + commands + ".";
  if (table.choice.best.size() > 1)
    text.facts += " It has the fewest bytes of those that are statistically tied with the best.";
  if (const choose::Candidate& fewest = table.candidates[*table.choice.fewest]; &fewest != &first) {
    text.facts += " The smallest that keeps the limit is " + fewest.spec + ": it takes " +
                  io::human_bytes(fewest.bytes, units) + " and loses " + with_ends(*fewest.confirmed) +
                  " nats.";
  }
  text.corner = "cache";
  text.heads = {{"bytes"}, {"calibrated, nats", "(95 %)"}, {"held out, nats", "(95 %)"},
                {"bound"}, {"tokens/s", "(95 %)"},         {"answer"}};
  std::vector<size_t> order = table.choice.best;
  for (size_t i = 0; i < table.candidates.size(); ++i)
    if (!std::ranges::count(table.choice.best, i)) order.push_back(i);
  for (const size_t i : order) {
    const choose::Candidate& c = table.candidates[i];
    const int together = static_cast<int>(table.confirmed.size());
    // Lists of layers are longer than a line.
    const std::string label = c.spec.size() <= kLongestLabel ? c.spec : "by layers " + text.footnote(c.spec);
    text.rows.push_back({.label = label,
                         .fields = {{io::human_bytes(c.bytes, units)},
                                    {with_ends(c.calibrated)},
                                    {c.confirmed ? with_ends(*c.confirmed) : "-"},
                                    {c.confirmed ? nats(choose::upper_bound(*c.confirmed, together)) : "-"},
                                    {c.speed ? rate_text(*c.speed) : "-"},
                                    {answer_of(table, i)}}});
  }
  text.notes.push_back({"", "All caches were measured on the first " + windows_text(question) +
                                " of the text, the best again on as many that follow" +
                                (question.window < question.context_tokens
                                     ? "; losses at contexts longer than a window are not measured"
                                     : "") +
                                ". A report of these runs: kvlab plot " + question.folder.string() +
                                "/*/ --out PAGE"});
  for (const results::Row& row : table.untested)
    text.notes.push_back({"", "Left out: " + row[results::kVariant] + ", " + measure::untested_text(row)});
  if (!question.left_out.empty())
    text.notes.push_back({"", "Left out because of --minutes: " + question.left_out});
  return text;
}

// A size as --memory takes it, no smaller than `bytes`.
std::string memory_for(int64_t bytes) {
  const bool small = bytes < (int64_t{16} << 20);
  const int64_t unit = small ? 1024 : int64_t{1} << 20;
  return "--memory " + std::to_string((bytes + unit - 1) / unit) + (small ? "KiB" : "MiB");
}

std::string refusal(const ChoiceQuestion& question) {
  return "no cache loses at most " + nats(question.options.most_loss) + " nats in " +
         question.options.memory + " for " + users_text(question) + ": ";
}

[[noreturn]] void refuse_memory(const ChoiceQuestion& question,
                                std::span<const choose::Candidate> candidates) {
  std::filesystem::remove_all(question.folder);
  const choose::Candidate& smallest = *std::ranges::min_element(candidates, {}, &choose::Candidate::bytes);
  throw std::invalid_argument(refusal(question) + "the smallest, " + smallest.spec + ", takes " +
                              io::human_bytes(smallest.bytes) + ". Give " + memory_for(smallest.bytes) +
                              " or more, fewer --users or a shorter --context");
}

// The full cache and these.
std::vector<std::string> specs_to_read(std::span<const choose::Candidate> candidates) {
  std::vector<std::string> specs{"contiguous"};
  for (const choose::Candidate& c : candidates) specs.push_back(c.spec);
  return specs;
}

bool any_fits(const ChoiceQuestion& question, std::span<const choose::Candidate> candidates) {
  return std::ranges::any_of(candidates, [&](const auto& c) { return c.bytes <= question.memory_bytes; });
}

// Takes the candidates that the windows are too short for: their rows. Throws std::invalid_argument where only such fit.
std::vector<results::Row> take_untested(const ChoiceQuestion& question,
                                        std::vector<choose::Candidate>& candidates) {
  std::vector<results::Row> untested;
  std::erase_if(candidates, [&](const choose::Candidate& c) {
    results::Row row = row_of(question, c.spec);
    if (!measure::is_untested(row)) return false;
    row[choose::kBytes] = c.bytes;
    row[choose::kAnswer] = results::kUntestedVerdict;
    untested.push_back(std::move(row));
    return true;
  });
  if (any_fits(question, candidates)) return untested;
  throw std::invalid_argument(refusal(question) + untested.back()[results::kVariant] + " is " +
                              measure::untested_text(untested.back()) + ". Give --window " +
                              std::to_string(question.context_tokens) + ", or more --minutes or --memory");
}

// What would have to give where caches that fit lose too much.
[[noreturn]] void refuse_loss(const ChoiceQuestion& question, std::span<const choose::Candidate> candidates) {
  const choose::Candidate* nearest = nullptr;  // of those that fit
  const choose::Candidate* larger = nullptr;   // the fewest bytes that keep the limit by the calibration
  const auto loss_of = [](const choose::Candidate& c) { return c.confirmed.value_or(c.calibrated); };
  for (const choose::Candidate& c : candidates) {
    if (c.bytes <= question.memory_bytes) {
      if (!nearest || loss_of(c).value < loss_of(*nearest).value) nearest = &c;
    } else if (c.calibrated.high() <= question.options.most_loss && (!larger || c.bytes < larger->bytes)) {
      larger = &c;
    }
  }
  throw std::invalid_argument(refusal(question) + nearest->spec + " loses " + with_ends(loss_of(*nearest)) +
                              ". " +
                              (larger ? "Give " + memory_for(larger->bytes) + " for " + larger->spec + ", or"
                                      : "Give more --windows, if its interval is wide, or") +
                              " a larger --max-loss");
}

// Where caches keep the loss and not the speed.
[[noreturn]] void refuse_speed(const ChoiceQuestion& question, std::span<const choose::Candidate> candidates,
                               const Speeds& speeds) {
  const choose::Candidate* fastest = nullptr;
  for (const choose::Candidate& c : candidates) {
    if (c.speed && (!fastest || c.speed->value > fastest->speed->value)) fastest = &c;
  }
  throw std::invalid_argument(
      "no cache confirmed to lose at most " + nats(question.options.most_loss) + " nats gives " +
      users_text(question) + " " + io::formatted("%g tokens per second each: ", question.options.least_rate) +
      (fastest ? "the fastest, " + fastest->spec + ", gives " + rate_text(*fastest->speed)
               : "none could be timed, " + speeds.missing) +
      ". Give a smaller --tokens-per-second, fewer --users, a shorter --context or a larger --max-loss");
}

// Gives those that keep the limit their speeds. Throws std::invalid_argument where none does.
Speeds time_those_that_keep(const ChoiceQuestion& question, std::span<choose::Candidate> candidates) {
  const std::vector<size_t> keeping = choose::keeping(candidates, question.options.most_loss);
  if (keeping.empty()) refuse_loss(question, candidates);
  std::vector<std::string> timed;
  for (const size_t i : keeping) timed.push_back(candidates[i].spec);
  const Speeds speeds = speeds_of(question, timed);
  for (choose::Candidate& c : candidates) {
    if (speeds.by_spec.contains(c.spec)) c.speed = speeds.by_spec.at(c.spec);
  }
  return speeds;
}

ChoiceQuestion question_of(const ChooseOptions& o) {
  const std::optional<int64_t> tokens = io::parse_token_count(o.context);
  if (!tokens || *tokens < 1)
    throw std::invalid_argument("--context: '" + o.context + "' is not a number of tokens; write 8192 or 8K");
  const int64_t memory_bytes = io::parse_bytes(o.memory, "--memory");
  const int64_t window = o.window > 0 ? o.window : *tokens;
  if (const int fewest = fewest_windows(window); o.windows > 0 && o.windows < fewest)
    throw std::invalid_argument("--windows " + std::to_string(o.windows) + " of " + std::to_string(window) +
                                " tokens are too few for a bound; give " + std::to_string(fewest) +
                                " or more");
  const std::filesystem::path folder = folder_for(o.runs, "choose");
  results::require_new_folder(folder);
  std::filesystem::create_directories(folder);
  return {o,        *tokens, memory_bytes, folder, window, o.windows > 0 ? o.windows : usual_windows(window),
          o.mixture};
}

}  // namespace

void add_options(CLI::App& app, ChooseOptions& options) {
  const CLI::Validator positive(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return good ? std::string() : "'" + text + "' is not a positive number";
      },
      "");
  app.add_option("--model", options.model,
                 "as in workload.model: a name of `kvlab models`, a GGUF file or a folder")
      ->required();
  app.add_option("--tokenizer", options.tokenizer, "as in workload.tokenizer");
  app.add_option("--text", options.text, "text to measure on (default: Python's documentation)");
  app.add_option("--context", options.context, "tokens of each user, e.g. 8K")->required();
  app.add_option("--memory", options.memory, "memory for all caches, without the weights, e.g. 600MiB")
      ->required();
  app.add_option("--users", options.users, "users at once (default: 1)")->check(CLI::Range(1, 65536));
  app.add_option("--max-loss", options.most_loss,
                 "largest loss above the full f32 cache's, in nats (default: 0.01)")
      ->check(positive);
  app.add_option("--tokens-per-second", options.least_rate,
                 "least tokens per second for each user at the context, on this machine (default: any)")
      ->check(positive);
  app.add_option("--minutes", options.minutes,
                 "time for measuring, without downloads; takes fewer or shorter windows, or no mixture "
                 "(default: any)")
      ->check(positive);
  app.add_option("--window", options.window,
                 "tokens of a window of the text, the length that the answer is for (default: --context)")
      ->check(CLI::Range(2, 1 << 24));
  app.add_option("--windows", options.windows,
                 "windows to measure on, and as many to confirm on (default: 8192 tokens in all)")
      ->check(CLI::Range(1, 4096));
  app.add_flag(
      "--mixture", options.mixture,
      "also try formats per layer, which a solver chooses after measuring each alone (takes longer)");
  app.add_option("--for", options.engine, "an engine of `kvlab list`: try only caches that it supports");
  app.add_option("--runs", options.runs, "new folder for all runs (default: in results/local)");
  add_output_options(app, options.output);
}

int choose(const ChooseOptions& options) {
  const peers::Engine* engine = options.engine.empty() ? nullptr : &peers::engine_named(options.engine);
  options.output.refuse_existing();
  ChoiceQuestion question = question_of(options);
  watch_signals();
  Reading calibration{"calibration", &experiments::kQuality, question.window, question.windows, 0, {}};
  Reading confirmation{"confirmation",   &experiments::kQuality, question.window,
                       question.windows, question.windows,       specs_to_read({})};
  // The confirmation needs the longer text, which is better known before the calibration.
  const ModelShape shape = question.shape = shape_at(question, confirmation);
  const std::vector<int64_t> lengths(static_cast<size_t>(options.users), question.context_tokens);

  std::vector<choose::Candidate> candidates;
  const auto add = [&](const std::string& spec) {
    const LayerSpecs specs = parse_layer_specs(spec);
    candidates.push_back({specs.print(), predicted_bytes(specs, shape, lengths)});
  };
  for (const std::string& spec : choose::candidate_specs(shape, engine)) add(spec);
  if (candidates.empty()) {
    std::filesystem::remove_all(question.folder);
    throw std::invalid_argument("--for " + options.engine +
                                ": it has no cache that keeps every token, as a choice must");
  }
  if (!any_fits(question, candidates)) refuse_memory(question, candidates);
  calibration.specs = specs_to_read(candidates);
  if (options.minutes > 0) {
    if (!fit_into_minutes(question, calibration, kMostConfirmed)) return kStopped;
    if (!question.left_out.empty())
      std::fprintf(stderr, "kvlab: left out because of --minutes: %s\n", question.left_out.c_str());
    calibration.window = confirmation.window = question.window;
    calibration.windows = confirmation.windows = confirmation.first_window = question.windows;
  }
  if (question.mixture) {
    const choose::LayerLosses alone = losses_by_layer(question);
    if (alone.empty()) return kStopped;
    const auto mixture = choose::mixture_spec(alone, shape, lengths, question.memory_bytes);
    if (mixture && std::ranges::count(calibration.specs, *mixture) == 0) add(*mixture);
  }
  const std::vector<results::Row> untested = take_untested(question, candidates);
  calibration.specs = specs_to_read(candidates);
  const auto calibrated = losses(question, calibration);
  if (calibrated.empty()) return kStopped;
  std::erase_if(candidates, [&](const choose::Candidate& c) { return !calibrated.contains(c.spec); });
  for (choose::Candidate& c : candidates) c.calibrated = calibrated.at(c.spec);

  const std::vector<size_t> confirmed =
      choose::to_confirm(candidates, question.memory_bytes, options.most_loss, kMostConfirmed);
  for (const size_t i : confirmed) confirmation.specs.push_back(candidates[i].spec);
  const auto held_out = losses(question, confirmation);
  if (held_out.empty()) return kStopped;
  for (const size_t i : confirmed) candidates[i].confirmed = held_out.at(candidates[i].spec);

  const Speeds speeds = time_those_that_keep(question, candidates);
  if (!speeds.finished) return kStopped;
  const choose::Choice choice = choose::choice_of(candidates, options.most_loss, options.least_rate);
  if (choice.best.empty()) refuse_speed(question, candidates, speeds);
  Document document(options.output, choose::kChoiceTable);
  document.add(ChoiceTable{question, candidates, confirmed, choice, untested});
  std::fputs(io::printable(options.output.deliver(document.text())).c_str(), stdout);
  return 0;
}

}  // namespace kv::cli
