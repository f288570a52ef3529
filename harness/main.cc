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
#include <new>

#include "harness/config.h"
#include "harness/driver.h"
#include "harness/eval.h"
#include "harness/listing.h"
#include "harness/pairs.h"
#include "harness/paths.h"
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
                   "llama2.c weights: measure on a real model's K and V");
    app.add_option("--tokenizer", overrides.workload.tokenizer, "llama2.c tokenizer of that model");
    app.add_option("--text", overrides.workload.text, "what the model reads");
    app.add_flag("--resume", resume, "go on with an interrupted run in --out");
    app.add_flag("--no-plots", no_plots, "leave the charts out");
  }

  int run() const {
    const Config config_ = load_config(config, overrides);
    if (resume && out.empty())
      throw std::invalid_argument("--resume needs --out with the folder of the interrupted run");
    const std::filesystem::path folder = out.empty() ? default_out(config_.name) : std::filesystem::path(out);
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
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
  bool pairs = false;
  list->add_flag("--pairs", pairs, "which placements, codecs and retentions work together, as Markdown");
  RunCommand run_command(*run);
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
    if (*list) std::fputs((pairs ? pairs_page() : listing()).c_str(), stdout);
    if (*eval) {
      const std::vector<Row> cells = run_eval(eval_options);
      std::printf("%s\nresults: %s\n", summary_table(cells).c_str(), eval_options.out.c_str());
      code = any_failed(cells) ? kCellFailed : 0;
    }
    if (*run) code = run_command.run();
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
