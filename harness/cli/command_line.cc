#include "harness/cli/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/calibrate.h"
#include "harness/cli/choose.h"
#include "harness/cli/cluster.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare.h"
#include "harness/cli/completion.h"
#include "harness/cli/eval.h"
#include "harness/cli/examples.h"
#include "harness/cli/listing.h"
#include "harness/cli/plan.h"
#include "harness/cli/tables.h"
#include "harness/cli/typos.h"
#include "harness/experiments/sample_documents.h"
#include "harness/experiments/shard.h"
#include "harness/io/json.h"
#include "harness/io/text.h"
#include "harness/measure/environment.h"
#include "harness/model/logits.h"
#include "harness/version.h"

namespace kv::cli {
namespace {

struct CompletionOptions {
  std::string shell;
};

// A command that the launcher carries out before this program starts.
struct LauncherCommand {
  const char *name, *help;
};
constexpr LauncherCommand kLauncherCommands[] = {
    {"plot", "draw the charts of earlier runs"},
    {"site", "make a static site of the results of any number of machines"},
    {"models", "models from Python packages: list, fetch NAME; convert makes a folder of llama2.c's files"},
    {"peers", "install other engines, which configs can compare with kvlab's caches"},
    {"gpu-check", "check the GPU kernels on this machine; needs nvcc and Python"},
    {"test", "build and run the tests, --all the slow ones too; options go to ctest"}};

struct ListOptions {
  std::string what;
  bool pairs = false, models = false, json = false;
};

void add_table_option(CLI::App& app, bool& full) {
  app.add_option_function<std::string>(
         "--table", [&full](const std::string& kind) { full = kind == "full"; },
         "short (the answer, and tables within 40 lines) or full (a table for every sweep point)")
      ->check(one_of({"short", "full"}));
}

void add_workload_options(CLI::App& app, config::WorkloadConfig& workload, const std::string& purpose) {
  app.add_option("--model", workload.model,
                 "a Hugging Face folder, a GGUF file, or a name of `kvlab models`, " + purpose);
  app.add_option("--tokenizer", workload.tokenizer, "its tokenizer.json (default: the model's)");
  app.add_option(
         "--text", workload.texts,
         "text for the model, or token ids (.npy, .u16, .u32); repeat it for a second text, read by itself")
      ->allow_extra_args(false);
}

void add_options(CLI::App& app, RunOptions& options) {
  app.add_option("config", options.config, "a sweep config, e.g. configs/quickstart.toml")->required();
  app.add_option("--set", options.overrides.set, "override a key: --set sweep.seq_len=[256,512]")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--server", [&](const std::string& url) { options.overrides.set.push_back("sweep.servers=" + url); },
         "also ask a running server for the answers of serve, as http://127.0.0.1:8080/v1")
      ->allow_extra_args(false);
  app.add_option("--out", options.out,
                 "results folder (default: results/local/NAME-TIME in the project folder)");
  app.add_option("--seed", options.overrides.seed, "seed of the synthetic workloads")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.overrides.threads, "threads (default: one per core)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--isa", options.overrides.isa,
                 "instruction set of the kernels; `kvlab list` shows this machine's");
  app.add_option("--arithmetic", options.overrides.arithmetic,
                 "exact, or int8: multiply queries and weights with the codes of q8_0 and q4_0 in 8 bits")
      ->check(one_of({"exact", "int8"}));
  app.add_option("--device", options.overrides.device, "device that holds the caches: cpu or cuda")
      ->check(one_of({"cpu", "cuda"}));
  add_workload_options(app, options.overrides.workload, "to measure on its K and V");
  app.add_flag("--resume", options.resume, "resume an interrupted run in --out");
  app.add_option("--shard", options.shard, "measure only the i-th of n parts of the sweep points, e.g. 2/4");
  app.add_option("--list-shards", options.list_shards,
                 "only list the points of this many shards, with estimated times")
      ->check(CLI::Range(1, experiments::kMostShards));
  app.add_flag("--dry-run", options.dry_run,
               "only list cells, memory, estimated time and downloads; write nothing");
  app.add_flag("--json", options.json, "print the summary, or the dry run, as JSON");
  app.add_flag("--no-plots", options.no_plots, "leave the charts out");
  add_table_option(app, options.full);
}

