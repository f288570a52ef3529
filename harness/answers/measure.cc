#include "harness/answers/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/results/cell_columns.h"

namespace kv::answers {
namespace {

using experiments::format;

std::string bytes_text(double bytes) { return io::human_bytes(std::llround(bytes)); }

std::string microseconds_text(double us) {
  return us >= 1e6   ? format("%.3g s", us / 1e6)
         : us >= 1e3 ? format("%.3g ms", us / 1e3)
                     : format("%.3g µs", us);
}

template <results::Literal kPattern>
std::string written(double value) {
  std::string text = format(kPattern.text, value);
  if (const size_t at = text.find("e-0"); at != std::string::npos) text.erase(at + 2, 1);
  return text;
}

constexpr std::array kMeasures{
    Measure{Kind::kTime, "append_total_us", "is fastest", microseconds_text, "", "append_total_ratio_p50"},
    Measure{Kind::kTime, "step_p50_us", "is fastest", microseconds_text, "", "ratio_p50"},
    Measure{Kind::kTime, "prefill_p50_us", "is fastest", microseconds_text, "", "ratio_p50"},
    Measure{Kind::kTime, "cold_attend_p50_us", "is fastest", microseconds_text, "", "cold_ratio_p50"},
    Measure{Kind::kTime, "fork_p50_us", "forks fastest", microseconds_text},
    Measure{Kind::kRate, "goodput_per_s", "serves the most", written<"%.3g">, "good requests per second"},
    Measure{Kind::kRate, "requests_per_s", "serves the most", written<"%.3g">, "requests per second"},
    Measure{Kind::kRate, "accuracy", "answers most",
            [](double share) { return format("%.0f%%", 100 * share); }, "right answers"},
    Measure{Kind::kServed, "ttft_p99_s", "has the shortest time to the first token, p99", written<"%.3g">,
            "s"},
    Measure{Kind::kServed, "tpot_p99_ms", "has the shortest time per token after the first, p99",
            written<"%.3g">, "ms"},
    Measure{Kind::kBytes, "held_bytes_per_token", "is smallest", bytes_text},
    Measure{Kind::kBytes, "bytes_workspace_peak", "needs the least workspace", bytes_text},
    Measure{Kind::kBytes, "held_peak_bytes", "has the smallest peak", bytes_text},
    Measure{Kind::kError, "err_rel_l2", "has the least relative error", written<"%.2g">},
    Measure{Kind::kError, "kl_mean", "loses least", written<"%.2g">, "nats of KL divergence"},
    Measure{Kind::kError, "loss_change", "loses least", written<"%+.2g">, "nats of loss"}};

struct Interval {
  const results::AnyColumn *value = nullptr, *low = nullptr, *high = nullptr;
};

// The declarations of a column and of its interval's ends.
const Interval& interval_of(std::string_view column) {
  static const std::map<std::string_view, Interval> all = [] {
    std::map<std::string_view, Interval> found;
    for (const results::AnyColumn* c : experiments::cell_table().columns) {
      if (c->end.empty()) found[c->name].value = c;
      if (!c->end.empty()) (c->end == "lower" ? found[c->end_of].low : found[c->end_of].high) = c;
    }
    return found;
  }();
  return all.at(column);
}

std::optional<Reach> reach_of(const Row& row, std::string_view column) {
  const Interval& columns = interval_of(column);
  const results::Number value = row.number(*columns.value);
  if (!value) return std::nullopt;
  const auto end = [&](const results::AnyColumn* c) { return c ? row.number(*c) : results::Number(); };
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  const double low = end(columns.low).value_or(nothing), high = end(columns.high).value_or(nothing);
  return std::isnan(low) || std::isnan(high) ? Reach{*value, *value, *value} : Reach{*value, low, high};
}

}  // namespace

std::span<const Measure> measures() { return kMeasures; }

const Measure* measure_of(Kind kind, const Cells& rows, size_t at_least) {
  for (const Measure& measure : kMeasures) {
    const auto has = [&](const Row* row) { return own(*row, measure).has_value(); };
    if (measure.kind == kind && static_cast<size_t>(std::ranges::count_if(rows, has)) >= at_least)
      return &measure;
  }
  return nullptr;
}

std::optional<Reach> own(const Row& row, const Measure& measure) {
  const bool is_prompt = row[results::kPhase] == "prefill";
  if (measure.kind == Kind::kError && row[results::kVerdict] == results::kUntestedVerdict)
    return std::nullopt;
  if (measure.column == results::kHeldBytesPerToken.name && is_prompt) return std::nullopt;
  std::optional<Reach> reach = reach_of(row, measure.column);
  if (measure.column != results::kBytesWorkspacePeak.name) return reach;
  if (!reach || !is_prompt || row[results::kBatch].value_or(0) == 0) return std::nullopt;
  const double each = reach->value / static_cast<double>(*row[results::kBatch]);
  return Reach{each, each, each};
}

std::optional<Reach> pace(const Row& row, const Measure& measure) {
  if (measure.ratio.empty()) return std::nullopt;
  if (row[results::kVerdict] == "baseline") return Reach{1.0, 1.0, 1.0};
  const std::optional<Reach> reach = reach_of(row, measure.ratio);
  return reach && row.number(*interval_of(measure.ratio).low) ? reach : std::nullopt;
}

std::string told(const Row& row, const Measure* measure) {
  const std::string& verdict = row[results::kVerdict];
  const std::optional<Reach> reach = measure ? pace(row, *measure) : std::nullopt;
  if (!reach || verdict == "baseline" || verdict == results::kUnreliable) return verdict;
  return math::text_of(math::compare({reach->low, reach->high}));
}

std::string times_text(double ratio) {
  return ratio >= 10 ? io::grouped(std::llround(ratio)) : format(ratio >= 0.1 ? "%.2f" : "%.2g", ratio);
}

std::string span_text(const Reach& reach) { return times_text(reach.low) + "–" + times_text(reach.high); }

}  // namespace kv::answers
