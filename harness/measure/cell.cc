#include "harness/measure/cell.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/stage_columns.h"
#include "harness/results/append_file.h"
#include "harness/verify/policy_check.h"
#include "kernels/format/encoding.h"
#include "variants/cache/layout.h"
#include "variants/cache/spec.h"

namespace kv::measure {
namespace {

// The median of one phase over all samples.
template <class Get>
double phase_median(const std::vector<std::vector<StepTimes>>& steps, Get get) {
  std::vector<double> values;
  for (const auto& repetition : steps) {
    for (const StepTimes& t : repetition) values.push_back(get(t));
  }
  return math::median(values);
}

}  // namespace

int64_t units(const Side& side, int64_t rows) {
  return (rows + side.encoding.group - 1) / side.encoding.group;
}

StepTimes Cell::step(workload::TokenFeed& feed, int64_t token, std::span<const SequenceId> sequences,
                     bool attend) {
  StepTimes times;
  const memory::Ledger::DiskReads before = ledger->disk_reads();
  for (int layer = 0; layer < cache->shape().layers; ++layer) {
    const std::span<const StepInput> inputs = feed.inputs(layer, token, sequences);
    Stopwatch watch;
    cache->append(layer, inputs);
    times.append_us += watch.lap() * 1e6;
    cache->view(layer, inputs);
    times.view_us += watch.lap() * 1e6;
    if (!attend && !retention_of(cache->spec(layer)).scores) continue;
    attend_with ? attend_with(layer, inputs) : cache->attend(layer, inputs);
    times.attend_us += watch.lap() * 1e6;
  }
  const memory::Ledger::DiskReads after = ledger->disk_reads();
  times.disk_us = (after.seconds - before.seconds) * 1e6;
  times.disk_wait_us = (after.waited - before.waited) * 1e6;
  times.disk_bytes = after.bytes - before.bytes;
  if (after.requests > before.requests)
    disk_request_bytes = times.disk_bytes / (after.requests - before.requests);
  if (attend) step_disk_bytes = times.disk_bytes;
  return times;
}

verify::Errors Cell::errors(workload::TokenFeed& feed, int64_t tokens, int first, int end) {
  std::vector<verify::Output> outputs;
  for (int i = first; i < end; ++i) {
    for (int layer = 0; layer < cache->shape().layers; ++layer) {
      outputs.push_back({.sequence = ids[static_cast<size_t>(i)],
                         .workload_sequence = i,
                         .layer = layer,
                         .q = feed.q(layer, i, tokens - 1),
                         .out = feed.out(layer, i)});
    }
  }
  return verify::verify(*cache, *workload, tokens, outputs);
}

int64_t Cell::kept_tokens() const {
  int64_t kept = 0, layers = 0;
  for (int layer = 0; layer < cache->shape().layers; ++layer) {
    layers += cache->keeps_rows(layer);
    kept += std::ssize(cache->kept(ids.front(), layer, 0));
  }
  return (kept + layers / 2) / layers;
}

bool Cell::judge(const verify::Errors& errors, int64_t positions) {
  set_errors(result, errors);
  result.err_positions = positions;
  verify::PolicyCheck evictions;
  if (cache) {
    result.kept_tokens = kept_tokens();
    evictions = check_policies();
  }
  result.eviction_check = evictions.oracle;
  result.policy_choices = evictions.choices;
  result.policy_disputed = evictions.disputed;
  const std::string failure = errors.failure().empty() ? evictions.failure() : errors.failure();
  result.status = failure.empty() ? results::Status::kOk : results::Status::kFailed;
  result.reason = failure;
  return failure.empty();
}

// Of every group of layers; the first that fails says so for all.
verify::PolicyCheck Cell::check_policies() const {
  verify::PolicyCheck all;
  for (const LayerGroup& layers : kv::groups_of(spec, shape())) {
    if (layers.linear) continue;
    const verify::PolicyCheck one =
        verify::check_policy(layers.spec, *workload, cache->shape().max_tokens, prompt, ledger->gpu());
    if (!one.failure().empty()) return one;
    all = verify::joined(all, one);
  }
  return all;
}

std::unique_ptr<Cell> make_cell(const SweepPoint& point, const PlannedCell& planned) {
  auto cell = std::make_unique<Cell>();
  cell->key = planned.key;
  cell->spec = planned.spec;
  cell->uncached = planned.uncached;
  cell->peer = planned.peer;
  cell->arm = planned.arm;
  cell->group = planned.group;
  const workload::WorkloadShape& w = point.source->shape();
  cell->kinds = w.kinds;
  cell->linear = w.linear;
  results::CellResult& result = cell->result;
  result.cell = cell->key;
  result.variant = planned.variant;
  result.device = point.context->device();
  result.threads = point.threads;
  result.experiment = point.experiment->kind;
  result.peer = planned.peer.substr(0, planned.peer.find('/'));
  result.phase = "decode";
  result.workload = point.workload;
  result.layers = w.layers;
  result.q_heads = w.q_heads;
  result.kv_heads = w.kv_heads;
  result.head_dim = w.head_dim;
  result.batch = point.batch;
  result.seq_len = point.seq_len;
  result.series = planned.series;
  const ModelShape geometry = cache_shape(point, point.batch);
  const ModelShape* shape = planned.is_measured() ? &geometry : nullptr;
  if (!planned.peer.empty()) {
    set_peer_codec(result, planned.spec, shape);
  } else if (!planned.uncached && planned.variant == planned.spec.print()) {
    set_stages(result, planned.spec, shape);
  }
  if (planned.aa_test) result.verdict = results::CellResult::kAaVerdict;
  if (!planned.is_measured()) mark(*cell, planned.status, planned.reason);
  return cell;
}

Cells make_cells(const SweepPoint& point) {
  Cells cells;
  for (const PlannedCell& planned : point.cells) cells.push_back(make_cell(point, planned));
  return cells;
}

std::vector<std::vector<Cell*>> groups_of(const Cells& cells) {
  std::vector<std::vector<Cell*>> groups;
  for (const auto& cell : cells) {
    if (!runs(*cell)) continue;
    if (groups.empty() || groups.back().back()->group != cell->group) groups.emplace_back();
    groups.back().push_back(cell.get());
  }
  return groups;
}

void set_errors(results::CellResult& result, const verify::Errors& errors) {
  result.metrics.assign(errors.metrics.begin(), errors.metrics.end());
  result.err_codec_rel_l2 = errors.codec_rel_l2;
  result.err_retention_rel_l2 = errors.retention_rel_l2;
  result.err_kernel_rel_l2 = errors.kernel_rel_l2;
  if (!errors.selection.oracle.empty()) {
    result.err_selection_rel_l2 = errors.selection_rel_l2;
    result.selection_check = errors.selection.oracle;
    result.selection_choices = errors.selection.choices;
    result.selection_disputed = errors.selection.disputed;
  }
  if (errors.state_rel_l2) result.err_state_rel_l2 = *errors.state_rel_l2;
  result.err_heads = errors.heads;
  result.err_sample = errors.sample;
}

bool runs(const Cell& cell) {
  return cell.result.status == results::Status::kNone || cell.result.status == results::Status::kOk;
}

void mark(Cell& cell, results::Status status, const std::string& reason) {
  cell.result.fail(status, reason);
  cell.cache.reset();
}

void mark_exception(Cell& cell) {
  using results::Status;
  try {
    throw;
  } catch (const results::WriteError&) {
    throw;
  } catch (const OutOfBlocks& e) {
    mark(cell, Status::kOutOfMemory, e.what());
  } catch (const std::bad_alloc&) {
    const int64_t limit = cell.ledger ? cell.ledger->limit_bytes() : INT64_MAX;
    mark(cell, Status::kOutOfMemory,
         "ran out of memory" + (limit == INT64_MAX ? "" : " at " + io::human_bytes(limit)));
  } catch (const std::invalid_argument& e) {
    mark(cell, Status::kUnsupported, e.what());  // not at this geometry
  } catch (const std::logic_error& e) {
    mark(cell, Status::kFailed, std::string("internal error: ") + e.what());
  } catch (const std::exception& e) {
    mark(cell, Status::kFailed, e.what());
  }
}

void open_cache(Cell& cell, const SweepPoint& point, int sequences) {
  cell.cache.reset();
  cell.ids.clear();
  cell.ledger = std::make_unique<memory::Ledger>(point.cache_bytes, point.context->gpu());
  cell.cache = build_cache(cell.spec, cache_shape(point, sequences), *cell.ledger);
  cell.result.kernel = cell.cache->kernel();
}

std::vector<double> step_medians(const Cell& cell) {
  std::vector<double> medians;
  for (const auto& repetition : cell.steps) {
    std::vector<double> values;
    for (const StepTimes& t : repetition) values.push_back(t.step_us());
    medians.push_back(math::median(values));
  }
  return medians;
}

void Cell::summarise() {
  if (steps.empty()) return;
  std::vector<double> all;
  for (const auto& repetition : steps) {
    for (const StepTimes& t : repetition) all.push_back(t.step_us());
  }
  const double attend = phase_median(steps, [](const StepTimes& t) { return t.attend_us; });
  result.append_p50_us = phase_median(steps, [](const StepTimes& t) { return t.append_us; });
  result.view_p50_us = phase_median(steps, [](const StepTimes& t) { return t.view_us; });
  if (attend > 0.0) {
    result.attend_p50_us = attend;
    // The host's time has uploads and launches in it.
    if (!on_gpu()) result.read_gbps = static_cast<double>(read_bytes) / attend * 1e-3;
  }
  if (steps.front().front().projections_us > 0.0) {
    result.projections_p50_us = phase_median(steps, [](const StepTimes& t) { return t.projections_us; });
    const double state = phase_median(steps, [](const StepTimes& t) { return t.state_us; });
    if (state > 0.0) result.state_p50_us = state;
    result.rest_p50_us = phase_median(steps, [](const StepTimes& t) { return t.rest_us; });
  }
  result.step_p90_us = math::percentile(all, 90);
  result.step_p99_us = math::percentile(all, 99);
  result.step_max_us = *std::max_element(all.begin(), all.end());
  // A repetition is the unit of statistics: the median that is reported is the one whose interval is.
  const std::vector<double> medians = step_medians(*this);
  const math::ConfidenceInterval step = math::median_interval(medians);
  result.step_p50_us = math::median(medians);
  result.step_ci_low_us = step.low;
  result.step_ci_high_us = step.high;
  result.repetitions = static_cast<int64_t>(steps.size());
  result.samples = static_cast<int64_t>(all.size());
  if (cold_us.empty()) return;
  const std::vector<double> cold = math::repetition_medians(cold_us);
  const math::ConfidenceInterval interval = math::median_interval(cold);
  (on_gpu() ? result.gpu_p50_us : result.cold_attend_p50_us) = math::median(cold);
  (on_gpu() ? result.gpu_ci_low_us : result.cold_ci_low_us) = interval.low;
  (on_gpu() ? result.gpu_ci_high_us : result.cold_ci_high_us) = interval.high;
  result.cold_read_gbps = static_cast<double>(read_bytes) / math::median(cold) * 1e-3;
}

}  // namespace kv::measure
