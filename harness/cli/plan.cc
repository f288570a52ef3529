#include "harness/cli/plan.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "harness/cli/typos.h"
#include "harness/cli/variants_option.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/io/paths.h"
#include "harness/planner/plan_columns.h"
#include "harness/planner/serving_plan.h"
#include "harness/results/append_file.h"
#include "harness/results/table.h"
#include "harness/tables/fit_table.h"

namespace kv::cli {
namespace {

// Parses the rates of a data sheet: "read_gbps=1008,flops=165e12,link_gbps=25".
planner::Device parse_device(const std::string& text) {
  planner::Device device;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    double* const place = name == "read_gbps"   ? &device.read_gbps
                          : name == "flops"     ? &device.flops
                          : name == "link_gbps" ? &device.link_gbps
                                                : nullptr;
    const char *begin = part.data() + std::min(equals + 1, part.size()), *end = part.data() + part.size();
    double value = 0.0;
    const auto [at, error] = std::from_chars(begin, end, value);
    if (!place || error != std::errc() || at != end || !std::isfinite(value) || !(value > 0.0))
      throw std::invalid_argument("--device: cannot read '" + part +
                                  "'; write read_gbps=1008,flops=165e12 and, for swapping, link_gbps=25");
    *place = value;
  }
  if (!text.empty() && (device.read_gbps == 0.0 || device.flops == 0.0))
    throw std::invalid_argument("--device needs read_gbps and flops, e.g. read_gbps=1008,flops=165e12");
  return device;
}

std::string shown(const planner::Device& device) {
  if (device.read_gbps == 0.0) return "";
  std::ostringstream text;
  text << device.read_gbps << " GB/s and " << device.flops / 1e12 << " TFLOP/s";
  if (device.link_gbps > 0.0) text << ", link " << device.link_gbps << " GB/s";
  return text.str();
}

void refuse_what_cannot_be(const PlanOptions& o, const planner::Device& device) {
  const bool users = o.context > 0 || o.users > 0;
  if (users == !o.trace.empty() || (o.context == 0) != (o.users == 0))
    throw std::invalid_argument("give --trace FILE, or --context 128K and --users 8 together");
  if (o.trace.empty() &&
      (!o.arrivals.empty() || o.requests > 0 || !o.prefix_blocks.empty() || !o.hit_curve.empty()))
    throw std::invalid_argument("--arrivals, --requests, --prefix-blocks and --hit-curve need a --trace");
  if (o.preempt == "swap" && device.link_gbps == 0.0)
    throw std::invalid_argument(std::string("--preempt swap ") + planner::kSwapNeedsLink);
  o.output.refuse_existing();
  if (!o.hit_curve.empty() && std::filesystem::exists(o.hit_curve))
    throw std::invalid_argument("--hit-curve " + o.hit_curve + " already exists; give another name");
}

void set_memory(planner::PlanTable& table, const PlanOptions& o) {
  const io::Units units = o.output.shown_units();
  table.memory_bytes = io::parse_bytes(o.memory, "--memory");
  table.memory_text = with_units(o.memory, table.memory_bytes, units);
  table.weights_bytes =
      o.weights.empty() ? table.geometry.weights_bytes : io::parse_bytes(o.weights, "--weights");
  table.weights_text = o.weights.empty() ? io::human_bytes(table.weights_bytes, units)
                                         : with_units(o.weights, table.weights_bytes, units);
  const bool has_weights = !o.weights.empty() || table.weights_bytes > 0;
  planner::check_machine({"--memory " + o.memory, "--weights 16GB", "--device read_gbps=1008,flops=165e12"},
                         has_weights ? table.weights_text : "", table.memory_bytes - table.weights_bytes,
                         o.trace.empty() || table.device.read_gbps > 0.0);
}

planner::QualityRun read_quality(const std::string& folder) {
  const std::filesystem::path cells = io::find_input(folder + "/cells.csv", "--quality");
  const std::filesystem::path name = std::filesystem::path(folder).lexically_normal();
  return {experiments::cells_with(&experiments::Experiment::reads_whole_windows,
                                  results::read_csv(cells, experiments::cell_table())),
          (name.has_filename() ? name : name.parent_path()).filename().string()};
}

}  // namespace

