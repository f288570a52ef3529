#include "harness/experiments/cell_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/metrics/list.h"

namespace kv::experiments {
namespace {

using results::Row;

const results::Number& output_error(const Row& row) { return row[verify::metric::rel_l2.column]; }

// Another engine's bytes as it reports them, marked as such. In parentheses those of the whole model, if a part of its
// layers was measured.
std::string held_text(const Row& row) {
  if (row[measure::kPeerBytesReported]) return io::human_bytes(*row[measure::kPeerBytesReported]) + " *";
  return io::human_bytes(row[results::kBytesPayload].value_or(0) + row[results::kBytesMetadata].value_or(0) +
                         row[results::kBytesSlack].value_or(0)) +
         (row[results::kModelBytes] ? " (" + io::human_bytes(*row[results::kModelBytes]) + ")" : "");
}

std::string step_text(const Row& row) { return with_interval(row, measure::kStepP50Us, "%.1f"); }

// The share's interval is the time's, reversed: the slower, the smaller.
std::string cold_share(const Row& row) {
  const std::optional<double> share = row[measure::kColdCeilingShare], time = row[measure::kColdAttendP50Us],
                              low = row[measure::kColdAttendP50Us.low],
                              high = row[measure::kColdAttendP50Us.high];
  if (!share || !time || !low || !high) return percent(share);
  const double scaled = 100 * *share * *time;
  return percent(share) + " (" + format("%.0f", scaled / *high) + "–" + format("%.0f", scaled / *low) + ")";
}

std::string cold_ratio(const Row& row) { return with_interval(row, measure::kColdRatioP50, "%.2f"); }

std::string perplexity_text(const Row& row) {
  return number(row[measure::kPerplexity], "%.4g") +
         (row[measure::kPerplexitySe] ? " ± " + number(row[measure::kPerplexitySe], "%.2g") : "");
}

std::string loss_change(const Row& row) { return with_interval(row, measure::kLossChange, "%+.2g"); }

// The columns of cells.csv for which this holds.
results::ColumnList columns_that(bool (*holds)(const results::AnyColumn&)) {
  results::ColumnList found;
  std::ranges::copy_if(cell_table().columns, std::back_inserter(found),
                       [&](const results::AnyColumn* column) { return holds(*column); });
  return found;
}

std::string output_error_in_short(const Row& row) { return number(output_error(row), "%.1e"); }

}  // namespace

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string rounded_tokens(double tokens, int digits) {
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(tokens)) + 1 - digits));
  return format("%.0f", std::round(tokens / unit) * unit);
}

std::string number(const results::Number& value, const char* pattern) {
  return value ? format(pattern, *value) : "-";
}
std::string number(const results::Integer& value, const char* pattern) {
  return value ? format(pattern, static_cast<double>(*value)) : "-";
}

std::string layers_text(const Row& row, const char* end) {
  const results::Integer &layers = row[results::kLayers], &all = row[results::kModelLayers];
  if (!layers || !all || *layers >= *all) return "";
  return std::to_string(*layers) + " of " + std::to_string(*all) + " layers" + end;
}

std::string percent(const std::optional<double>& share) {
  return share ? format("%.0f %%", 100 * *share) : "-";
}

std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern) {
  if (!value) return "-";
  std::string text = number(value, pattern);
  if (low && high) text += " (" + number(low, pattern) + "–" + number(high, pattern) + ")";
  return text;
}

std::string with_interval(const Row& row, const results::Estimate& of, const char* pattern, double factor) {
  const auto scaled = [&](const results::NumberColumn& column) {
    return row[column] ? results::Number(factor * *row[column]) : results::Number();
  };
  return with_interval(scaled(of), scaled(of.low), scaled(of.high), pattern);
}

std::string axes_key_of_any_length(const Row& row) {
  static const results::ColumnList axes = columns_that([](const results::AnyColumn& column) {
    return !column.title.empty() && !column.is_arm && column.name != results::kSeqLen.name;
  });
  std::string key = row[results::kHost];
  for (const results::AnyColumn* axis : axes) key += '\n' + row.text(*axis);
  return key;
}

std::string axes_key(const Row& row) {
  return axes_key_of_any_length(row) + '\n' + results::text_of(row[results::kSeqLen]);
}

std::string called(const Row& row) {
  static const results::ColumnList arms =
      columns_that([](const results::AnyColumn& column) { return column.is_arm; });
  std::string arm;
  for (const results::AnyColumn* column : arms) {
    const std::string value = row.text(*column);
    if (!value.empty()) arm += (arm.empty() ? ", " : " ") + results::titled(*column, value);
  }
  std::ranges::replace(arm, '_', ' ');
  return results::label_of(row) + arm;
}

