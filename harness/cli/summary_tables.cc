#include "harness/cli/summary_tables.h"

#include <algorithm>

#include "harness/experiments/experiment.h"
#include "harness/io/bytes.h"

namespace kv::cli {
namespace {

std::string bytes_text(std::initializer_list<results::Integer> parts) {
  int64_t total = 0;
  for (const results::Integer& part : parts) total += part.value_or(0);
  return io::human_bytes(total);
}

std::string verdict_text(const results::CellResult& row) {
  if (row.verdict == "baseline" || !row.ratio_p50) return row.verdict;
  return with_interval(row.ratio_p50, row.ratio_ci_low, row.ratio_ci_high, "%.2f") +
         (row.is_aa_test() ? "" : " " + row.verdict) + (row.noise.empty() ? "" : ", noisy");
}

// With the interval of the time: the slower, the smaller the share.
std::string cold_share(const results::CellResult& row) {
  const std::optional<double> share = row.cold_ceiling_share, time = row.cold_attend_p50_us,
                              low = row.cold_ci_low_us, high = row.cold_ci_high_us;
  if (!share || !time || !low || !high) return percent(share);
  const double scaled = 100 * *share * *time;
  return percent(share) + " (" + format("%.0f", scaled / *high) + "–" + format("%.0f", scaled / *low) + ")";
}

// One kind of table for each kind of experiment or phase: its head, and a row.
enum class Kind { kDecode, kRagged, kPrefill, kQuality, kStream, kGenerate, kModel, kReplay };

Kind kind_of(const results::CellResult& row) {
  const auto all = experiments::experiments();
  const auto of = std::find_if(all.begin(), all.end(), [&](const experiments::Experiment* e) {
    return e->info.name == row.experiment;
  });
  switch (of == all.end() ? config::SummaryTable::kSteps : (*of)->info.summary) {
    case config::SummaryTable::kQuality:
      return Kind::kQuality;
    case config::SummaryTable::kStream:
      return Kind::kStream;
    case config::SummaryTable::kGenerate:
      return Kind::kGenerate;
    case config::SummaryTable::kModel:
      return Kind::kModel;
    case config::SummaryTable::kReplay:
      return Kind::kReplay;
    case config::SummaryTable::kSteps:
      break;
  }
  if (row.phase == "prefill") return Kind::kPrefill;
  return row.lengths.empty() ? Kind::kDecode : Kind::kRagged;
}

Strings head_of(Kind kind) {
  switch (kind) {
    case Kind::kDecode:
      return {"variant",         "held",           "step p50, us (95 %)", "% of read GB/s", "error",
              "cold / baseline", "step / baseline"};
    case Kind::kRagged:
      return {"variant", "held", "step p50, us (95 %)", "waste", "error", "step / baseline"};
    case Kind::kPrefill:
      return {"variant and arm", "workspace", "prefill p50, us (95 %)",
              "tokens/s",        "error",     "time / materialised"};
    case Kind::kQuality:
      return {"variant", "bytes a token",  "perplexity", "loss change, nats (95 %)",
              "KL mean", "same top token", "verdict"};
    case Kind::kStream:
      return {"variant", "bytes a token", "perplexity", "loss change, nats (95 %)", "tokens/s", "verdict"};
    case Kind::kGenerate:
      return {"variant", "bytes a token", "temperature", "same tokens p50",
              "min",     "same texts",    "of",          "tokens/s"};
    case Kind::kModel:
      return {"variant", "tokens/s (95 %)", "cache", "roofline", "read", "TTFT, s", "step / baseline"};
    case Kind::kReplay:
      return {"variant",
              "running p50",
              "peak",
              "preempted per 1,000",
              "refused",
              "hit rate",
              "per token p99, ms",
              "TTFT p99, s (95 %)",
              "good requests (95 %)"};
  }
  return {};
}

std::string perplexity_text(const results::CellResult& row) {
  return number(row.perplexity, "%.4g") +
         (row.perplexity_se ? " ± " + number(row.perplexity_se, "%.2g") : "");
}

std::string loss_change_text(const results::CellResult& row) {
  if (row.verdict == "baseline") return "-";
  return with_interval(row.loss_change, row.loss_change_ci_low, row.loss_change_ci_high, "%+.2g");
}

std::string good_text(const results::CellResult& row) {
  const auto hundred = [](const results::Number& share) {
    return share ? results::Number(100 * *share) : results::Number();
  };
  return with_interval(hundred(row.good_share), hundred(row.good_share_ci_low),
                       hundred(row.good_share_ci_high), "%.1f") +
         " %";
}

// Of a cell that was measured; but for its name.
Strings fields_of(const results::CellResult& row) {
  const std::string held = row.peer_bytes_reported
                               ? bytes_text({row.peer_bytes_reported}) + " *"
                               : bytes_text({row.bytes_payload, row.bytes_metadata, row.bytes_slack}),
                    step = with_interval(row.step_p50_us, row.step_ci_low_us, row.step_ci_high_us, "%.1f"),
                    error = number(row.metric("err_rel_l2"), "%.1e"),
                    token_bytes = number(row.held_bytes_per_token, "%.0f"),
                    rate = number(row.tokens_per_s, "%.0f");
  switch (kind_of(row)) {
    case Kind::kDecode: {
      const std::string cold =
          with_interval(row.cold_ratio_p50, row.cold_ratio_ci_low, row.cold_ratio_ci_high, "%.2f");
      return {held, step, cold_share(row), error, cold, verdict_text(row)};
    }
    case Kind::kRagged:
      return {held, step, percent(row.waste_share), error, verdict_text(row)};
    case Kind::kPrefill:
      return {bytes_text({row.bytes_workspace_peak}),
              with_interval(row.prefill_p50_us, row.prefill_ci_low_us, row.prefill_ci_high_us, "%.0f"),
              number(row.prefill_tokens_per_s, "%.0f"), error, verdict_text(row)};
    case Kind::kQuality: {
      const std::string top = row.top1_agreement ? format("%.2f %%", 100 * *row.top1_agreement) : "-";
      return {token_bytes, perplexity_text(row), loss_change_text(row), number(row.kl_mean, "%.2e"),
              top,         row.verdict};
    }
    case Kind::kStream:
      return {token_bytes, perplexity_text(row), loss_change_text(row), rate, row.verdict};
    case Kind::kGenerate:
      return {token_bytes,
              number(row.temperature, "%g"),
              number(row.common_tokens_p50, "%g"),
              number(row.common_tokens_min, "%g"),
              number(row.same_texts, "%g"),
              number(row.batch, "%g"),
              rate};
    case Kind::kModel: {
      const std::string first = row.prefill_p50_us ? format("%.3g", *row.prefill_p50_us * 1e-6) : "-";
      return {with_interval(row.tokens_per_s, row.tokens_per_s_ci_low, row.tokens_per_s_ci_high, "%.3g"),
              percent(row.cache_share),
              percent(row.step_bound_share),
              percent(row.projections_share),
              first,
              verdict_text(row)};
    }
    case Kind::kReplay:
      return {number(row.running_p50, "%g"),
              number(row.running_peak, "%g"),
              number(row.preemptions_per_1000, "%.1f"),
              number(row.refused, "%g"),
              percent(row.hit_rate),
              number(row.tpot_p99_ms, "%.1f"),
              with_interval(row.ttft_p99_s, row.ttft_p99_s_ci_low, row.ttft_p99_s_ci_high, "%.3g"),
              good_text(row) + " " + row.times_from};
  }
  return {};
}

Strings table_row(const results::CellResult& row) {
  Strings fields{row_name(row)};
  if (row.status == results::Status::kOk) {
    for (std::string& field : fields_of(row)) fields.push_back(std::move(field));
  } else {
    fields.push_back(results::text_of(row.status));
    fields.resize(head_of(kind_of(row)).size());
  }
  return fields;
}

// "0.42–0.97" of what is there.
std::string range(const Cells& cells, const char* pattern,
                  results::Number (*value)(const results::CellResult&)) {
  results::Number low, high;
  for (const results::CellResult* row : cells) {
    const results::Number x = value(*row);
    if (!x) continue;
    low = low ? std::min(*low, *x) : *x;
    high = high ? std::max(*high, *x) : *x;
  }
  if (!low) return "-";
  const std::string from = format(pattern, *low), to = format(pattern, *high);
  return from == to ? from : from + "–" + to;
}

// What a variant's cells of one experiment range over.
Strings variant_row(const std::string& name, const Cells& cells) {
  using Cell = results::CellResult;
  const auto ok = std::count_if(cells.begin(), cells.end(),
                                [](const Cell* row) { return row->status == results::Status::kOk; });
  return {name,
          std::to_string(ok) + " of " + std::to_string(cells.size()),
          range(cells, "%.2f", [](const Cell& row) { return row.ratio_p50; }),
          range(cells, "%.2f", [](const Cell& row) { return row.cold_ratio_p50; }),
          range(cells, "%.1e", [](const Cell& row) { return row.metric("err_rel_l2"); }),
          range(cells, "%+.2g", [](const Cell& row) { return row.loss_change; })};
}

// Which come first where not all have room: the fastest of what was timed, else the most exact.
double order_of(const Cells& cells) {
  double order = 1e300;
  for (const results::CellResult* row : cells) {
    for (const results::Number& value : {row->ratio_p50, row->loss_change, row->metric("err_rel_l2")}) {
      if (!value) continue;
      order = std::min(order, *value);
      break;
    }
  }
  return order;
}

// Leaves out columns in which no row has a value.
std::vector<Strings> without_empty_columns(std::vector<Strings> table) {
  for (size_t column = table.front().size(); column-- > 0;) {
    const bool empty =
        std::all_of(table.begin() + 1, table.end(), [&](const Strings& row) { return row[column] == "-"; });
    if (!empty) continue;
    for (Strings& row : table) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return table;
}

// "256.0 KiB, 12.6, 10 %": what a step reads of a tier, how fast in GB/s, and that as a share of its ceiling.
std::string tier_text(const results::Integer& bytes, const results::Number& gbps,
                      const results::Number& share) {
  if (!bytes) return "-";
  return bytes_text({bytes}) + (gbps ? ", " + number(gbps, "%.3g") : "") +
         (share ? ", " + percent(share) : "");
}

// A narrow terminal keeps the last column.
Strings tiers_row(const results::CellResult& row) {
  return {row_name(row),
          tier_text(row.read_hot_bytes, row.hot_read_gbps, row.hot_ceiling_share),
          tier_text(row.read_warm_bytes, row.warm_read_gbps, row.warm_ceiling_share),
          row.tier_bound.empty() ? "-" : number(row.tier_bound_us, "%.1f") + " " + row.tier_bound,
          percent(row.disk_device_share),
          tier_text(row.read_disk_bytes, row.disk_read_gbps, row.disk_ceiling_share)};
}

// Of cells whose placement has several tiers.
std::string tiers_table(const Cells& cells, size_t width) {
  std::vector<Strings> table{
      {"a step reads, GB/s, % of ceiling", "hot", "warm", "bound, us", "from a device", "disk"}};
  for (const results::CellResult* row : cells) {
    if (row->bytes_warm && row->status == results::Status::kOk) table.push_back(tiers_row(*row));
  }
  return table.size() == 1 ? "" : fitted(without_empty_columns(std::move(table)), width);
}

// Of cells that have verified drafts, and below it why others cannot.
std::string drafts_table(const Cells& cells, size_t width) {
  std::vector<Strings> table;
  std::string refused;
  for (const results::CellResult* row : cells) {
    if (!row->draft_tokens || row->status != results::Status::kOk) continue;
    if (table.empty())
      table.push_back({std::to_string(*row->draft_tokens) + " drafts a step", "tokens that stay", "step, us",
                       "a token / a plain step"});
    if (!row->draft_refused.empty()) {
      refused += wrapped("  no drafts with " + row_name(*row) + ": " + row->draft_refused, width);
      continue;
    }
    table.push_back(
        {row_name(*row), number(row->draft_stays_mean, "%.2f"), number(row->draft_step_p50_us, "%.1f"),
         with_interval(row->draft_ratio_p50, row->draft_ratio_ci_low, row->draft_ratio_ci_high, "%.2f")});
  }
  return (table.size() < 2 ? "" : fitted(std::move(table), width)) + refused;
}

}  // namespace

std::string sweep_point_table(const Cells& cells, size_t width) {
  std::vector<Strings> table{head_of(kind_of(*cells.front()))};
  for (const results::CellResult* row : cells) table.push_back(table_row(*row));
  return fitted(std::move(table), width) + tiers_table(cells, width) + drafts_table(cells, width);
}

std::string experiment_table(const Cells& cells, size_t width, size_t most_rows) {
  std::vector<std::pair<std::string, Cells>> variants = grouped(cells, row_name);
  std::string left_out;
  if (variants.size() > most_rows) {
    left_out = "  … and " + std::to_string(variants.size() - most_rows) + " more\n";
    std::stable_sort(variants.begin(), variants.end(),
                     [](const auto& a, const auto& b) { return order_of(a.second) < order_of(b.second); });
    variants.resize(most_rows);
  }
  std::vector<Strings> table{
      {"variant", "measured", "time / baseline", "cold / baseline", "error", "loss change"}};
  for (const auto& [variant, its] : variants) table.push_back(variant_row(variant, its));
  return fitted(without_empty_columns(table), width) + left_out;
}

}  // namespace kv::cli