void add_options(CLI::App& app, PlanOptions& options) {
  app.add_option("--model", options.model, "preset (`kvlab list --models`) or config.json")
      ->capture_default_str();
  add_trust_option(app, options.trust_config);
  app.add_option("--memory", options.memory, "memory of the machine for weights and caches, e.g. 24GB")
      ->required();
  app.add_option(
      "--weights", options.weights,
      "weights' part of that memory, e.g. 8.5GB (default: parameters x dtype of the model's file)");
  app.add_option("--variants", options.variants, "specs, separated by ';'; {a,b} in a spec makes one of each")
      ->capture_default_str();
  app.add_option("--trace", options.trace, "requests: a file of Azure, BurstGPT, Mooncake or Qwen-Bailian");
  app.add_option("--arrivals", options.arrivals,
                 "arrivals per second: poisson(RATE) or gamma(RATE,CV) (default: the trace's)");
  app.add_option("--requests", options.requests, "number of requests (default: the trace's)")
      ->check(CLI::PositiveNumber);
  app.add_option("--context", options.context, "instead of a trace: tokens of each user, e.g. 128K")
      ->transform(token_count())
      ->check(CLI::Range(int64_t{1}, tables::kMostTokens));
  app.add_option("--users", options.users, "with --context: users at once")->check(CLI::Range(1, 65536));
  app.add_option("--device", options.device,
                 "machine to assume for times: read_gbps=1008,flops=165e12,link_gbps=25");
  app.add_option("--step-tokens", options.scheduler.step_tokens,
                 "tokens of a step: decode, then chunks of prompts")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-running", options.scheduler.max_running, "most sequences at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--preempt", options.preempt, "recompute or swap the youngest sequence if memory runs out")
      ->check(one_of({"recompute", "swap"}))
      ->capture_default_str();
  app.add_option("--prefix-blocks", options.prefix_blocks,
                 "tokens of a block of a prefix cache; the first is the table's (default: the trace's)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--hit-curve", options.hit_curve,
                 "CSV file for the prefix cache's hit rates over all capacities");
  app.add_option("--quality", options.quality,
                 "results folder of a quality run for perplexities, e.g. results/xeon-2core/quality");
  app.add_option("--seed", options.seed, "seed of drawn arrivals")->capture_default_str();
  add_output_options(app, options.output);
}

std::string run_plan(const PlanOptions& o) {
  planner::PlanTable table;
  table.device = parse_device(o.device);
  table.device_text = shown(table.device);
  refuse_what_cannot_be(o, table.device);
  table.geometry = config::find_geometry(o.model, o.trust_config);
  table.variants = parse_variants(o.variants);
  table.scheduler = o.scheduler;
  if (!o.quality.empty()) table.quality = read_quality(o.quality);
  table.scheduler.swap = o.preempt == "swap";
  set_memory(table, o);
  if (o.trace.empty()) {
    table.context = o.context;
    table.users = o.users;
  } else {
    const std::string path = io::find_input(o.trace, "trace").string();
    const planner::Arrivals arrivals = planner::parse_arrivals(o.arrivals);
    table.trace = std::filesystem::path(path).filename().string();
    table.arrivals = o.arrivals;
    table.open = [path, arrivals, requests = o.requests, seed = o.seed] {
      return planner::RequestSource(path, arrivals, requests, seed);
    };
    table.facts = planner::read_facts(table.open, o.prefix_blocks);
  }
  if (!o.hit_curve.empty()) {
    if (table.facts.hits.empty())
      throw std::invalid_argument("--hit-curve needs a trace with ids of blocks; this one has none");
    results::write_whole(o.hit_curve,
                         results::csv_text(planner::kHitCurve, hit_curve(table.facts, table.open)));
  }
  Document document(o.output, planner::kPlan);
  document.add(table);
  return o.output.deliver(document.text());
}

}  // namespace kv::cli
