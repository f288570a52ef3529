#include "harness/measure/cell.h"
#include "harness/measure/stage_columns.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <numeric>
#include <stdexcept>

#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/time_columns.h"
#include "harness/results/append_file.h"
#include "harness/verify/error_columns.h"
#include "kernels/cuda/gpu.h"
#include "variants/cache/spec.h"

namespace kv::measure {
namespace {

// The median of one phase over all samples.
template <class Get>
double phase_median(const Samples& steps, Get get) {
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

verify::Errors Cell::errors(workload::TokenFeed& feed, int64_t tokens, int first, int end,
                            std::optional<int64_t> step) {
  std::vector<verify::Output> outputs;
  for (int i = first; i < end; ++i) {
    for (int layer = 0; layer < cache->shape().layers; ++layer) {
      outputs.push_back({.sequence = ids[static_cast<size_t>(i)],
                         .workload_sequence = i,
                         .layer = layer,
                         .q = feed.q(layer, i, step.value_or(tokens - 1)),
                         .out = feed.out(layer, i)});
    }
  }
  return verify::verify(*cache, *workload, tokens, outputs);
}

void Cell::record_kept() {
  std::vector<int64_t> kept;
  for (int layer = 0; layer < cache->shape().layers; ++layer) {
    if (!cache->keeps_rows(layer)) continue;
    for (int head = 0; head < cache->shape().kv_heads; ++head)
      kept.push_back(std::ssize(cache->kept(ids.front(), layer, head)));
  }
  const auto [least, most] = std::ranges::minmax_element(kept);
  const int64_t all = std::accumulate(kept.begin(), kept.end(), int64_t{0}), count = std::ssize(kept);
  result[results::kKeptTokens] = (all + count / 2) / count;
  result[results::kKeptTokensMin] = *least;
  result[results::kKeptTokensMax] = *most;
}

bool Cell::judge(const verify::Errors& errors, int64_t positions) {
  set_errors(result, errors);
  result[verify::kErrPositions] = positions;
  verify::PolicyCheck evictions;
  if (cache) {
    record_kept();
    evictions = check_policies();
  }
  result[verify::kEvictionCheck] = evictions.oracle;
  result[verify::kPolicyChoices] = evictions.choices;
  result[verify::kPolicyDisputed] = evictions.disputed;
  const std::string failure = errors.failure().empty() ? evictions.failure() : errors.failure();
  result[results::kStatus] = failure.empty() ? results::Status::kOk : results::Status::kFailed;
  result[results::kReason] = failure;
  return failure.empty();
}

// Checks every group of layers; the first failure is reported for all.
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
  cell->group = planned.group;
  const ModelShape shape = cache_shape(point, point.batch);
  cell->kinds = shape.kinds;
  cell->linear = shape.linear;
  cell->model = model_shape(point, point.batch);
  results::Row& result = cell->result;
  result = point.axes;
  result.add(planned.columns);
  result[results::kCell] = cell->key;
  result[results::kVariant] = planned.variant;
  result[results::kDevice] = point.context->device();
  result[results::kThreads] = point.threads;
  result[results::kExperiment] = point.experiment->kind;
  result[kPeer] = planned.peer.substr(0, planned.peer.find_first_of("/("));
  result[results::kPhase] = "decode";
  result[results::kWorkload] = point.workload;
  if (point.source && point.source->model())
    result[results::kKOrder] = point.source->model()->config().k_order();
  result[results::kLayers] = shape.layers;
  result[results::kModelLayers] = cell->model.layers;
  result[results::kQHeads] = shape.q_heads;
  result[results::kKvHeads] = shape.kv_heads;
  result[results::kHeadDim] = shape.head_dim;
  result[results::kBatch] = point.batch;
  result[results::kSeqLen] = point.seq_len;
  result[results::kSeries] = planned.series;
  const ModelShape* known = planned.is_measured() ? &shape : nullptr;
  if (!planned.peer.empty() && !planned.uncached) {
    set_peer_codec(result, planned.spec, known);
  } else if (!planned.uncached && planned.variant == planned.spec.print()) {
    set_stages(result, planned.spec, known);
  }
  if (planned.aa_test) result[results::kVerdict] = results::kAaVerdict;
  if (!planned.is_measured()) mark(*cell, planned.status, planned.reason);
  return cell;
}

Cells make_cells(const SweepPoint& point) {
  Cells cells;
  for (const PlannedCell& planned : point.cells) cells.push_back(make_cell(point, planned));
  return cells;
}

void set_errors(results::Row& result, const verify::Errors& errors) {
  for (size_t i = 0; i < errors.metrics.size(); ++i) result[verify::metrics()[i]->column] = errors.metrics[i];
  result[verify::kErrCodecRelL2] = errors.codec_rel_l2;
  result[verify::kErrRetentionRelL2] = errors.retention_rel_l2;
  result[verify::kErrKernelRelL2] = errors.kernel_rel_l2;
  if (!errors.selection.oracle.empty()) {
    result[verify::kErrSelectionRelL2] = errors.selection_rel_l2;
    result[verify::kSelectionCheck] = errors.selection.oracle;
    result[verify::kSelectionChoices] = errors.selection.choices;
    result[verify::kSelectionDisputed] = errors.selection.disputed;
  }
  if (errors.state_rel_l2) result[verify::kErrStateRelL2] = *errors.state_rel_l2;
  result[verify::kErrHeads] = errors.heads;
  result[verify::kErrSample] = errors.sample;
}

void judge_whole(Cell& cell, const verify::Errors& errors) {
  cell.result.number("err_rel_l2") = errors.metric("err_rel_l2");
  cell.result[verify::kErrKernelRelL2] = errors.kernel_rel_l2;
  const std::string failure = errors.failure();
  if (!failure.empty()) return mark(cell, results::Status::kFailed, failure);
  cell.result[results::kStatus] = results::Status::kOk;
}

bool runs(const Cell& cell) {
  return cell.result[results::kStatus] == results::Status::kNone ||
         cell.result[results::kStatus] == results::Status::kOk;
}

void mark(Cell& cell, results::Status status, const std::string& reason) {
  results::fail(cell.result, status, reason);
  cell.cache.reset();
}

void mark_exception(Cell& cell) {
  using results::Status;
  try {
    throw;
  } catch (const results::WriteError&) {
    throw;
  } catch (const std::filesystem::filesystem_error&) {
    throw;
  } catch (const cuda::GpuLost&) {
    throw;  // every other cell would fail as well
  } catch (const DiskError& e) {
    mark(cell, Status::kOutOfMemory, e.what());
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
  cell.result[results::kKernel] = cell.cache->kernel();
}

std::vector<double> repetition_medians(const Samples& samples) {
  std::vector<double> medians;
  for (const auto& repetition : samples) {
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
  result[kAppendP50Us] = phase_median(steps, [](const StepTimes& t) { return t.append_us; });
  result[kViewP50Us] = phase_median(steps, [](const StepTimes& t) { return t.view_us; });
  if (attend > 0.0) {
    result[kAttendP50Us] = attend;
    // The host's time includes uploads and launches.
    if (!on_gpu()) result[kReadGbps] = static_cast<double>(read_bytes) / attend * 1e-3;
  }
  if (steps.front().front().projections_us > 0.0) {
    result[kProjectionsP50Us] = phase_median(steps, [](const StepTimes& t) { return t.projections_us; });
    const double state = phase_median(steps, [](const StepTimes& t) { return t.state_us; });
    if (state > 0.0) result[kStateP50Us] = state;
    result[kRestP50Us] = phase_median(steps, [](const StepTimes& t) { return t.rest_us; });
  }
  result[kStepP90Us] = math::percentile(all, 90);
  result[kStepP99Us] = math::percentile(all, 99);
  result[kStepMaxUs] = *std::max_element(all.begin(), all.end());
  // The repetition is the unit of statistics: the reported median belongs to the reported interval.
  const std::vector<double> medians = repetition_medians(steps);
  const math::ConfidenceInterval step = math::median_interval(medians);
  result.set(kStepP50Us, math::median(medians), step);
  result[kRepetitions] = static_cast<int64_t>(steps.size());
  result[kSampleCount] = static_cast<int64_t>(all.size());
  if (!disturbed_shares.empty()) {
    result[kDisturbedShare] = std::accumulate(disturbed_shares.begin(), disturbed_shares.end(), 0.0) /
                              static_cast<double>(disturbed_shares.size());
    result[kDiscardedRepetitions] = discarded;
  }
  if (cold.empty()) return;
  const std::vector<double> cold_medians = repetition_medians(cold);
  const double attends = math::median(cold_medians);
  result.set(on_gpu() ? kGpuP50Us : kColdAttendP50Us, attends, math::median_interval(cold_medians));
  result[kColdReadGbps] = static_cast<double>(read_bytes) / attends * 1e-3;
}

}  // namespace kv::measure
