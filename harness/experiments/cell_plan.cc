#include "harness/experiments/cell_plan.h"

#include <algorithm>
#include <stdexcept>

#include "harness/experiments/experiment.h"
#include "harness/io/bytes.h"
#include "harness/measure/disk_need.h"
#include "variants/cache/spec.h"
#include "variants/storage/storage.h"

namespace kv::experiments {
namespace {

std::string series_of(const config::Axes& axes, const LayerSpecs& spec) {
  const auto at = static_cast<size_t>(std::find(axes.variants.begin(), axes.variants.end(), spec) -
                                      axes.variants.begin());
  return at < axes.series.size() ? axes.series[at] : spec.print();
}

// Throws std::invalid_argument for a spec that names layers which do not exist.
void require_layers(const measure::SweepPoint& point, const LayerSpecs& spec, const ModelShape& shape) {
  try {
    groups_of(spec, shape);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(point.config->path + ": sweep.variants has a mistake: " + e.what());
  }
}

// The reason that the cell cannot run, or empty.
std::string unsupported_reason(const measure::SweepPoint& point, const LayerSpecs& spec) {
  const ModelShape shape = measure::cache_shape(point, point.batch);
  require_layers(point, spec, shape);
  const auto calls = [](const Spec& of) { return !functions_of(of).empty(); };
  if (spec.any(calls) && !experiment_of(point).calls_functions)
    return "functions in Python run in quality, recall, task and stream alone: their calls' time is not a "
           "cache's";
  const std::string reason = workload::unsupported_reason(spec, point.workload, shape, point.context->gpu());
  if (!reason.empty()) return reason;
  if (const model::Model* const model = point.source->model()) {
    const model::ModelConfig& m = model->config();
    const std::string lacking =
        unattendable_reason(point.context->gpu(), !m.sink_logits.empty(), m.score_cap != 0.0f);
    if (!lacking.empty()) return lacking;
  }
  const bool replays = point.source->model() && !experiment_of(point).info.needs_model;
  if (replays && point.source->shape().row_layers() < point.source->shape().layers)
    return "linear layers have states, and only rows are replayed";
  const int64_t most = point.source->max_tokens();
  if (point.seq_len <= most || experiment_of(point).beyond_trained_context) return "";
  return "workload '" + point.workload + "' has only " + std::to_string(most) + " tokens";
}

}  // namespace

void refuse(measure::PlannedCell& cell, const std::string& reason) {
  if (reason.empty() || !cell.is_measured()) return;
  cell.status = results::Status::kUnsupported;
  cell.reason = reason;
}

measure::PlannedCell& add_cell(measure::SweepPoint& point, const LayerSpecs& spec,
                               const std::string& suffix) {
  measure::PlannedCell cell{.key = point.key(spec, suffix),
                            .spec = spec,
                            .variant = spec.print(),
                            .series = series_of(point.experiment->axes, spec)};
  refuse(cell, unsupported_reason(point, spec));
  return point.cells.emplace_back(std::move(cell));
}

void add_variants(measure::SweepPoint& point, const std::string& suffix) {
  for (const LayerSpecs& spec : point.experiment->axes.variants) add_cell(point, spec, suffix);
}

void add_variants_and_aa_test(measure::SweepPoint& point, const std::string& suffix) {
  for (const LayerSpecs& spec : point.experiment->axes.variants) {
    add_cell(point, spec, suffix);
    if (point.cells.size() == 1 && point.experiment->measure.aa_test)
      add_cell(point, spec, aa_suffix(suffix)).aa_test = true;
  }
}

void add_uncached(measure::SweepPoint& point) {
  if (!point.experiment->axes.uncached) return;
  const std::string name(config::kUncachedInTables);
  measure::PlannedCell cell{.key = point.key_of(name), .spec = {}, .variant = name, .series = name};
  cell.uncached = true;
  if (point.context->gpu()) refuse(cell, "steps without a cache run on the CPU only");
  point.cells.push_back(std::move(cell));
}

std::string aa_suffix(const std::string& suffix) { return suffix.empty() ? "aa_test" : suffix + " aa_test"; }

bool fit(const measure::SweepPoint& point, measure::PlannedCell& cell, int64_t needed_bytes,
         int64_t shared_bytes) {
  cell.needed_bytes = needed_bytes + shared_bytes;
  const auto refuse = [&](int64_t bytes, const std::string& what) {
    cell.status = results::Status::kOutOfMemory;
    cell.reason = "needs " + io::human_bytes(bytes) + what;
    return false;
  };
  const measure::DiskNeed disk = measure::disk_need(point, cell.spec);
  if (disk.bytes > disk.free_bytes) {
    return refuse(disk.bytes, " of disk in '" + disk.folder + "', which has " +
                                  io::human_bytes(disk.free_bytes) + " free; give another dir");
  }
  if (point.cache_bytes < point.memory_bytes && needed_bytes > point.cache_bytes) {
    return refuse(needed_bytes, " with its copies, and caches may use " + io::human_bytes(point.cache_bytes) +
                                    " (measure.memory)");
  }
  if (cell.needed_bytes <= point.memory_bytes) return true;
  return refuse(cell.needed_bytes, " with its copies, and the run may use " +
                                       io::human_bytes(point.memory_bytes) + " (measure.memory_share)");
}

void fit_alone(measure::SweepPoint& point, const BytesOf& needed_bytes) {
  for (measure::PlannedCell& cell : point.cells) {
    if (cell.is_measured() && fit(point, cell, needed_bytes(cell)))
      point.peak_bytes = std::max(point.peak_bytes, cell.needed_bytes);
  }
}

void fit_side_by_side(measure::SweepPoint& point, int64_t shared_bytes, const BytesOf& needed_bytes) {
  size_t group = 0;
  int64_t held = shared_bytes, on_disk = 0;
  for (measure::PlannedCell& cell : point.cells) {
    if (!cell.is_measured()) continue;
    const int64_t needed = needed_bytes(cell);
    if (!fit(point, cell, needed, shared_bytes)) continue;
    const measure::DiskNeed disk = measure::disk_need(point, cell.spec);
    if (held + needed > point.memory_bytes || on_disk + disk.bytes > disk.free_bytes) {
      ++group;
      held = shared_bytes;
      on_disk = 0;
    }
    cell.group = group;
    held += needed;
    point.peak_bytes = std::max(point.peak_bytes, held);
    on_disk += disk.bytes;
  }
}

}  // namespace kv::experiments
