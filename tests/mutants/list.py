"""Planted bugs: a text of a file, what stands there instead, and the tests that should notice.

Most are in what is reported: statistics, times, bytes, errors, verdicts, tables and charts. A test is named by its file.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str
    old: str  # occurs once
    new: str
    tests: str  # names of test files, the quickest first


MEDIANS, STATS = "harness/math/medians.cc", "harness/math/stats.cc"
CELL, LEDGER = "harness/measure/cell.cc", "harness/memory/ledger.cc"
ACCOUNT = "harness/measure/cell_account.cc"
COMPARE, NOISE = "harness/measure/compare_cells.cc", "harness/measure/noise.cc"
ROWS, VERIFY = "harness/verify/rows.cc", "harness/verify/verify.cc"
DRIVER, TRIAL = "harness/experiments/driver.cc", "harness/experiments/trial.cc"
RESULTS = "harness/results/results_folder.cc"
RESIDUAL = "variants/storage/residual_buffer.cc"
PREFIX = "variants/cache/prefix_cache.cc"
PIECES = "variants/storage/gpu_pieces.cc"
LANE, CHANNELS, WORDS, CHUNK, GPU_RESULTS = (
    f"kernels/cuda/attention/{name}.h" for name in ("decode_lane", "lane_channels", "words", "chunk", "results"))
TIERS, SEGMENTS = "variants/placement/tiers.cc", "variants/placement/segment_pool.cc"
PEERS = "harness/experiments/decode/peer_cells.cc"
CHARTS = "drawn_data_test"
BLOCK_SCORES, BLOCK_WEIGHTS = "kernels/cpu/attention/block_scores.cc", "kernels/cpu/attention/block_weights-inl.h"

MUTANTS = [
    Mutant("harness/claims/check.cc", "s.check->ordering && found.measured_once", "false", "claims_test"),
    Mutant("harness/experiments/reading_run.cc", "predictions[i].loss - baseline.losses[i];", "predictions[i].loss;", "quality_cli_test"),
    Mutant("harness/experiments/reading_run.cc", "const bool is_compared = !cell.result[results::kVersus].empty();", "const bool is_compared = true;", "quality_cli_test"),
    # Statistics
    Mutant(STATS, "const double rank = p / 100 *", "const double rank = p / 110 *", "stats_test"),
    Mutant(STATS, "return percentile(samples, 50)", "return percentile(samples, 40)", "stats_test"),
    Mutant(STATS, "squares * n / (n - 1)", "squares", "stats_test"),
    Mutant(STATS, "kLowPercent = 2.5", "kLowPercent = 10", "stats_test claims_test"),
    Mutant(MEDIANS, "const double less = n % 2 ? 0.58 : 0.85;", "const double less = 2;", "medians_test coverage_test experiment_contract_test"),
    Mutant(MEDIANS, "std::max(n - 1, 1.0) / n;", "std::max(n - 1, 1.0);", "medians_test coverage_test"),
    Mutant(MEDIANS, "std::sqrt(of_a.variance + of_b.variance), 0}", "std::sqrt(of_a.variance), 0}", "medians_test coverage_test"),
    Mutant(MEDIANS, "if (a_over_b.high < 1) return Verdict::kFaster", "if (a_over_b.low < 1) return Verdict::kFaster", "medians_test"),
    Mutant(MEDIANS, "static_cast<double>(order.size() - rank)", "1.0", "medians_test coverage_test"),
    Mutant(MEDIANS, "failed |= p_values[order[rank]] >= level;", "", "medians_test"),
    Mutant(MEDIANS, "std::exp(of_a.median - of_b.median)", "std::exp(of_b.median - of_a.median)", "medians_test"),
    # Tiers
    Mutant(LEDGER, "{.hot = memory - warm_bytes_,", "{.hot = memory,", "ledger_test tiered_test"),
    Mutant(PIECES, "source.layer.key != ahead_)", "source.layer.key.layer != ahead_.layer)", "cuda_tiers_test"),
    Mutant(PIECES, "ahead_slots_.first = slots.of(run_);", "ahead_slots_.first = 0;", "cuda_tiers_test"),
    # Decode on a GPU
    Mutant(CHANNELS, "simt::fma_half2(two, both, 0u)", "two", "cuda_table_test"),
    Mutant(WORDS, "kPlace = 10 - kWidth", "kPlace = 0", "cuda_table_test"),
    Mutant(LANE, "clear_scales(tile, task.end - first);", ";", "cuda_table_test"),
    Mutant(LANE, "too_large |= largest[slot] > kMostWeight;", "", "cuda_table_test"),
    Mutant("kernels/cuda/attention/decode.h", "if (item.of_tail) return", "if (false) return", "cuda_table_test"),
    Mutant("kernels/cuda/attention/tile.h", "first + simt::lane(), last)", "first + simt::lane(), last - 1)", "cuda_table_test"),
    Mutant(GPU_RESULTS, "simt::smaller(token + queries, p.n) - 1", "p.n - 1", "cuda_chunk_test"),
    Mutant(GPU_RESULTS, ".first_token = one_head ? token : 0", ".first_token = token", "cuda_table_test"),
    Mutant(CHUNK, "Lane::clear_scales(ring.ring + at, task.end - row - apart);", "", "cuda_table_test"),
    Mutant(CHUNK, "kItemRows = kMostItemRows / kDecodeWarps", "kItemRows = kMostItemRows", "cuda_chunk_test"),
    Mutant("kernels/cuda/attention/dispatch.h", "queries >= block.kLeastQueries", "true", "cuda_chunk_test"),
    Mutant("harness/experiments/cell_plan.cc", "if (!lacking.empty()) return lacking;", "", "cuda_times_test"),
    # Times and verdicts of a cell
    Mutant(CELL, "result[kStepP90Us] = math::percentile(all, 90)", "result[kStepP90Us] = math::percentile(all, 99)", "experiment_contract_test"),
    Mutant(CELL, "result[kStepP99Us] = math::percentile(all, 99)", "result[kStepP99Us] = math::percentile(all, 90)", "experiment_contract_test"),
    Mutant(CELL, "math::median(medians), step)", "math::median(all), step)", "experiment_contract_test"),
    Mutant(CELL, "math::median_interval(medians)", "math::median_interval(all)", "experiment_contract_test"),
    Mutant("harness/results/row.h", "(*this)[of.low] = interval.low", "(*this)[of.low] = interval.high", "experiment_contract_test"),
    Mutant(CELL, "result[kSampleCount] = static_cast<int64_t>(all.size())", "result[kSampleCount] = static_cast<int64_t>(steps.size())", "experiment_contract_test"),
    Mutant(CELL, "times.view_us += watch.lap()", "times.append_us += watch.lap()", "cli_run_test"),
    Mutant(CELL, "static_cast<double>(read_bytes) / attend * 1e-3", "static_cast<double>(read_bytes) / attend * 2e-3", "cli_run_test"),
    Mutant(CELL, "math::median_interval(cold_medians)", "step", "cli_run_test"),
    Mutant(CELL, "failure.empty() ? results::Status::kOk : results::Status::kFailed", "results::Status::kOk", "broken_variants_test"),
    Mutant(CELL, "errors.failure().empty() ? evictions.failure() : errors.failure()", "errors.failure()", "broken_variants_test"),
    Mutant(CELL, "result[verify::kErrCodecRelL2] = errors.codec_rel_l2", "result[verify::kErrCodecRelL2] = errors.kernel_rel_l2", "experiments_test cli_run_test"),
    Mutant(COMPARE, "if (!results::is_aa_test(row)) row[results::kVerdict]", "row[results::kVerdict]", "experiment_contract_test"),
    Mutant(COMPARE, "ratio.interval(confidence);", "ratio.interval();", "experiment_contract_test"),
    Mutant(COMPARE, "repetition_medians(of.cell->steps), repetition_medians(of.baseline->steps)", "repetition_medians(of.baseline->steps), repetition_medians(of.cell->steps)", "experiment_contract_test"),
    Mutant("harness/measure/timing.cc", "random_interleaving=true", "random_interleaving=false", "cli_run_test"),
    Mutant(TRIAL, "if (measure::runs(*cell)) summarise(*cell);", "summarise(*cell);", "broken_variants_test experiments_test"),
    # Noise
    Mutant(NOISE, "time.total += f", "time.total = f", "noise_test"),
    Mutant(NOISE, "field[3] + field[4]", "field[3]", "noise_test"),
    Mutant(NOISE, "*row[kOthersShare] > kMostOthersShare", "*row[kOthersShare] < kMostOthersShare", "noise_test"),
    Mutant(NOISE, "*row[kColdCeilingShare] > kMostCeilingShare", "*row[kColdCeilingShare] > 2", "noise_test"),
    Mutant(DRIVER, "if (retries > 0) results.drop_unfinished();", "", "claims_test cli_run_test"),
    # Bytes
    Mutant(LEDGER, "count.peak_bytes = std::max(count.peak_bytes, count.current_bytes)", "count.peak_bytes = count.current_bytes", "ledger_test"),
    Mutant(LEDGER, "copied_bytes_ += static_cast<int64_t>(bytes)", "copied_bytes_ += 1", "ledger_test placement_test"),
    Mutant(ACCOUNT, "result[results::kBytesSlack] = payload - in_memory", "result[results::kBytesSlack] = payload", "experiments_test experiment_contract_test"),
    Mutant(ACCOUNT, "result[results::kBytesCopied] = copied - read_back_bytes_", "result[results::kBytesCopied] = copied", "experiments_test cli_run_test"),
    Mutant("harness/experiments/growth/run.cc", "row[results::kBytesSlack] = bytes[t].slack", "row[results::kBytesSlack] = bytes[t].payload", "cli_run_test"),
    Mutant("harness/experiments/growth/run.cc", "static_cast<int64_t>(t) + 1;", "static_cast<int64_t>(t);", "cli_run_test"),
    Mutant(RESIDUAL, "units.waiting + units.rows : 0;", "units.waiting + 2 * units.rows : 0;", "codec_test contract_test"),
    Mutant("variants/core/codec.h", "all - first - waiting) / rows;", "all - first - 2 * waiting) / rows;", "roofline_test codec_test snapshot_test"),
    Mutant("variants/placement/doubling.cc", "while (capacity < units)", "while (capacity <= units)", "placement_test"),
    Mutant("variants/placement/segment_pool.h", "owners_[static_cast<size_t>(segment)] > 1", "owners_[static_cast<size_t>(segment)] > 2", "placement_test snapshot_test"),
    # Errors and what makes a cell fail
    Mutant("harness/verify/metrics/max_abs.cc", "(a - b).abs().maxCoeff", "(a - b).abs().minCoeff", "metrics_test"),
    Mutant("harness/verify/metrics/rel_l2.cc", "difference / norm", "difference", "metrics_test"),
    Mutant("harness/verify/metrics/cosine.cc", "a.dot(b) / norms", "std::abs(a.dot(b)) / norms", "metrics_test"),
    Mutant("harness/verify/metrics/attn_kl.cc", "std::log(want[i] / got[i])", "std::log(got[i] / want[i])", "metrics_test"),
    Mutant(VERIFY, "if (!misstored.empty()) return misstored;", "", "broken_variants_test verify_test"),
    Mutant(ROWS, "if (row < 0) continue;\n        return", "continue;\n        return", "broken_variants_test verify_test"),
    Mutant("harness/verify/rows.cc", "stated.low <= error && error <= stated.high", "error <= stated.high", "codec_check_test"),
    Mutant("harness/verify/reference/attention.cc", "const Index visible = first + i + 1;", "const Index visible = first + i;", "reference_attention_test verify_test"),
    # Retention and placement
    Mutant("variants/core/unit_ring.h", "sinks_ + (unit - sinks_) % window_;", "sinks_ + unit % window_;", "retention_test"),
    Mutant("variants/retention/h2o.cc", "token[slot] > count() - recent_;", "token[slot] > count() - recent_ - 1;", "retention_policies_test retention_test"),
    Mutant("variants/retention/h2o.cc", "score[slot] += weights[slot]", "score[slot] = weights[slot]", "retention_policies_test"),
    # Folders
    Mutant(RESULTS, "return !keep.contains(row[kCell]);", "return false;", "results_test"),
    Mutant(RESULTS, 'read_whole(path / "config.toml") != config', 'read_whole(path / "config.toml") == config', "results_test cli_resume_test"),
    Mutant("harness/results/results_folder.cc", "errno == EWOULDBLOCK", "errno == 0", "results_test"),
    # Formats
    Mutant("kernels/format/bits.h", "return i % words * 32 + i / words * bits;", "return i / words * 32 + i % words * bits;", "encoding_test attention_table_test"),
    Mutant("kernels/format/token.h", "static_cast<float>((1 << (bits - 1)) - 1)", "static_cast<float>(1 << (bits - 1))", "encoding_test codec_test"),
    Mutant("kernels/format/q8_0.h", "std::bit_cast<float>(largest_bits) / 127.0f", "std::bit_cast<float>(largest_bits) / 128.0f", "encode_simd_test"),
    Mutant("kernels/format/q8_0.h", "0x3effffffu", "0x3e000000u", "encode_simd_test"),
    Mutant("kernels/format/channel.h", "if (f16_to_f32(h) <= x) return h;", "return h;", "encode_simd_test"),
    Mutant("kernels/format/channel.h", "return 2 * (half_meta(e.bits) ? 2 : 4) * int64_t{head_dim};", "return 2 * 4 * int64_t{head_dim};", "encoding_test codec_test"),
    Mutant("variants/codec/q8_0.cc", "symmetric_error(8, {32, 32})", "symmetric_error(4, {32, 32})", "codec_check_test codec_test"),
    Mutant("variants/codec/kivi.cc", ".error = affine_error(bits,", ".error = affine_error(bits + 1,", "codec_check_test codec_test"),
    # Selections
    Mutant("variants/selection/quest.cc", "in.q[i] < 0.0f ? d", "in.q[i] > 0.0f ? d", "selection_test"),
    Mutant("variants/selection/quest.cc", "rows / settings_.page * settings_.page);", "rows);", "selection_test"),
    Mutant("variants/selection/quest.cc", "in.scores[static_cast<size_t>(pages - 1)] = INFINITY;", "", "selection_test"),
    Mutant("variants/cache/select.cc", "side.data += first * side.stride;", "side.data += first;", "selection_test contract_test"),
    Mutant("harness/measure/attend_work.cc", "if (selection_->weighs) {", "if (false) {", "cli_selection_test"),
    # More retentions
    Mutant("variants/retention/knorm.cc", "sum += double{x} * x;", "sum += x;", "retention_policies_test"),
    Mutant("variants/retention/knorm.cc", "std::ranges::max_element(scores())", "std::ranges::min_element(scores())", "retention_policies_test"),
    Mutant("variants/retention/tova.cc", "room - 1), .scored = false}", "room), .scored = false}", "retention_policies_test"),
    Mutant("variants/retention/prompt_cut.cc", "values[a] > values[b] : a < b;", "values[a] > values[b] : a > b;", "retention_policies_test retention_test"),
    Mutant("variants/retention/prompt_cut.cc", "reach = kernel / 2;", "reach = kernel;", "retention_policies_test"),
    Mutant("variants/retention/prompt_cut.cc", "dropped_ = prompt_ - std::ssize(keep_);", "dropped_ = prompt_ - std::ssize(keep_) - 1;", "retention_policies_test retention_test"),
    Mutant("variants/retention/duo.cc", "std::clamp<int64_t>(window_ - count_, 1, remaining)", "remaining", "retention_test head_budgets_test"),
    Mutant("variants/cache/appender.cc", "while (head-- > 0) {", "while (false) {", "head_budgets_test"),
    Mutant(SEGMENTS, "(context.most_units(layer) + shape.units - 1)", "(context.max_units + shape.units - 1)", "head_budgets_test"),
    Mutant("variants/retention/ada.cc", "% mean > steps", "% mean < steps", "retention_test"),
    Mutant("variants/retention/expected.cc", "square / (2.0 * static_cast<double>(d))", "square / static_cast<double>(d)", "retention_test"),
    Mutant("variants/retention/expected.cc", "factor = 1.0 / factor;", "factor = 1.0 * factor;", "retention_test"),
    # Losses
    Mutant("harness/measure/prediction.cc", ".loss_change = reference.log_p[token] - log_p", ".loss_change = log_p - reference.log_p[token]", "quality_test"),
    Mutant("harness/measure/prediction.cc", "kl += reference.p[i] *", "kl += std::exp(logits[i] - got.normaliser) *", "quality_test"),
    Mutant("harness/measure/prediction.cc", "s.kl_p99 = math::percentile(kl, 99)", "s.kl_p99 = math::percentile(kl, 90)", "quality_test"),
    Mutant("harness/measure/prediction.cc", ".same_top = got.top == reference.top", ".same_top = true", "quality_test"),
    Mutant("harness/measure/prediction.cc", "for (int64_t at = first; at < last; at += kStretch)", "for (int64_t at = 0; at < last; at += kStretch)", "quality_test"),
    # Claims
    Mutant("harness/claims/figure.cc", '{"GB", 1e9, "GiB", kGi}', '{"GB", 1e9, "GiB", kMi}', "figure_test claims_test"),
    Mutant("harness/claims/figure.cc", "return std::pow(10.0, exponent - decimals);", "return std::pow(10.0, decimals - exponent);", "figure_test"),
    Mutant("harness/claims/figure.cc", '{"ms", 1e-3, {}, 0, true}', '{"ms", 1e-6, {}, 0, true}', "figure_test claims_test"),
    Mutant("harness/claims/check.cc", "values.low > window.high || values.high < window.low ?", "values.high < window.low ?", "claims_test"),
    Mutant("harness/claims/check.cc", "figure.duration ? Window{.low = bound} : Window{.high = bound}", "Window{.high = bound}", "claims_test"),
    Mutant("harness/claims/check.cc", "return {same_setting ? &kContradicted : &kDiffers,", "return {&kContradicted,", "claims_test"),
    Mutant("harness/claims/check.cc", "Agreement agreement() const { return std::max(computed, measured); }", "Agreement agreement() const { return std::min(computed, measured); }", "claims_test"),
    # Configs and what is read
    Mutant("harness/config/braces.cc", "operation == '/' ? budget / n : budget - n", "operation == '/' ? budget / n : budget + n", "config_test"),
    Mutant("harness/config/braces.cc", "if (operation == '/' && budget % n != 0)", "if (false)", "refusals_test"),
    Mutant("harness/config/request_lengths.cc", "request.prompt_tokens + request.output_tokens);", "request.prompt_tokens);", "config_test prefill_test"),
    Mutant("harness/io/request_trace.cc", "if (whole && count >= 0 &&", "if (whole &&", "refusals_test"),
    Mutant("harness/config/model_settings.cc", "} else if (!says_no(value) &&", "} else if (false && !says_no(value) &&", "hugging_face_test"),
    Mutant("harness/model/tensor_shards.cc", "if (place.read || io::", "if (true || io::", "hugging_face_test"),
    Mutant("harness/io/request_trace.cc", "if (time < last_s_)", "if (time < first_s_)", "refusals_test"),
    Mutant("harness/planner/hit_rate.cc", "return live_ - before;", "return live_ - before + 1;", "hit_rate_test"),
    Mutant("harness/planner/hit_rate.cc", "add(time, -1);", ";", "hit_rate_test"),
    Mutant("harness/planner/scheduler.cc", "live.target = live.prompt + live.generated;", "live.target = live.prompt;", "trace_replay_test"),
    Mutant("harness/planner/scheduler.cc", "waiting_.push_front(std::move(live));", "waiting_.push_back(std::move(live));", "trace_replay_test"),
    Mutant("harness/planner/scheduler.cc", "(live.target - 1) / settings_.share_tokens", "live.target / settings_.share_tokens", "serving_test"),
    Mutant("harness/planner/scheduler.cc", "live.lost = live.rows;", "live.lost = 0;", "serving_test"),
    Mutant("harness/planner/scheduler.cc", "plan_.padding += longest - entry.tokens;", "plan_.padding += longest;", "serving_test"),
    Mutant("harness/model/ragged_model.cc", "positions.push_back(part.position + i)", "positions.push_back(part.position + 0 * i)", "ragged_model_test"),
    Mutant("harness/experiments/serve/serving.cc", "prefixes_->evict(units); }", "prefixes_->evict(units - 1); }", "serving_test"),
    Mutant("harness/experiments/serve/serving.cc", "texts_[at(e.request)]).subspan(at(e.from)", "prompts_[at(e.request)]).subspan(at(0)", "serving_test"),
    Mutant("harness/planner/row_groups.h", "return placement_of(spec).shared_bytes(with_pool(spec, blocks).placement, context, {});", "return blocks * (block_bytes() + 8);", "second_pool_test"),
    Mutant("harness/planner/row_groups.h", "budget_.take(static_cast<int64_t>(bytes) * times_);", "budget_.take(static_cast<int64_t>(bytes));", "trace_replay_test"),
    Mutant("harness/config/request_lengths.cc", "static_cast<double>(b.max) + 1.0;", "static_cast<double>(b.max);", "config_test prefill_test"),
    Mutant("harness/io/bytes.cc", "step(units) - 0.5", "step(units)", "bytes_test"),
    Mutant("harness/io/bytes.cc", "units == Units::kBinary ? 1024.0 : 1000.0", "1024.0", "bytes_test"),
    Mutant("harness/memory/machine.cc", "limit - std::max<int64_t>(0, use - reclaimable_bytes(group, files))", "limit - use", "machine_test"),
    Mutant("harness/memory/machine.cc", "least = std::min(least, group_available_bytes(root / path, files));", "least = group_available_bytes(root / path, files);", "machine_test"),
    Mutant("harness/cluster/part.cc", "counted(kind) == 0)", "false)", "experiment_contract_test"),
    Mutant("harness/cluster/check_results.cc", "check.sums += split;", "", "experiment_contract_test"),
    Mutant("harness/experiments/replay/run.cc", "if (!facts_.hits.empty()) curve_ =", "if (false) curve_ =", "experiment_contract_test"),
    Mutant("harness/measure/benchmark_json.cc", "= math::median(times[key]);", "= times[key].front();", "experiment_contract_test"),
    Mutant(RESULTS, 'then[field] == now[field]) continue', 'then[field] != now[field]) continue', "cli_resume_test"),
    # Terminal
    Mutant("harness/measure/noise.cc", "(*row[kRatioP50.low] > 1.0 || *row[kRatioP50.high] < 1.0);", "*row[kRatioP50.low] > 1.0;", "noise_test"),
    Mutant("harness/cli/summary.cc", "noisy += !(*row)[measure::kNoise].empty();", "", "summary_test"),
    Mutant("harness/cli/summary.cc", "constexpr size_t kOwnLines = 4;", "constexpr size_t kOwnLines = 0;", "summary_test"),
    # Roofline
    Mutant("harness/measure/roofline.cc", "compute_us > memory_us ?", "compute_us < memory_us ?", "roofline_test"),
    Mutant("harness/measure/roofline.cc", "/ peaks.codes", "/ peaks.floats", "roofline_test"),
    # Charts
    Mutant("plots/figures/latency.py", 'log_axis(alt.Y, "step_p50_us"', 'log_axis(alt.Y, "step_p90_us"', CHARTS),
    Mutant("plots/figures/latency.py", 'ends = "step_ci_low_us"', 'ends = "step_p50_us"', CHARTS),
    Mutant("plots/figures/latency.py", 'alt.X("ratio_ci_low:Q"), alt.X2("ratio_ci_high:Q")', 'alt.X("ratio_ci_low:Q"), alt.X2("ratio_p50:Q")', CHARTS),
    Mutant("plots/figures/memory.py", 'bytes_axis("bytes_peak"', 'bytes_axis("bytes_payload"', CHARTS),
    Mutant("plots/figures/memory.py", 'pl.col("bytes") > 0', 'pl.col("bytes") > 1e6', CHARTS),
    Mutant("plots/prepare.py", "best_before.is_null() |", "best_before.is_null() &", CHARTS),
    Mutant("plots/prepare.py", "(pl.col(column) > 0 for column in columns)", "(pl.col(column) > 5 for column in columns)", CHARTS),
    Mutant("plots/figures/prefill.py", 'alt.Y2("prefill_ci_high_us:Q")', 'alt.Y2("prefill_p50_us:Q")', CHARTS),
    Mutant("plots/figures/reading.py", 'pl.col("bytes_read") / pl.col("batch")', 'pl.col("bytes_payload") / pl.col("batch")', CHARTS),
    Mutant("plots/figures/reading.py", '["ambiguous", "negligible",', '["ambiguous",', CHARTS + " titles_test"),
    Mutant("plots/figures/beside_baseline.py", 'alt.X("loss_change_ci_low:Q")', 'alt.X("loss_change:Q")', CHARTS),
    Mutant("plots/figures/beside_baseline.py", 'rows.filter("budgeted", "same_bytes")', 'rows.filter("budgeted")', "titles_test"),
    Mutant("plots/figures/growth.py", 'log_axis(alt.Y, "append_total_us"', 'log_axis(alt.Y, "append_total_ci_low_us"', CHARTS),
    Mutant("plots/figures/growth.py", '(pl.col("append_total_ratio_ci_low") > 1) |', '(pl.col("append_total_ratio_ci_low") > 2) |', "figures_test"),
    Mutant("plots/figures/growth.py", 'extremes = (pl.col("step_us").arg_max(), pl.col("step_us").arg_min())', 'extremes = (pl.col("step_us").arg_min(),)', "figures_test"),
    Mutant("plots/figures/quality.py", '"kl_mean_ci_high", 0.13', '"kl_mean", 0.13', CHARTS),
    Mutant("plots/figures/roofline.py", 'low=pl.col("ceiling_share") * pl.col("us") / pl.col("high_us")', 'low=pl.col("ceiling_share") * pl.col("us") / pl.col("low_us")', CHARTS),
    Mutant("plots/figures/roofline.py", 'cells.filter(pl.col("cold_ceiling_share").is_not_null() & (pl.col("seq_len") > 0))', 'cells.filter(pl.col("cold_ceiling_share") > 0.5)', CHARTS),
    Mutant("plots/figures/recall.py", 'pl.col("verdict") == "baseline", versus_full()', 'pl.col("verdict") != "baseline", versus_full()', CHARTS),
    Mutant("plots/figures/batch.py", 'pl.col("bytes") > 0', 'pl.col("bytes") > 1e6', CHARTS),
    Mutant("plots/prepare.py", '(pl.col("error") < best_before)', '(pl.col("error") <= best_before)', CHARTS),
    Mutant("plots/prepare.py", '(pl.col("status") == "ok") & ~is_aa_test()', '(pl.col("status") == "ok")', CHARTS),
    # Attention, whose oracles are elsewhere
    Mutant("kernels/cpu/attention/attend.cc", "place(int64_t split, int64_t query) const { return split * held + query % held; }", "place(int64_t split, int64_t query) const { return split * held + query % 1; }", "attention_table_test"),
    Mutant("kernels/cpu/attention/attend.cc", "#pragma omp parallel if (threads)", "", "attention_test"),
    Mutant("kernels/cpu/attention/attend.cc", ".end = p.visible + p.n - 1}", ".end = p.visible}", "attention_table_test"),
    Mutant("kernels/cpu/attention/attend.cc", "norm = f.a / state.sum;", "norm = 1.0f / state.sum;", "attention_table_test"),
    Mutant("kernels/cpu/attention/prefill_simd.cc", "scores_, mask.rows * kPanelTokens, 1.0f", "scores_, kPanelTokens, 1.0f", "attention_table_test"),
    Mutant("harness/model/model.cc", "config().window(l) > 0 && rows.window_angles.size() > 0 ? rows.window_angles : rows.angles", "rows.angles", "families_test"),
    Mutant("harness/model/model.cc", "read.array() /= 1.0f + (-gates.array()).exp();", ";", "families_test"),
    Mutant("harness/model/model.cc", "spread_pairs(config().rope.rotated, config().head_dim(), *side);", "", "families_test"),
    Mutant("variants/core/rope.cc", "plain = backwards ? -speed : speed;", "plain = speed;", "families_test"),
    Mutant("harness/model/step_rows.cc", ".score_cap = config.score_cap", ".score_cap = 0.0f", "families_cache_test"),
    Mutant("harness/model/linear_rows.cc", "std::copy(inputs.end() - past, inputs.end(), window.begin());", "",
           "linear_rows_test"),
    Mutant("harness/model/model.cc", "if (gates.size() > 0) gates = gates(from, Eigen::all).eval();", "", "families_cache_test"),
    Mutant("harness/model/model.cc", "for (Matrix* m : {&x, &angles, &window_angles})", "for (Matrix* m : {&x, &angles})", "families_cache_test"),
    Mutant("harness/model/cached_model.cc", "from.push_back(group * each + i)", "from.push_back(i)", "families_cache_test quality_test"),
    Mutant("harness/model/cached_model.cc", "own.size() * sizeof(float)) == 0;", "sizeof(float)) >= -1000;", "families_cache_test quality_test"),
    Mutant("harness/experiments/task/run.cc", "\"before\" ? q.asked", "\"before\" ? q.answer", "task_cli_test"),
    Mutant("harness/model/cached_model.cc", "layer = std::move(copies);", "layer.resize(copies.size());", "linear_rows_test"),
    Mutant("harness/experiments/model/model_steps.cc", "window * (window + 1) / 2", "window * window / 2", "model_steps_cli_test"),
    Mutant("kernels/cpu/attention/token_values.cc", "HWY_UNROLL(4)", "", "registers_test"),
    # Sequences that live
    Mutant(RESIDUAL, "first_raw_ = std::max(first_raw_, rows - codec_.first - ring_);", "", "cache_machine_test"),
    Mutant(RESIDUAL, "copy.first_raw_ = first_raw_;", "", "cache_machine_test"),
    Mutant("variants/retention/tova.cc", "if (forgets) clear_scores();", "", "cache_machine_test"),
    Mutant(TIERS, "!(partial && pool_.is_shared(segment))", "true", "truncation_test"),
    Mutant("variants/cache/sequence.cc", "of.residual[layer].truncate(tokens);", ";", "cache_machine_test"),
    Mutant("variants/placement/placement.cc", "} catch (const std::bad_alloc&) {\n  }", "} catch (const std::logic_error&) {\n  }", "truncation_test"),
    Mutant(PREFIX, "entry.second->parent == parent &&", "", "prefix_cache_test"),
    Mutant(PREFIX, "node->children == 0 && node->users == 0", "node->children == 0", "prefix_cache_test cache_machine_test"),
    Mutant(PREFIX, "    node->used = now_;\n", "", "cache_machine_test"),
    Mutant(SEGMENTS, "for (const int32_t segment : segments_) pool_.drop_owner(segment);", "", "cache_machine_test"),
    Mutant("variants/cache/serialize.cc", "if (p.is_capacity) stage.values[name] = p.fallback;", "", "snapshot_test"),
    Mutant(TIERS, "!pool_.slot(segment) && moving_", "moving_", "cache_machine_test"),
    Mutant(SEGMENTS, "owners_[static_cast<size_t>(to)] = std::exchange(owners, 0);", "owners_[static_cast<size_t>(to)] = 1, owners = 0;", "cache_machine_test"),
    Mutant("harness/measure/drafts.cc", "cache.truncate(ids[static_cast<size_t>(i)], step.keeps[static_cast<size_t>(i)]);", ";", "drafts_test"),
    Mutant("harness/planner/measured_steps.cc", "static_cast<double>(sequences), rows / layers_}", "static_cast<double>(sequences), rows}", "measured_steps_test"),
    # Planned, and done without
    Mutant("variants/placement/read_copies.cc", "planes_bytes(context, units) * repeats : 0", "planes_bytes(context, units) : 0", "placement_test"),
    Mutant("harness/experiments/decode/run.cc", "2 * measure::copied_bytes(point, cell.spec)", "0", "cli_run_test"),
    Mutant("harness/experiments/growth/uncached_rows.cc", "lay_out(prompts_[at].v, tokens_, tokens, width, step_.v);", "lay_out(prompts_[at].k, tokens_, tokens, width, step_.v);", "cli_run_test"),
    # Rotations
    Mutant("kernels/cpu/hadamard.cc", "to[i + 3] = a_b - c_d;", "to[i + 3] = a_b + c_d;", "hadamard_test"),
    Mutant("variants/cache/attender.cc", "if (stages_.hadamard && !reads_own_rows(layer, in)) stages_.hadamard->restore({&in, 1});", "", "contract_test"),
    Mutant("variants/cache/attender.cc", "if (stages_.hadamard) queries_ = stages_.hadamard->queries(inputs);", "", "contract_test"),
    # Small floats and TurboQuant
    Mutant("kernels/format/mx.cc", "Element::encode(block[i] * inverse_scale)", "Element::encode(block[i] * inverse_scale * 0.5f)", "microscaling_test"),
    Mutant("kernels/format/nvfp4.cc", "std::bit_cast<float>(largest) / kLargestE2m1", "std::bit_cast<float>(largest) / 4.0f", "microscaling_test"),
    Mutant("kernels/format/turbo.cc", "load<uint16_t>(meta, 1)) * kSketchGain", "load<uint16_t>(meta, 1))", "turbo_test"),
    Mutant("kernels/format/turbo.cc", "std::abs(x) > 0.5f * (level[i] + level[i + 1])", "std::abs(x) > level[i]", "turbo_test"),
    Mutant("kernels/cpu/encode/decode_levels.cc", "const BlockScale<16> scale(", "const BlockScale<32> scale(", "decode_levels_test"),
    Mutant("variants/cache/hadamard_rows.cc", "if (v_ == Rotation::kRandom) flip_signs(in.out,", "if (false) flip_signs(in.out,", "contract_test"),
    # Learned codebooks
    Mutant("kernels/format/vq.cc", "left[i] -= words[word * kVqValues + i];", "left[i] -= 0.0f;", "vq_test"),
    Mutant("variants/placement/placement.cc", "context_.tables_of(layer, head / repeats());", "context_.tables_of(layer, 0);", "codebooks_test"),
    Mutant("variants/placement/placement.h", "context_.tables_of(layer, head));", "context_.tables_of(layer, 0));", "codebooks_test"),
    Mutant("variants/cache/layout.cc", "codec.layers = shape.model_layers;", "", "codebooks_test"),
    # K's mean
    Mutant(RESIDUAL, "if (row < codec_.mean_rows) return key;", "return key;", "k_mean_test"),
    Mutant(RESIDUAL, "rows_ < codec_.mean_rows ? 0 : codec_.mean_rows;", "0;", "cache_machine_test"),
    Mutant(RESIDUAL, "std::copy_n(means_.data(), means_.size(), copy.means_.data());", "", "cache_machine_test"),
    Mutant("variants/storage/host_storage.cc", "if (!centred.empty()) raw.flush();", "", "cache_machine_test"),
    # Intervals of errors, and budgets by layer
    Mutant(MEDIANS, "standard_error / mean, student_quantile", "standard_error, student_quantile", "medians_test coverage_test"),
    Mutant("harness/experiments/budget/run.cc", "cell.errors(feed, t + 1, i, i + 1)", "cell.errors(feed, t + 1, 0, 1)", "experiments_test"),
    Mutant("harness/workload/sources.cc", "of_window(spec, i * tokens, tokens)", "of_window(spec, 0, tokens)", "quality_cli_test"),
    Mutant("variants/retention/pyramid.cc", "step * end * (end - 1) / 2.0", "step * end * end / 2.0", "layer_specs_test"),
    Mutant("plots/prepare.py", 'pl.coalesce(low, "error") <= certain', 'pl.col("error") <= certain', CHARTS),
    Mutant("plots/prepare.py", '.last().over([*group, "per_token"])', '.first().over([*group, "per_token"])', CHARTS),
    # Other engines
    Mutant(PEERS, "floats + at.v + before", "floats + at.k + before", "cli_peers_test"),
    Mutant(PEERS, "other->spec == LayerSpecs(wanted)", "other != nullptr", "cli_peers_test"),
    Mutant("harness/peers/process.cc", "prctl(PR_SET_PDEATHSIG, SIGKILL);", "", "cli_peers_test"),
    Mutant("harness/peers/serve.py", "os.dup2(2, 1)", "", "cli_peers_test"),
    Mutant("plots/figures/peers.py", '"high": f"{ratio}_ci_high"', '"high": f"{ratio}_p50"', CHARTS),
    # 8-bit arithmetic
    Mutant(BLOCK_SCORES, "hn::Set(df, steps[of_block])", "hn::Set(df, steps[0])", "attention_table_test"),
    Mutant(BLOCK_WEIGHTS, "hn::Set(sums, -kMiddle<F::kBits>)", "hn::Set(sums, 1 - kMiddle<F::kBits>)", "attention_table_test"),
    Mutant("kernels/cpu/attention/attention_simd.cc", "(is_int8() && format.middle_code == 0 ? score_blocks_int8 : score_blocks)", "(score_blocks)", "attention_table_test"),
]
