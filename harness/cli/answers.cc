#include "harness/cli/answers.h"

#include <algorithm>
#include <array>

#include "harness/io/bytes.h"

namespace kv::cli {
namespace {

using Cell = results::CellResult;

// A value that is compared, the smaller the better, with the bounds of its interval or the value itself.
struct Measured {
  results::Number value, low, high;
};

Measured exactly(const results::Number& value) { return {value, value, value}; }

Measured within(const results::Number& value, const results::Number& low, const results::Number& high) {
  return low && high ? Measured{value, low, high} : exactly(value);
}

// Of the baseline's time: repetitions drift together, so the ratio of times says more than a time.
Measured pace_of(const Cell& row) {
  if (row.verdict == "baseline" && (row.step_p50_us || row.prefill_p50_us)) return exactly(1.0);
  return within(row.ratio_p50, row.ratio_ci_low, row.ratio_ci_high);
}

// Of prefill, whose caches all hold the same prompt, the scratch buffers.
Measured size_of(const Cell& row) {
  if (row.phase != "prefill") return exactly(row.held_bytes_per_token);
  return exactly(row.bytes_workspace_peak ? results::Number(static_cast<double>(*row.bytes_workspace_peak))
                                          : results::Number());
}

// Of predictions how far they are from the full f32 cache's, of texts what they do not share with its texts.
Measured error_of(const Cell& row) {
  if (row.kl_mean) return within(row.kl_mean, row.kl_mean_ci_low, row.kl_mean_ci_high);
  if (row.generated_tokens && row.common_tokens_p50)
    return exactly(static_cast<double>(*row.generated_tokens) - *row.common_tokens_p50);
  if (row.loss_change) return within(row.loss_change, row.loss_change_ci_low, row.loss_change_ci_high);
  return exactly(row.metric("err_rel_l2"));
}

std::string pace_text(const Cell& row) {
  if (row.verdict == "baseline") return "the baseline itself";
  return "time " + with_interval(row.ratio_p50, row.ratio_ci_low, row.ratio_ci_high, "%.2f");
}

std::string size_text(const Cell& row) {
  const Measured size = size_of(row);
  if (row.phase == "prefill") return io::human_bytes(static_cast<int64_t>(*size.value)) + " workspace";
  return number(size.value, "%.0f") + " bytes/token";
}

std::string error_in_short(const Cell& row) {
  if (row.kl_mean) return "KL " + number(row.kl_mean, "%.2g");
  if (row.generated_tokens && row.common_tokens_p50)
    return number(row.common_tokens_p50, "%g") + "/" + number(row.generated_tokens, "%g");
  if (row.loss_change) return number(row.loss_change, "%+.2g") + " nats";
  return number(row.metric("err_rel_l2"), "%.1e");
}

std::string error_text(const Cell& row) {
  if (row.kl_mean) return "KL " + with_interval(row.kl_mean, row.kl_mean_ci_low, row.kl_mean_ci_high, "%.2g");
  if (row.loss_change) {
    return with_interval(row.loss_change, row.loss_change_ci_low, row.loss_change_ci_high, "%+.2g") + " nats";
  }
  const bool of_texts = row.generated_tokens && row.common_tokens_p50;
  return (of_texts ? "same tokens " : "error ") + error_in_short(row);
}

struct Question {
  const char* name;
  Measured (*measured)(const Cell&);
  std::string (*answer)(const Cell&);
};
constexpr std::array kQuestions{Question{"fastest", pace_of, pace_text},
                                Question{"smallest", size_of, size_text},
                                Question{"most exact", error_of, error_text}};

// The variant with the smallest value, "+ n" where n others are as good: alike, or with an interval that
// reaches it. Null if none was measured.
const Cell* best_of(const Cells& cells, const Question& question, int& as_good) {
  const Cell* best = nullptr;
  for (const Cell* row : cells) {
    const Measured mine = question.measured(*row);
    if (mine.value && (!best || *mine.value < *question.measured(*best).value)) best = row;
  }
  as_good = 0;
  for (const Cell* row : cells) {
    const Measured mine = question.measured(*row);
    as_good += row != best && mine.value && *mine.low <= *question.measured(*best).high;
  }
  return best;
}

// Empty if nothing was measured.
std::vector<Strings> answer_rows(const std::string& point, const Cells& all) {
  Cells cells;
  for (const Cell* row : all) {
    if (row->status == results::Status::kOk && !row->is_aa_test()) cells.push_back(row);
  }
  std::vector<Strings> rows;
  for (const Question& question : kQuestions) {
    int as_good = 0;
    const Cell* best = best_of(cells, question, as_good);
    if (!best) continue;
    rows.push_back({rows.empty() ? point : "", question.name,
                    row_name(*best) + (as_good ? " + " + std::to_string(as_good) : ""), error_in_short(*best),
                    question.answer(*best)});
  }
  return rows;
}

// "decode, 2048 tokens"; with its workload where several are shown, or which of them it is.
std::string point_text(const Cell& row, size_t shown, size_t points) {
  using results::text_of;
  return row.experiment +
         (shown < points ? " (1 of " + std::to_string(points) + ")"
          : points > 1   ? " " + row.workload
                         : "") +
         ", " + (row.lengths.empty() ? text_of(row.seq_len) + " tokens" : row.lengths);
}

// The sweep points of the experiment's longest length.
std::vector<Cells> longest_points(const Cells& cells) {
  results::Integer longest;
  for (const Cell* row : cells) longest = std::max(longest, row->seq_len);
  Cells there;
  for (const Cell* row : cells) {
    if (row->seq_len == longest) there.push_back(row);
  }
  std::vector<Cells> points;
  for (auto& [name, own] : grouped(there, sweep_point_name)) points.push_back(own);
  return points;
}

}  // namespace

std::string answers(const Cells& cells, size_t width, size_t most_lines) {
  std::vector<std::vector<Cells>> experiments;
  size_t points = 0;
  for (const auto& [name, own] : grouped(cells, [](const Cell& row) { return row.experiment; })) {
    experiments.push_back(longest_points(own));
    points += experiments.back().size();
  }
  const bool all = 1 + points * kQuestions.size() <= most_lines;
  std::vector<Strings> table{
      {"at the longest length", "is", "variant (+ others as good)", "error", "value; time / baseline"}};
  for (const std::vector<Cells>& own : experiments) {
    const size_t shown = all ? own.size() : 1;
    for (const Cells& point : std::span(own).first(shown)) {
      const std::string name = point_text(*point.front(), shown, own.size());
      for (Strings& row : answer_rows(name, point)) table.push_back(std::move(row));
    }
  }
  return table.size() > 1 ? fitted(std::move(table), width, 3, 20) : "";
}

}  // namespace kv::cli