void add_options(CLI::App& app, ReproduceOptions& options) {
  app.add_option("name", options.names,
                 "claim files of configs/claims, e.g. 003 or 003/update, or a path (default: all)");
  app.add_flag("--list", options.list, "only list the claims that contain all words given as names");
  app.add_option("--out", options.out,
                 "results folder (default: results/local/reproduce-TIME in the project folder)");
  app.add_option("--threads", options.threads, "threads (default: one per core)")->check(CLI::Range(1, 4096));
  add_workload_options(app, options.workload, "instead of the models that these claims read");
  app.add_flag("--quick", options.quick,
               "skip timed claims: give only verdicts that do not depend on the machine");
  app.add_flag("--tables", options.tables,
               "show only the sources' own tables, with the computed and measured values in their cells");
  app.add_option("--measure", options.measure,
                 "build, fill and count caches up to this size (default: 1GiB); larger ones are computed");
  app.add_flag("--no-plots", options.no_plots, "leave the report out");
}

void add_options(CLI::App& app, SummaryCommand& options) {
  app.add_option("results", options.folder, "a results folder")->required();
  add_table_option(app, options.full);
  app.add_flag("--json", options.json, "print answers and cells as JSON");
  app.add_flag("--answers", options.answers,
               "print answers.json, from which charts and reports are drawn, and write nothing");
}

void add_options(CLI::App& app, experiments::SampleOptions& options) {
  app.add_option("--model", options.model, "the model")->required();
  app.add_option("--tokenizer", options.tokenizer, "its tokenizer.json (default: the model's)");
  app.add_option("--documents", options.documents, "number of documents")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens of each document")
      ->transform(token_count())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prompt", options.prompt, "beginning of each document");
  app.add_option("--temperature", options.temperature, "sampling temperature; 0 is greedy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of the draws")->capture_default_str();
}

void add_options(CLI::App& app, model::LogitsOptions& options) {
  app.add_option("--model", options.model, "the model")->required();
  app.add_option("--tokenizer", options.tokenizer, "its tokenizer.json (default: the model's)");
  app.add_option("--text", options.text, "text, or token ids (.npy, .u16, .u32)")->required();
  app.add_option("--out", options.out, "the file to write")->required();
}

void add_options(CLI::App& app, ListOptions& options) {
  app.add_option("what", options.what,
                 "variants: only these; columns: meaning and unit of the columns of result tables")
      ->check(one_of({"variants", "columns"}));
  app.add_flag("--pairs", options.pairs, "placements, codecs and retentions that work together, as Markdown");
  app.add_flag("--models", options.models, "the models of configs/models and their caches");
  app.add_flag("--json", options.json, "print it as JSON")->excludes("--pairs");
}

