// The command line. Exit codes: 0 done, 1 some cell failed its verification, 2 something for the user to set
// right, 130 stopped.
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <new>

#include "harness/claims_text.h"
#include "harness/config.h"
#include "harness/driver.h"
#include "harness/environment.h"
#include "harness/eval.h"
#include "harness/generate.h"
#include "harness/listing.h"
#include "harness/logits.h"
#include "harness/pairs.h"
#include "harness/paths.h"
#include "harness/reproduce.h"
#include "harness/tables.h"
#include "harness/terminal.h"
#include "harness/version.h"

extern char** environ;

namespace {

using namespace kv;

constexpr int kCellFailed = 1, kUserError = 2, kStopped = 130;

volatile std::sig_atomic_t g_stop = 0;

void on_signal(int) {
  if (g_stop) std::_Exit(kStopped);  // asked twice
  g_stop = 1;
}

void watch_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

// The charts are Python's; the launcher says where it is.
int draw(const std::string& out) {
  const char* python = std::getenv("KVLAB_PYTHON");
  if (!python || !*python) {
    std::fprintf(stderr, "charts: `kvlab plot %s` draws them\n", out.c_str());
    return 0;
  }
  std::string interpreter = python, script = (project_home() / "plots" / "report.py").string(), folder = out;
  char* argv[] = {interpreter.data(), script.data(), folder.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, python, nullptr, nullptr, argv, environ) != 0) {
    std::fprintf(stderr, "charts: cannot run %s\n", python);
    return kUserError;
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

bool any_failed(const std::vector<Row>& cells) {
  return std::any_of(cells.begin(), cells.end(),
                     [](const Row& cell) { return cell.text("status") == "failed"; });
}

std::filesystem::path default_out(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", std::localtime(&now));
  return project_home() / "results" / "local" / (name + "-" + stamp);
}

struct RunCommand {
  std::string config, out;
  Overrides overrides;
  bool resume = false, no_plots = false;

  explicit RunCommand(CLI::App& app) {
    app.add_option("config", config, "a sweep config, as configs/quickstart.toml")->required();
    app.add_option("--set", overrides.set, "override a key: --set sweep.seq_len=[256,512]")
        ->allow_extra_args(false);
    app.add_option("--out", out, "results folder (default: results/local/NAME-TIME in the project folder)");
    app.add_option("--seed", overrides.seed, "seed of the synthetic workloads")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--threads", overrides.threads, "threads (default: one a core)")
        ->check(CLI::Range(1, 4096));
    app.add_option("--isa", overrides.isa,
                   "instruction set of the kernels; `kvlab list` shows this machine's");
    app.add_option("--device", overrides.device, "where caches live: cpu or cuda");
    app.add_option("--model", overrides.workload.model,
                   "llama2.c weights or a Hugging Face folder: measure on a real model's K and V");
    app.add_option("--tokenizer", overrides.workload.tokenizer,
                   "llama2.c tokenizer of that model; none for token ids");
    app.add_option("--text", overrides.workload.text,
                   "what the model reads: text, or token ids (.npy, .u16, .u32)");
    app.add_flag("--resume", resume, "go on with an interrupted run in --out");
    app.add_flag("--no-plots", no_plots, "leave the charts out");
  }

  int run() const {
    const Config config_ = load_config(config, overrides);
    if (resume && out.empty())
      throw std::invalid_argument("--resume needs --out with the folder of the interrupted run");
    const std::filesystem::path folder = out.empty() ? default_out(config_.name) : std::filesystem::path(out);
    watch_signals();
    Progress progress;
    const RunOutcome outcome = run_config(
        config_, {.out = folder,
                  .resume = resume,
                  .stop = [] { return g_stop != 0; },
                  .note = [&](const std::string& line) { progress.note(line); },
                  .progress = [&](int done, int total, const std::string& what, double weight,
                                  double all) { progress.update(done, total, what, weight, all); }});
    progress.clear();
    std::fputs(summary_table(outcome.cells).c_str(), stdout);
    if (!outcome.finished) {
      std::printf("\nstopped; what is finished is in %s: the same command with --out %s --resume goes on\n",
                  folder.string().c_str(), folder.string().c_str());
      return kStopped;
    }
    std::printf("\nresults: %s\n", folder.string().c_str());
    std::fflush(stdout);
    const int drawn = no_plots ? 0 : draw(folder.string());
    return any_failed(outcome.cells) ? kCellFailed : drawn;
  }
};

struct ReproduceCommand {
  std::vector<std::string> names;
  std::string out;
  bool quick = false, no_plots = false;
  int threads = 0;

  explicit ReproduceCommand(CLI::App& app) {
    app.add_option("name", names,
                   "claim files of configs/claims, as 003 or 003/update, or a path (default: all)");
    app.add_option("--out", out,
                   "results folder (default: results/local/reproduce-TIME in the project folder)");
    app.add_option("--threads", threads, "threads (default: one a core)")->check(CLI::Range(1, 4096));
    app.add_flag("--quick", quick, "leave out what is timed: verdicts that do not depend on the machine");
    app.add_flag("--no-plots", no_plots, "leave the report out");
  }

  int run() const {
    const std::vector<ClaimFile> files = choose_claims(names);
    const std::filesystem::path folder = out.empty() ? default_out("reproduce") : std::filesystem::path(out);
    watch_signals();
    std::unique_ptr<Progress> progress;
    const Reproduction result =
        reproduce(files, {.out = folder,
                          .quick = quick,
                          .threads = threads,
                          .stop = [] { return g_stop != 0; },
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
      std::printf("stopped; nothing is checked before everything is measured\n");
      return kStopped;
    }
    std::printf("%s\nresults: %s\n", claims_table(files, result.figures).c_str(), folder.string().c_str());
    std::fflush(stdout);
    const int drawn = no_plots ? 0 : draw(folder.string());
    return result.any_failed ? kCellFailed : drawn;
  }
};

void add_options(CLI::App& tables, TablesOptions& options) {
  tables
      .add_option(
          "--model", options.models,
          "presets (`kvlab list --models`) or config.json files, separated by ',' (default: llama-3-8b)")
      ->delimiter(',');
  tables.add_option("--variants", options.variants, "specs, separated by ';'");
  tables.add_option("--lengths", options.lengths, "tokens: 1024,4096, or 1024..131072 for each doubling");
  tables.add_option("--batch", options.batch, "sequences of each length (default: 1)")
      ->check(CLI::Range(1, 65536));
  tables.add_option(
      "--measure", options.measure,
      "build, fill and count caches up to this size (default: 256MiB); larger ones are computed");
  tables.add_option("--budget", options.budget, "what fits into 16GiB (or 16GB), instead of how caches grow");
  tables.add_option("--weights", options.weights,
                    "of the budget, as in 13.5GB (default: as the model's file has it)");
  tables.add_option("--units", options.units, "binary (GiB) or decimal (GB)")
      ->check(CLI::IsMember({"binary", "decimal"}));
  tables
      .add_option("--format", options.format,
                  "terminal, csv, markdown or latex (default: by the name of --out, else terminal)")
      ->check(CLI::IsMember({"terminal", "csv", "markdown", "latex"}));
  tables.add_option("--out", options.out,
                    "file, as table.csv, table.md or table.tex (default: standard output)");
}

}  // namespace

int main(int argc, char** argv) {
  // A file that may not grow is then an error like a full disk, and not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("kvlab: measures KV caches, and what they cost a model", "kvlab");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("kvlab: ") + error.what() + " (--help shows how)\n";
  });
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "measure what a config says, then draw the charts");
  CLI::App* eval = app.add_subcommand("eval", "run your own tensors (safetensors) through variants");
  CLI::App* list = app.add_subcommand("list", "show variants, configs, workloads and metrics");
  CLI::App* claims = app.add_subcommand("reproduce", "check published claims, each with a verdict");
  CLI::App* environment =
      app.add_subcommand("environment", "print what env.json says of the machine and the build");
  CLI::App* sample = app.add_subcommand("sample", "print what a model writes, with the full f32 cache");
  SampleOptions sample_options;
  sample->add_option("--model", sample_options.model, "the model")->required();
  sample->add_option("--tokenizer", sample_options.tokenizer, "its tokenizer")->required();
  sample->add_option("--documents", sample_options.documents, "how many")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sample->add_option("--tokens", sample_options.tokens, "of each document")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sample->add_option("--prompt", sample_options.prompt, "what each document begins with");
  sample->add_option("--temperature", sample_options.temperature, "0 is greedy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sample->add_option("--seed", sample_options.seed, "of the draws")->capture_default_str();
  CLI::App* logits = app.add_subcommand("logits", "a model's logits for a text, as safetensors");
  LogitsOptions logits_options;
  logits->add_option("--model", logits_options.model, "the model")->required();
  logits->add_option("--tokenizer", logits_options.tokenizer, "its tokenizer; none for token ids");
  logits->add_option("--text", logits_options.text, "text, or token ids (.npy, .u16, .u32)")->required();
  logits->add_option("--out", logits_options.out, "the file to write")->required();
  CLI::App* tables =
      app.add_subcommand("tables", "how models' caches grow, and what fits into a budget of memory");
  bool pairs = false, models = false;
  list->add_flag("--pairs", pairs, "which placements, codecs and retentions work together, as Markdown");
  list->add_flag("--models", models, "the models of configs/models and what they keep");
  TablesOptions tables_options;
  add_options(*tables, tables_options);
  RunCommand run_command(*run);
  ReproduceCommand reproduce_command(*claims);
  EvalOptions eval_options;
  eval->add_option("dump", eval_options.dump,
                   "q [layers, q_heads, n, head_dim], k and v [layers, kv_heads, n, head_dim]")
      ->required();
  eval->add_option("--variants", eval_options.variants, "specs, separated by ';'")->required();
  eval->add_option("--prompt", eval_options.prompt, "tokens that come as one causal prefill")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--out", eval_options.out, "results folder")->required();
  eval->add_option("--threads", eval_options.threads, "threads (default: one a core)")
      ->check(CLI::Range(1, 4096));
  eval->add_option("--isa", eval_options.isa, "instruction set of the kernels");
  eval->add_option("--device", eval_options.device, "where caches live: cpu or cuda");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUserError;
  }
  try {
    int code = 0;
    if (*list) std::fputs((pairs ? pairs_page() : models ? model_listing() : listing()).c_str(), stdout);
    if (*tables) std::fputs(run_tables(tables_options).c_str(), stdout);
    if (*environment) std::printf("%s\n", describe_environment().dump(2).c_str());
    if (*logits) write_logits(logits_options);
    if (*sample) std::fputs(sample_documents(sample_options).c_str(), stdout);
    if (*eval) {
      const std::vector<Row> cells = run_eval(eval_options);
      std::printf("%s\nresults: %s\n", summary_table(cells).c_str(), eval_options.out.c_str());
      code = any_failed(cells) ? kCellFailed : 0;
    }
    if (*run) code = run_command.run();
    if (*claims) code = reproduce_command.run();
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw std::runtime_error("cannot write to standard output");
    return code;
  } catch (const std::logic_error& e) {
    // invalid_argument is the user's; any other logic_error is a bug of ours, and says so.
    const bool user = dynamic_cast<const std::invalid_argument*>(&e) != nullptr;
    std::fprintf(stderr, "kvlab: %s%s\n", user ? "" : "internal error: ", e.what());
    return user ? kUserError : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "kvlab: out of memory\n");
    return kUserError;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kvlab: %s\n", e.what());
    return kUserError;
  }
}
