#include "harness/cli/commands.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <stdexcept>

#include "harness/answers/conclusion.h"
#include "harness/claims/claims.h"
#include "harness/claims/claims_table.h"
#include "harness/claims/reproduce.h"
#include "harness/cli/compare.h"
#include "harness/cli/document.h"
#include "harness/cli/dry_run.h"
#include "harness/cli/progress.h"
#include "harness/cli/summary.h"
#include "harness/experiments/driver.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/loss_by_position.h"
#include "harness/io/bytes.h"
#include "harness/io/json.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/io/python.h"
#include "harness/io/text.h"
#include "harness/measure/prediction_columns.h"
#include "harness/results/append_file.h"
#include "harness/results/results_folder.h"
#include "harness/results/table.h"

namespace kv::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;

void on_signal(int) {
  if (g_stop) std::_Exit(kStopped);  // second request
  g_stop = 1;
}

bool any_is(results::Status status, std::span<const results::Row> cells) {
  return std::ranges::any_of(cells, [&](const auto& cell) { return cell[results::kStatus] == status; });
}

// Draws what was measured. Returns the exit code: outputs may have failed verification, and nothing may have been measured.
int finish(std::span<const results::Row> cells, const std::string& folder, bool draws, std::FILE* said) {
  if (!cells.empty() && !any_is(results::Status::kOk, cells) && !any_is(results::Status::kFailed, cells)) {
    const results::Row& first = cells.front();
    const std::string why = "none of " + std::to_string(cells.size()) + " cells was measured; the first, '" +
                            first[results::kCell] + "', is " + results::text_of(first[results::kStatus]) +
                            ": " + first[results::kReason];
    std::fprintf(stderr, "kvlab: %s\n", io::as_message(why).c_str());
    return kUserError;
  }
  const int drawn = draws ? draw(folder, said) : 0;
  return any_is(results::Status::kFailed, cells) ? kCellFailed : drawn;
}

}  // namespace

std::filesystem::path folder_for(const std::string& asked, const std::string& name) {
  if (!asked.empty()) return asked;
  const std::time_t now = std::time(nullptr);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", std::localtime(&now));
  return io::project_home() / "results" / "local" / (name + "-" + stamp);
}