void add_options(CLI::App& app, CompletionOptions& options) {
  app.add_option("shell", options.shell,
                 "source <(./kvlab completion bash) in ~/.bashrc; likewise zsh and fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
}

int print(const std::string& text) {
  std::fputs(io::printable(text).c_str(), stdout);
  return 0;
}

int list(const ListOptions& options) {
  if (options.pairs) return print(pairs_page());
  if (options.models) return print(model_listing(options.json));
  return print(options.what == "columns" ? columns_listing(options.json)
                                         : listing(options.json, options.what == "variants"));
}

// The commands with their options and actions.
class Commands {
 public:
  explicit Commands(CLI::App& app) : app_(app) {
    add("run", "measure a config, then draw the charts", run_, run);
    add("eval", "run your own tensors (safetensors) through variants, then draw error against bytes", eval_,
        eval);
    add("merge", "merge the shards of a run, or one config's runs of several machines", merge_, merge);
    add("sbatch", "measure a config on a Slurm cluster: prints the jobs, --submit submits them", sbatch_,
        sbatch);
    add("check-results", "check that a results folder is consistent: schema, config, sizes, intervals",
        check_, check_results);
    add("summary", "print the summary of a results folder again", summary_, print_summary);
    add("compare", "compare two runs of one config, cell by cell; --fail-if for CI", compare_, compare);
    add("list", "show variants, configs, workloads and metrics", list_, list);
    add("reproduce", "check published claims, each with a verdict", reproduce_, reproduce);
    commands_.emplace_back(
        app.add_subcommand("environment", "print what env.json records about the machine and the build"),
        [] { return print(io::json_text(measure::describe_environment(), 2) + "\n"); });
    commands_.emplace_back(app.add_subcommand("schema", "print a JSON schema of configs, for editors"), [] {
      return print(io::json_text(config::config_schema(experiments::catalog()), 1) + "\n");
    });
    add("sample", "print what a model writes with the full f32 cache", sample_,
        [](const experiments::SampleOptions& options) {
          std::fputs(experiments::sample_documents(options).c_str(), stdout);  // data, kept byte for byte
          return 0;
        });
    add("logits", "write a model's logits for a text, as safetensors", logits_,
        [](const model::LogitsOptions& options) {
          model::write_logits(options);
          return 0;
        });
    add("calibrate", "learn codebooks for the codec vq from a model's K and V over a text", calibrate_,
        [](const CalibrateOptions& options) { return print(calibrate(options)); });
    add("tables", "show how models' caches grow, and what fits into a memory budget", tables_,
        [](const TablesOptions& options) { return print(run_tables(options)); });
    add("plan", "find the caches that serve a trace of requests, or a number of users, in given memory",
        plan_, [](const PlanOptions& options) { return print(run_plan(options)); });
    add("choose", "find the smallest cache that keeps a model's loss within a limit, by measurement", choose_,
        choose);
    add("completion", "print a script that completes commands and options", completion_,
        [&app](const CompletionOptions& options) { return print(completion_script(app, options.shell)); });
    commands_.emplace_back(
        app.add_subcommand("help", "list the commands; --help after one shows its options"),
        [this] { return print(help_); });
    for (const LauncherCommand& of : kLauncherCommands) {
      commands_.emplace_back(app.add_subcommand(of.name, of.help)->prefix_command(), [&of]() -> int {
        throw std::invalid_argument(std::string(of.name) + " is a command of the launcher: ./kvlab " +
                                    of.name);
      });
    }
    for (const auto& [command, action] : commands_) command->footer(examples_of(command->get_name()));
    app.footer(examples_of(""));
    help_ = app.help();  // a chosen command has its own help
  }

  // Runs the chosen command.
  int run_chosen() const {
    for (const auto& [command, action] : commands_) {
      if (*command) return action();
    }
    throw std::logic_error("no command was chosen");
  }

 private:
  template <class Options, class Action>
  void add(const char* name, const char* help, Options& options, Action action) {
    CLI::App* command = app_.add_subcommand(name, help);
    add_options(*command, options);
    // A script's unset variable, which would mean the current folder or a default.
    if (CLI::Option* out = command->get_option_no_throw("--out"))
      out->check([](const std::string& path) { return path.empty() ? "is empty; it needs a path" : ""; });
    commands_.emplace_back(command, [&options, action] { return action(options); });
  }

  CLI::App& app_;
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands_;
  std::string help_;
  RunOptions run_;
  EvalOptions eval_;
  MergeCommand merge_;
  SbatchCommand sbatch_;
  CheckCommand check_;
  SummaryCommand summary_;
  CompareOptions compare_;
  CompletionOptions completion_;
  ListOptions list_;
  ReproduceOptions reproduce_;
  experiments::SampleOptions sample_;
  model::LogitsOptions logits_;
  CalibrateOptions calibrate_;
  TablesOptions tables_;
  PlanOptions plan_;
  ChooseOptions choose_;
};

// The library's message for a path that the system refuses is its function's name and three quotations.
std::string words_of(const std::exception& e) {
  const auto* refused = dynamic_cast<const std::filesystem::filesystem_error*>(&e);
  return refused ? "cannot use " + refused->path1().string() + ": " + refused->code().message() : e.what();
}

// Reports an exception in one line and returns its exit code.
int report(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e)) {
    std::fprintf(stderr, "kvlab: out of memory\n");
    return kUserError;
  }
  // invalid_argument is the user's mistake; any other logic_error is our bug and says so.
  const bool bug =
      dynamic_cast<const std::logic_error*>(&e) && !dynamic_cast<const std::invalid_argument*>(&e);
  std::fprintf(stderr, "kvlab: %s%s\n", bug ? "internal error: " : "", io::as_message(words_of(e)).c_str());
  return bug ? 1 : kUserError;
}

// Keeps standard streams open: files opened later would take a closed stream's number and get its output.
void open_standard_streams() {
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);  // keeps writing to it an error
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

}  // namespace

int command_line(int argc, char** argv) {
  open_standard_streams();
  // A file that may not grow then gives an error like a full disk instead of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("kvlab: measures KV caches, and what they cost a model", "kvlab");
  app.failure_message([](const CLI::App* of, const CLI::Error& error) {
    return "kvlab: " + io::as_message(mistake_in(*of, error)) + " (--help shows how)\n";
  });
  app.set_version_flag("--version", kVersion, "print the version and stop");
  app.require_subcommand(1);
  Commands commands(app);
  try {
    refuse_unknown_command(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUserError;
  }
  try {
    const int code = commands.run_chosen();
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw std::runtime_error("cannot write to standard output");
    return code;
  } catch (const std::exception& e) {
    return report(e);
  }
}

}  // namespace kv::cli
