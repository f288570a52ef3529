#include "harness/cli/shards.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "harness/cli/dry_run.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/shard.h"
#include "harness/io/aligned_text.h"
#include "harness/memory/run_context.h"

namespace kv::cli {
namespace {

std::string minutes(double weight) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", rough_seconds(weight) / 60.0);
  return text;
}

}  // namespace

std::string shards_listing(const config::Config& config, int shards) {
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  const std::vector<int> shard_of = experiments::assign_shards(sweep.points, shards);
  std::vector<std::vector<std::string>> lines{{"shard", "sweep point", "cells", "min"}};
  std::vector<std::vector<std::string>> sums{{"shard", "points", "min"}};
  for (int shard = 1; shard <= shards; ++shard) {
    const std::string name = experiments::Shard{shard, shards}.text();
    double weight = 0.0;
    int count = 0;
    for (size_t i = 0; i < shard_of.size(); ++i) {
      if (shard_of[i] != shard) continue;
      const measure::SweepPoint& point = sweep.points[i];
      weight += experiments::weight(point);
      ++count;
      lines.push_back({name, experiments::point_key(point), std::to_string(point.cells.size()),
                       minutes(experiments::weight(point))});
    }
    sums.push_back({name, std::to_string(count), minutes(weight)});
  }
  return io::aligned_text(lines, 2) + "\n" + io::aligned_text(sums) +
         "\nMinutes are estimates, as on 2 cores of a Xeon; other machines differ, shards less so.\n";
}

}  // namespace kv::cli