std::string row_name(const Row& row) {
  return called(row) + (row[results::kKeepsAll] == 1 ? "  [keeps all]" : "") +
         (row[results::kOracle].empty() ? "" : "  [oracle]") +
         (row[results::kVerdict] == results::kUntestedVerdict ? "  [untested]" : "") +
         (results::is_aa_test(row) ? "  [A/A test]" : "");
}

std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::Row* const> cells,
                                                   std::string (*name_of)(const results::Row&)) {
  std::vector<std::pair<std::string, Cells>> groups;
  std::unordered_map<std::string, size_t> group_of;
  for (const results::Row* row : cells) {
    const auto [found, is_new] = group_of.emplace(name_of(*row), groups.size());
    if (is_new) groups.push_back({found->first, {}});
    groups[found->second].second.push_back(row);
  }
  return groups;
}

std::string verdict_text(const Row& row, const results::Estimate& ratio, const char* pattern) {
  std::string verdict = row[results::kVerdict];
  const results::Number &low = row[ratio.low], &high = row[ratio.high];
  if (verdict == "baseline" || !row[ratio]) return results::is_aa_test(row) ? "-" : verdict;
  if (verdict != results::kUnreliable && low && high) verdict = math::text_of(math::compare({*low, *high}));
  std::string text = with_interval(row[ratio], low, high, pattern);
  if (!results::is_aa_test(row)) text += " " + verdict;
  return text + (row[measure::kNoise].empty() ? "" : ", noisy");
}

const TableColumn kHeldText{"held (whole model)", held_text},
    kStepText{measure::kStepP50Us.heading, step_text, ", us (95 %)"},
    kErrorText{"error, rel. L2", output_error_in_short},
    kRatioText{measure::kRatioP50.heading, [](const Row&row) { return verdict_text(row); }},
    kTokenBytesText{results::kHeldBytesPerToken.heading, shown<results::kHeldBytesPerToken, "%.0f">},
    kPerplexityText{measure::kPerplexity.heading, perplexity_text},
    kLossChangeText{
        measure::kLossChange.heading,
        [](const Row&row) { return row[results::kVerdict] == "baseline" ? "-" : loss_change(row); },
        ", nats (95 %)"},
    kRateText{measure::kTokensPerS.heading, shown<measure::kTokensPerS, "%.0f">},
    kVerdictText{"verdict", [](const Row&row) { return row[results::kVerdict]; }};

const std::array<TableColumn, 6> kStepTable{kHeldText,
                                            kStepText,
                                            kErrorText,
                                            TableColumn{"% of read GB/s", cold_share},
                                            TableColumn{measure::kColdRatioP50.heading, cold_ratio},
                                            kRatioText};

const std::array<TableColumn, 6> kReadingTable{
    kTokenBytesText,
    kPerplexityText,
    kLossChangeText,
    TableColumn{measure::kKlMean.heading, shown<measure::kKlMean, "%.2e">},
    TableColumn{"same top token",
                [](const Row& row) {
                  const results::Number& share = row[measure::kTop1Agreement];
                  return share ? format("%.2f %%", 100 * *share) : "-";
                }},
    kVerdictText};

Measured exactly(const results::Number& value) { return {value, value, value}; }

Measured within(const Row& row, const results::Estimate& of) {
  if (row[of.low] && row[of.high]) return {row[of], row[of.low], row[of.high]};
  return exactly(row[of]);
}

const ErrorMeasure kOutputError{[](const Row& row) { return exactly(output_error(row)); },
                                output_error_in_short,
                                [](const Row& row) { return "error " + output_error_in_short(row); },
                                0.2,
                                "error ≤ 0.2",
                                "an error of at most 0.2",
                                "err_rel_l2"};

const ErrorMeasure kDivergenceError{
    [](const Row& row) { return within(row, measure::kKlMean); },
    [](const Row& row) { return "KL " + number(row[measure::kKlMean], "%.2g"); },
    [](const Row& row) { return "KL " + with_interval(row, measure::kKlMean, "%.2g"); },
    0.1,
    "KL ≤ 0.1",
    "a KL divergence of at most 0.1 nats",
    "kl_mean"};

const ErrorMeasure kLossError{
    [](const Row& row) { return within(row, measure::kLossChange); },
    [](const Row& row) { return number(row[measure::kLossChange], "%+.2g") + " nats"; },
    [](const Row& row) { return loss_change(row) + " nats"; },
    0.1,
    "loss ≤ +0.1",
    "a loss of at most 0.1 nats more",
    "loss_change"};

}  // namespace kv::experiments
