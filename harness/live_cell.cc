#include "harness/live_cell.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "harness/environment.h"
#include "harness/policy_check.h"
#include "harness/stats.h"
#include "kernels/attention.h"
#include "kernels/encoding.h"
#include "variants/registry.h"

namespace kv {
namespace {

int64_t units(const Side& side, int64_t rows) {
  return (rows + side.encoding.group - 1) / side.encoding.group;
}

// Payload among `bytes` of whole units: the rest of them are scales and zero points.
int64_t payload_of_units(const Spec& spec, int head_dim, int64_t bytes) {
  const Codec codec = codec_of(spec).make(spec.codec);
  int64_t data = 0, all = 0;
  for (const Encoding* side : {&codec.k, &codec.v}) {
    const int64_t encoded = codec.unit_rows() / side->group;
    data += encoded * unit_data_bytes(*side, head_dim);
    all += encoded * (unit_data_bytes(*side, head_dim) + unit_meta_bytes(*side, head_dim));
  }
  return bytes / all * data;
}

// The median of one phase over all samples.
template <class Get>
double phase_median(const std::vector<std::vector<StepTimes>>& steps, Get get) {
  std::vector<double> values;
  for (const auto& repetition : steps) {
    for (const StepTimes& t : repetition) values.push_back(get(t));
  }
  return median(values);
}

}  // namespace

AttendWork attend_work(Cache& cache, std::span<const SequenceId> ids) {
  AttendWork work;
  const CacheShape& s = cache.shape();
  const bool decoded = codec_of(cache.spec()).make(cache.spec().codec).read_copy,
             turned = turns_rows(cache.spec());
  const auto add = [&](const Side& side, int64_t rows, bool as_codes) {
    work.payload += units(side, rows) * unit_data_bytes(side.encoding, s.head_dim);
    work.metadata += units(side, rows) * unit_meta_bytes(side.encoding, s.head_dim);
    int64_t& multiply_adds = as_codes ? work.multiply_adds.codes : work.multiply_adds.floats;
    multiply_adds += rows * s.head_dim * s.group();
  };
  for (const SequenceId id : ids) {
    for (int layer = 0; layer < s.layers; ++layer) {
      for (int head = 0; head < s.kv_heads; ++head) {
        for (const Span& span : cache.spans(id, layer, head)) {
          add(span.k, span.rows, !decoded && !turned && scores_codes(span.k.encoding, s.head_dim));
          add(span.v, span.rows, !decoded && weighs_codes(span.v.encoding, s.head_dim));
        }
      }
    }
  }
  return work;
}

StepTimes LiveCell::step(TokenFeed& feed, int64_t token, std::span<const SequenceId> sequences,
                         bool attend) const {
  StepTimes times;
  for (int layer = 0; layer < cache->shape().layers; ++layer) {
    const std::span<const StepInput> inputs = feed.inputs(layer, token, sequences);
    Stopwatch watch;
    cache->append(layer, inputs);
    times.append_us += watch.lap() * 1e6;
    cache->view(layer, inputs);
    times.view_us += watch.lap() * 1e6;
    if (!attend && !retention_of(spec).scores) continue;
    cache->attend(layer, inputs);
    times.attend_us += watch.lap() * 1e6;
  }
  return times;
}

void LiveCell::account(std::span<const int64_t> lengths, std::span<const int64_t> prompts) {
  ledger->assert_balanced();
  // Looking at the rows slices them in read=copy variants: copies of ours, not of the variant's steps.
  const int64_t workspace_peak = ledger->workspace().peak_bytes, copied = ledger->copied_bytes();
  row.set("bytes_copied", copied - looked_bytes_);
  const AttendWork used = attend_work(*cache, ids);
  looked_bytes_ += ledger->copied_bytes() - copied;
  const int64_t payload = ledger->payload().current_bytes, metadata = ledger->metadata().current_bytes;
  const std::vector<int64_t> alike(lengths.size(), prompt);
  const int64_t predicted = predicted_bytes(spec, cache->shape(), lengths, prompts.empty() ? alike : prompts);
  if (payload + metadata != predicted) {
    throw std::logic_error("'" + spec.print() + "' holds " + std::to_string(payload + metadata) +
                           " bytes, but its closed form says " + std::to_string(predicted));
  }
  const int64_t disk = ledger->disk().current_bytes;
  if (disk != predicted_disk_bytes(spec, cache->shape(), lengths)) {
    throw std::logic_error("'" + spec.print() + "' has " + std::to_string(disk) +
                           " bytes on the disk, but its closed form says otherwise");
  }
  // The spans show rows in files too.
  const int64_t in_memory = used.payload - payload_of_units(spec, cache->shape().head_dim, disk);
  if (in_memory > payload) {
    throw std::logic_error("'" + spec.print() + "' shows spans of " + std::to_string(in_memory) +
                           " bytes in memory, but the ledger has " + std::to_string(payload));
  }
  row.set("bytes_payload", in_memory);
  row.set("bytes_metadata", metadata);
  row.set("bytes_slack", payload - in_memory);
  row.set("bytes_disk", disk);
  row.set("bytes_workspace_peak", workspace_peak);
  row.set("bytes_predicted", predicted);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  row.set("held_bytes_per_token",
          static_cast<double>(payload + metadata + disk) / static_cast<double>(tokens));
  row.set("bytes_device_peak", ledger->device().peak_bytes);
  row.set("rss_peak_bytes", peak_rss_bytes());
  read_bytes = used.payload + used.metadata;
  multiply_adds = used.multiply_adds;
}

Errors LiveCell::errors(TokenFeed& feed, int64_t tokens) {
  std::vector<Output> outputs;
  for (int i = 0; i < feed.sequences(); ++i) {
    for (int layer = 0; layer < cache->shape().layers; ++layer) {
      outputs.push_back({.sequence = ids[static_cast<size_t>(i)],
                         .workload_sequence = i,
                         .layer = layer,
                         .q = feed.q(layer, i, tokens - 1),
                         .out = feed.out(layer, i)});
    }
  }
  return verify(*cache, *workload, tokens, outputs);
}

bool LiveCell::judge(const Errors& errors, int64_t positions) {
  errors.write(row);
  row.set("err_positions", positions);
  row.set("kept_tokens", static_cast<int64_t>(cache->kept(ids.front(), 0, 0).size()));
  const PolicyCheck evictions = check_policy(spec, *workload, cache->shape().max_tokens, prompt);
  evictions.write(row);
  const std::string failure = errors.failure().empty() ? evictions.failure() : errors.failure();
  row.set("status", failure.empty() ? "ok" : "failed");
  row.set("reason", failure);
  return failure.empty();
}

std::vector<double> step_medians(const LiveCell& cell) {
  std::vector<double> medians;
  for (const auto& repetition : cell.steps) {
    std::vector<double> values;
    for (const StepTimes& t : repetition) values.push_back(t.step_us());
    medians.push_back(median(values));
  }
  return medians;
}

void LiveCell::summarise() {
  if (steps.empty()) return;
  std::vector<double> all;
  for (const auto& repetition : steps) {
    for (const StepTimes& t : repetition) all.push_back(t.step_us());
  }
  const double attend = phase_median(steps, [](const StepTimes& t) { return t.attend_us; });
  row.set("append_p50_us", phase_median(steps, [](const StepTimes& t) { return t.append_us; }));
  row.set("view_p50_us", phase_median(steps, [](const StepTimes& t) { return t.view_us; }));
  if (attend > 0.0) {
    row.set("attend_p50_us", attend);
    row.set("read_gbps", static_cast<double>(read_bytes) / attend * 1e-3);
  }
  row.set("step_p50_us", median(all));
  row.set("step_p90_us", percentile(all, 90));
  row.set("step_p99_us", percentile(all, 99));
  row.set("step_max_us", *std::max_element(all.begin(), all.end()));
  const ConfidenceInterval step = median_interval(step_medians(*this));
  row.set("step_ci_low_us", step.low);
  row.set("step_ci_high_us", step.high);
  row.set("repetitions", static_cast<int64_t>(steps.size()));
  row.set("samples", static_cast<int64_t>(all.size()));
  if (cold_us.empty()) return;
  std::vector<double> cold;
  for (const auto& repetition : cold_us) cold.insert(cold.end(), repetition.begin(), repetition.end());
  const ConfidenceInterval interval = median_interval(repetition_medians(cold_us));
  row.set("cold_attend_p50_us", median(cold));
  row.set("cold_ci_low_us", interval.low);
  row.set("cold_ci_high_us", interval.high);
  row.set("cold_read_gbps", static_cast<double>(read_bytes) / median(cold) * 1e-3);
}

}  // namespace kv
