#include "harness/reproduce.h"

#include <array>
#include <fstream>
#include <set>
#include <stdexcept>

#include "harness/check.h"
#include "harness/claims_text.h"
#include "harness/environment.h"
#include "harness/quantities.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr std::array kClaimColumns = std::to_array<Column>({
    {"source", "the claim file"},
    {"claim", "its id there"},
    {"figure", "which of the claim's figures: the table's row and column"},
    {"check", "how it is checked"},
    {"replica", "exact, or qualitative: other inputs or another size than the source's"},
    {"machine", "yes if the verdict rests on times of this machine"},
    {"published", "as printed"},
    {"computed", "closed form or arithmetic, in the published unit"},
    {"measured", "and its 95 % interval"},
    {"computed_value", "in bytes, seconds or shares of 1"},
    {"measured_value", ""},
    {"interval_low", ""},
    {"interval_high", ""},
    {"verdict", "reproduced, contradicted, or not testable here"},
    {"reason", "the arithmetic where a figure is wrong, how a unit was read, or why there is no verdict"},
    {"note", "what the claim file says about the comparison"},
    {"text", "what is claimed"},
    {"title", "of the source"},
    {"document", ""},
    {"where", "section or table"},
    {"quote", ""},
    {"setting", ""},
});

// Filling larger caches only to count them would take most of the run.
constexpr int64_t kLedgerLimit = int64_t{1} << 30;

struct PlannedRun {
  std::string source, name;
  std::vector<Config> configs;  // one a seed
  std::vector<fs::path> folders;
};

bool wanted(const Statement& s, const ReproduceOptions& options) {
  return !options.quick || !s.depends_on_machine();
}

std::set<std::string> runs_needed(const ClaimFile& file, const ReproduceOptions& options) {
  std::set<std::string> names;
  for (const Claim& claim : file.claims) {
    for (const Statement& s : claim.statements) {
      if (!wanted(s, options)) continue;
      for (const auto& [name, quantity] : s.quantities) names.insert(quantity.run);
    }
  }
  return names;
}

// The run's config goes into the folder first: the driver reads configs from files.
PlannedRun plan_run(const ClaimFile& file, const std::string& name, const ReproduceOptions& options) {
  const ClaimRun& run = file.runs.at(name);
  PlannedRun planned{file.name, name, {}, {}};
  const fs::path folder = options.out / "runs" / (file.name + "-" + name);
  const fs::path config = folder.string() + ".toml";
  write_whole(config, run.toml);
  std::vector<int64_t> seeds = run.seeds;
  if (seeds.empty()) seeds = {-1};
  for (const int64_t seed : seeds) {
    try {
      planned.configs.push_back(load_config(
          config.string(),
          {.set = {}, .seed = seed, .threads = options.threads, .isa = "", .device = "", .workload = {}}));
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(file.path + ": [run." + name + "]: " + e.what());
    }
    planned.folders.push_back(seeds.size() == 1 ? folder
                                                : fs::path(folder.string() + "-seed" + std::to_string(seed)));
  }
  return planned;
}

std::vector<PlannedRun> plan(const std::vector<ClaimFile>& files, const ReproduceOptions& options) {
  std::vector<PlannedRun> runs;
  fs::create_directories(options.out / "runs");
  try {
    for (const ClaimFile& file : files) {
      for (const std::string& name : runs_needed(file, options))
        runs.push_back(plan_run(file, name, options));
    }
  } catch (const std::invalid_argument&) {
    fs::remove_all(options.out);  // was new or empty: the same command may be given again
    throw;
  }
  return runs;
}

// False if it was stopped.
bool execute(const PlannedRun& run, const ReproduceOptions& options, Reproduction& result) {
  for (size_t i = 0; i < run.configs.size(); ++i) {
    const std::string seed = run.configs.size() > 1 ? ", seed " + std::to_string(run.configs[i].seed) : "";
    const RunOutcome outcome =
        run_config(run.configs[i], {.out = run.folders[i],
                                    .resume = false,
                                    .stop = options.stop,
                                    .note = options.note,
                                    .progress = options.progress(run.source + " " + run.name + seed)});
    for (const Row& cell : outcome.cells) result.any_failed |= cell.text("status") == "failed";
    if (!outcome.finished) return false;
  }
  return true;
}

Row figure_row(const ClaimFile& file, const Claim& claim, const Statement& s, const Outcome& outcome) {
  Row row(kClaimColumns);
  row.set("source", file.name);
  row.set("claim", claim.id);
  row.set("figure", s.name);
  row.set("check", s.check);
  row.set("replica", s.exact ? "exact" : "qualitative");
  row.set("machine", s.depends_on_machine() ? "yes" : "no");
  row.set("published", s.published.text);
  row.set("computed", outcome.computed);
  row.set("measured", outcome.measured);
  if (outcome.computed_value) row.set("computed_value", *outcome.computed_value);
  if (outcome.measured_value) row.set("measured_value", *outcome.measured_value);
  if (outcome.interval) {
    row.set("interval_low", outcome.interval->low);
    row.set("interval_high", outcome.interval->high);
  }
  row.set("verdict", outcome.verdict);
  row.set("reason", outcome.reason);
  row.set("note", s.note);
  row.set("text", claim.text);
  row.set("title", file.title);
  row.set("document", file.document);
  row.set("where", claim.place);
  row.set("quote", claim.quote);
  row.set("setting", claim.setting);
  return row;
}

std::vector<Row> check_all(const std::vector<ClaimFile>& files,
                           const std::map<std::string, Quantities>& quantities,
                           const ReproduceOptions& options) {
  std::vector<Row> rows;
  const int64_t limit = std::min(kLedgerLimit, available_memory_bytes() / 2);
  CountedBytes counted(limit);
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      for (const Statement& s : claim.statements) {
        if (options.stop()) return rows;
        if (wanted(s, options))
          rows.push_back(figure_row(file, claim, s, check(s, quantities.at(file.name), counted)));
      }
    }
  }
  return rows;
}

void write(const std::vector<ClaimFile>& files, const ReproduceOptions& options,
           const std::vector<Row>& figures) {
  nlohmann::json environment = describe_environment();
  environment["quick"] = options.quick;
  write_whole(options.out / "env.json", environment.dump(2) + "\n");
  write_whole(options.out / "claims.csv", csv_text(kClaimColumns, figures));
  write_whole(options.out / "claims.md", claims_markdown(files, figures));
  write_whole(options.out / "summary.md", claims_summary(files, figures));
}

}  // namespace

std::span<const Column> claim_columns() { return kClaimColumns; }

Reproduction reproduce(const std::vector<ClaimFile>& files, const ReproduceOptions& options) {
  require_new_folder(options.out);
  Reproduction result;
  std::map<std::string, Quantities> quantities;
  for (const ClaimFile& file : files) quantities[file.name];
  const std::vector<PlannedRun> runs = plan(files, options);
  for (const PlannedRun& run : runs) {
    if (!execute(run, options, result)) return result;
    quantities[run.source].add(run.name, run.folders);
  }
  try {
    result.figures = check_all(files, quantities, options);
  } catch (const std::invalid_argument&) {
    if (runs.empty()) fs::remove_all(options.out);  // as in plan()
    throw;
  }
  result.finished = !options.stop();
  if (result.finished) write(files, options, result.figures);
  return result;
}

}  // namespace kv