// On a stack of its own: a handler's frame, kilobytes with AVX-512's registers, on the stack of oneDNN's generated products left a broken
// heap behind (oneDNN 2.7: 5 of 60 interrupted runs of `serve`; so, none of 120).
void watch_signals() {
  static std::array<std::byte, 1 << 16> stack;
  const stack_t own{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&own, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool is_stopped() { return g_stop != 0; }

// Python draws the charts; the launcher passes its path, or why there is none.
int draw(const std::string& out, std::FILE* said) {
  const char* python = std::getenv("KVLAB_PYTHON");
  if (!python || !*python) {
    if (const char* why = std::getenv("KVLAB_NO_PYTHON"))
      std::fprintf(stderr, "charts: not drawn, the Python packages could not be installed: %s\n",
                   io::printable(why).c_str());
    std::fprintf(stderr, "charts: `kvlab plot %s` draws them\n", out.c_str());
    return 0;
  }
  std::string lines;
  const int code = io::run_python("plots/report.py", {out}, &lines);
  std::fputs(lines.c_str(), said);
  if (code >= 0) return code;
  std::fprintf(stderr, "charts: cannot run %s\n", python);
  return kUserError;
}

int run(const RunOptions& options) {
  if (options.dry_run) io::make_nothing();
  const config::Config sweep = experiments::load_config(options.config, options.overrides);
  const experiments::Shard shard =
      options.shard.empty() ? experiments::Shard{} : experiments::parse_shard(options.shard);
  if (options.list_shards > 0) {
    std::fputs(shards_listing(sweep, options.list_shards).c_str(), stdout);
    return 0;
  }
  if (options.resume && options.out.empty())
    throw std::invalid_argument("--resume needs --out with the folder of the interrupted run");
  const std::filesystem::path folder = folder_for(options.out, sweep.name);
  if (options.dry_run) {
    std::fputs(io::printable(dry_run({sweep, shard, folder, options.resume}, options.json)).c_str(), stdout);
    return 0;
  }
  watch_signals();
  Progress progress;
  const experiments::RunOutcome outcome = experiments::run_config(
      sweep, {.out = folder,
              .resume = options.resume,
              .shard = shard,
              .stop = is_stopped,
              .note = [&](const std::string& line) { progress.note(line); },
              .progress = [&](int done, int total, const std::string& what, double weight,
                              double all) { progress.update(done, total, what, weight, all); }});
  progress.clear();
  if (!outcome.cells.empty()) answers::write_answers(folder);
  std::fputs(options.json ? summary_json(outcome.cells, folder.string(), outcome.finished).c_str()
                          : summary_text(outcome.cells, folder.string(), options.full).c_str(),
             stdout);
  std::FILE* const said = options.json ? stderr : stdout;
  if (!outcome.finished) {
    std::fprintf(said,
                 "\nStopped. Finished measurements are in %s. To continue, repeat the command with --out %s "
                 "--resume.\n",
                 folder.string().c_str(), folder.string().c_str());
    return kStopped;
  }
  if (options.out.empty() && !options.json) compare_with_last(folder);
  std::fprintf(said, "\nresults: %s\n", folder.string().c_str());
  std::fflush(stdout);
  // A shard is only a part, which may have nothing to measure: `kvlab merge` comes first.
  if (shard.of > 1) return any_is(results::Status::kFailed, outcome.cells) ? kCellFailed : 0;
  return finish(outcome.cells, folder.string(), !options.no_plots, said);
}

std::string summary_text(std::span<const results::Row> cells, const std::string& folder, bool full) {
  const std::filesystem::path positions = std::filesystem::path(folder) / measure::kPositions.file;
  const std::string by_position =
      std::filesystem::exists(positions)
          ? experiments::loss_by_position(cells, results::read_csv(positions, measure::kPositions))
          : "";
  return io::printable(summary(cells, {.full = full,
                                       .width = summary_width(),
                                       .more = "kvlab summary " + folder + " --table full",
                                       .also = by_position}));
}

int print_summary(const SummaryCommand& options) {
  if (options.answers) {
    std::fputs(answers::answers_json(options.folder).c_str(), stdout);
    return 0;
  }
  const std::vector<results::Row> cells = answers::read_cells(options.folder);
  try {
    answers::write_answers(options.folder);
  } catch (const results::WriteError& error) {
    std::fprintf(stderr, "kvlab: %s\n", io::as_message(error.what()).c_str());
  }
  const nlohmann::json environment = results::environment_in(options.folder);
  const bool finished = !io::text_at(environment, "/finished").empty();
  std::fputs(options.json ? summary_json(cells, options.folder, finished).c_str()
                          : summary_text(cells, options.folder, options.full).c_str(),
             stdout);
  return 0;
}

int eval(const EvalOptions& options) {
  if (!options.example.empty()) {
    write_example_dump(options.example);
    std::printf("dump: %s\ntry: kvlab eval %s --variants 'contiguous/f16;paged/q8_0' --out my-eval\n",
                options.example.c_str(), options.example.c_str());
    return 0;
  }
  const std::vector<results::Row> cells = run_eval(options);
  answers::write_answers(options.out);
  for (const results::Row& cell : cells) {
    if (cell[results::kStatus] == results::Status::kOk) continue;
    const std::string status = results::text_of(cell[results::kStatus]);
    std::fprintf(
        stderr, "%s\n",
        io::as_message(cell[results::kCell] + ": " + status + ": " + cell[results::kReason]).c_str());
  }
  std::printf("%s\nresults: %s\n", summary_text(cells, options.out, false).c_str(), options.out.c_str());
  std::fflush(stdout);
  return finish(cells, options.out, !options.no_plots, stdout);
}

int reproduce(const ReproduceOptions& options) {
  if (options.list) {
    std::fputs(io::printable(claims::claims_list(options.names)).c_str(), stdout);
    return 0;
  }
  const std::vector<claims::ClaimFile> files = claims::choose_claims(options.names);
  const std::filesystem::path folder = folder_for(options.out, "reproduce");
  watch_signals();
  std::unique_ptr<Progress> progress;
  const claims::Reproduction result =
      claims::reproduce(files, {.out = folder,
                                .quick = options.quick,
                                .tables = options.tables,
                                .threads = options.threads,
                                .workload = options.workload,
                                .measured_up_to = io::parse_bytes(options.measure, "--measure"),
                                .stop = is_stopped,
                                .note = [&](const std::string& line) { progress->note(line); },
                                .progress =
                                    [&](const std::string& run) {
                                      if (progress) progress->clear();
                                      progress = std::make_unique<Progress>();
                                      return [&progress, run](int done, int total, const std::string& what,
                                                              double weight, double all) {
                                        progress->update(done, total, run + ": " + what, weight, all);
                                      };
                                    }});
  if (progress) progress->clear();
  if (!result.finished) {
    std::printf("Stopped. Claims are checked once everything is measured: repeat the command with --out %s\n",
                folder.string().c_str());
    return kStopped;
  }
  const std::string text = options.tables ? claims::source_tables(result.figures, terminal_width())
                                          : claims::claims_table(result.figures);
  std::printf("%s\nresults: %s\n", io::printable(text).c_str(), folder.string().c_str());
  std::fflush(stdout);
  const int drawn = options.no_plots ? 0 : draw(folder.string());
  return result.any_failed ? kCellFailed : drawn;
}

}  // namespace kv::cli
