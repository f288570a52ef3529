#include "harness/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "harness/bytes.h"

namespace kv {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string clock_text(double seconds) {
  const int s = static_cast<int>(seconds + 0.5);
  char text[32];
  std::snprintf(text, sizeof text, "%d:%02d", s / 60, s % 60);
  return text;
}

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string number(const Row& row, const char* column, const char* pattern) {
  const auto value = row.number(column);
  return value ? format(pattern, *value) : "-";
}

// "12.3 (11.9 … 12.8)"; without the interval where there were too few repetitions for one.
std::string with_interval(const Row& row, const char* value, const char* low, const char* high,
                          const char* pattern) {
  if (!row.number(value)) return "-";
  std::string text = number(row, value, pattern);
  if (row.number(low) && row.number(high))
    text += " (" + number(row, low, pattern) + "–" + number(row, high, pattern) + ")";
  return text;
}

// Code points, so that en dashes count once.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string bytes_text(const Row& row, std::initializer_list<const char*> columns) {
  double total = 0.0;
  for (const char* column : columns) total += row.number(column).value_or(0);
  return human_bytes(static_cast<int64_t>(total));
}

std::string row_name(const Row& row) {
  std::string name = row.text("variant");
  if (!row.text("arm").empty()) name += "  " + row.text("arm");
  if (!row.text("chunk_tokens").empty()) name += " " + row.text("chunk_tokens");
  return name + (row.text("verdict") == "null" ? "  [null A/B]" : "");
}

std::string verdict_text(const Row& row) {
  const bool null_ab = row.text("verdict") == "null";
  std::string verdict = row.text("verdict");
  if (verdict != "baseline" && row.number("ratio_p50")) {
    verdict = with_interval(row, "ratio_p50", "ratio_ci_low", "ratio_ci_high", "%.2f") + " " +
              (null_ab ? "" : verdict);
  }
  return verdict;
}

using Strings = std::vector<std::string>;

// What a model says with the cache: quality and recall.
const Strings kReadingHead{
    "variant",         "bytes a token", "perplexity",     "loss change, nats (95 % interval)",
    "KL mean, nats",   "KL p99",        "same top token", "tokens/s",
    "against full f32"};

Strings reading_row(const Row& row) {
  const std::string change =
      row.text("verdict") == "baseline"
          ? "-"
          : with_interval(row, "loss_change", "loss_change_ci_low", "loss_change_ci_high", "%+.2g");
  std::string perplexity = number(row, "perplexity", "%.4g");
  if (row.number("perplexity_se")) perplexity += " ± " + number(row, "perplexity_se", "%.2g");
  return {row_name(row),
          number(row, "held_bytes_per_token", "%.0f"),
          perplexity,
          change,
          number(row, "kl_mean", "%.2e"),
          number(row, "kl_p99", "%.2e"),
          row.number("top1_agreement") ? format("%.2f %%", 100 * *row.number("top1_agreement")) : "-",
          number(row, "tokens_per_s", "%.0f"),
          row.text("verdict")};
}

const Strings kStreamHead{"variant",  "bytes a token", "perplexity", "loss change, nats (95 % interval)",
                          "tokens/s", "verdict"};

Strings stream_row(const Row& row) {
  const Strings all = reading_row(row);
  return {all[0], all[1], all[2], all[3], all[7], all[8]};
}

const Strings kWritingHead{"variant",  "bytes a token", "temperature", "same tokens, median",
                           "at least", "same texts",    "of",          "tokens/s"};

Strings writing_row(const Row& row) {
  return {row_name(row),
          number(row, "held_bytes_per_token", "%.0f"),
          number(row, "temperature", "%g"),
          number(row, "common_tokens_p50", "%g"),
          number(row, "common_tokens_min", "%g"),
          number(row, "same_texts", "%g"),
          number(row, "batch", "%g"),
          number(row, "tokens_per_s", "%.0f")};
}

// One kind of table for each kind of experiment or phase: what it is headed, and a row.
bool reads(const Row& row) {
  return row.text("experiment") == "quality" || row.text("experiment") == "recall";
}
bool streams(const Row& row) { return row.text("experiment") == "stream"; }
bool writes(const Row& row) { return row.text("experiment") == "generate"; }

Strings table_head(const Row& row) {
  if (reads(row)) return kReadingHead;
  if (streams(row)) return kStreamHead;
  if (writes(row)) return kWritingHead;
  if (row.text("phase") == "prefill") {
    return {"variant and arm", "workspace peak", "prefill p50, us (95 % interval)",
            "tokens/s",        "error, rel. L2", "time / materialised"};
  }
  Strings head{"variant", "bytes held", "step p50, us (95 %)", "p99, us"};
  if (row.text("lengths").empty()) {
    head.insert(head.end(), {"of cold reads (95 %)", "of cold bound", "cold / baseline's"});
  } else {
    head.push_back("waste");
  }
  head.insert(head.end(), {"error (kernel's)", "time / baseline's"});
  return head;
}

std::string percent(const std::optional<double>& share) {
  return share ? format("%.0f %%", 100 * *share) : "-";
}

// With the interval of the time: the slower, the smaller the share.
std::string cold_share(const Row& row) {
  const std::optional<double> share = row.number("cold_ceiling_share"),
                              time = row.number("cold_attend_p50_us"), low = row.number("cold_ci_low_us"),
                              high = row.number("cold_ci_high_us");
  if (!share || !time || !low || !high) return percent(share);
  const double scaled = 100 * *share * *time;
  return percent(share) + " (" + format("%.0f", scaled / *high) + "–" + format("%.0f", scaled / *low) + ")";
}

// "92 % compute": of the time that the slower of memory and multiply-adds takes.
std::string cold_bound(const Row& row) {
  return row.number("cold_bound_share")
             ? percent(row.number("cold_bound_share")) + " " + row.text("cold_bound")
             : "-";
}

// Of the output, relative L2, and what of it is the arithmetic's.
std::string error_text(const Row& row) {
  return number(row, "err_rel_l2", "%.1e") + " (" + number(row, "err_kernel_rel_l2", "%.1e") + ")";
}

Strings table_row(const Row& row) {
  Strings fields(table_head(row).size());
  fields[0] = row_name(row);
  fields[1] = row.text("status");
  if (row.text("status") != "ok") return fields;
  if (reads(row)) return reading_row(row);
  if (streams(row)) return stream_row(row);
  if (writes(row)) return writing_row(row);
  if (row.text("phase") == "prefill") {
    return {fields[0],
            bytes_text(row, {"bytes_workspace_peak"}),
            with_interval(row, "prefill_p50_us", "prefill_ci_low_us", "prefill_ci_high_us", "%.0f"),
            number(row, "prefill_tokens_per_s", "%.0f"),
            number(row, "err_rel_l2", "%.1e"),
            verdict_text(row)};
  }
  Strings cells{fields[0], bytes_text(row, {"bytes_payload", "bytes_metadata", "bytes_slack"}),
                with_interval(row, "step_p50_us", "step_ci_low_us", "step_ci_high_us", "%.1f"),
                number(row, "step_p99_us", "%.1f")};
  if (row.text("lengths").empty()) {
    cells.insert(cells.end(),
                 {cold_share(row), cold_bound(row),
                  with_interval(row, "cold_ratio_p50", "cold_ratio_ci_low", "cold_ratio_ci_high", "%.2f")});
  } else {
    cells.push_back(percent(row.number("waste_share")));
  }
  cells.insert(cells.end(), {error_text(row), verdict_text(row)});
  return cells;
}

}  // namespace

std::string render_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - width(row[i]), ' ');
      line += " " + (i == 0 ? row[i] + gap : gap + row[i]) + " ";
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Progress::Progress(bool quiet)
    : terminal_(isatty(STDERR_FILENO) != 0), quiet_(quiet), started_(now_seconds()) {}

void Progress::update(int done, int total, const std::string& what, double weight_done, double weight_total) {
  if (quiet_) return;
  // What an earlier run had finished is no measure of this one's speed.
  if (weight_at_start_ < 0.0) weight_at_start_ = weight_done;
  const double now = now_seconds(), elapsed = now - started_, own = weight_done - weight_at_start_;
  constexpr double kBarSeconds = 0.2, kLineSeconds = 30.0;
  if (done == block_ && now - shown_ < (terminal_ ? kBarSeconds : kLineSeconds)) return;
  const bool goes_on = done == block_;
  block_ = done;
  shown_ = now;
  const std::string left =
      own > 0.0 ? ", about " + clock_text(elapsed / own * (weight_total - weight_done)) + " left" : "";
  if (!terminal_) {
    const std::string share =
        goes_on ? format(", %.0f %% of the run", 100.0 * weight_done / weight_total) : "";
    std::fprintf(stderr, "[%d/%d] %s%s%s\n", done + 1, total, what.c_str(), share.c_str(), left.c_str());
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(kWidth * weight_done / weight_total);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %d/%d  %s%s", bar.c_str(), done + 1, total, what.c_str(), left.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Progress::clear() {
  if (bar_shown_) std::fprintf(stderr, "\r\033[K");
  bar_shown_ = false;
}

void Progress::note(const std::string& line) {
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

// "32/8 heads of 128, 2 threads".
static std::string shape_of(const Row& row) {
  return row.text("q_heads") + "/" + row.text("kv_heads") + " heads of " + row.text("head_dim") + ", " +
         row.text("threads") + (row.text("threads") == "1" ? " thread" : " threads");
}

std::string summary_table(std::span<const Row> cells) {
  std::string text, heading;
  std::vector<std::vector<std::string>> table;
  const auto flush = [&] {
    if (!table.empty()) text += "\n" + heading + "\n" + render_table(table);
    table.clear();
  };
  int nulls = 0, decided_nulls = 0;
  for (const Row& row : cells) {
    const std::string& ragged = row.text("lengths");
    const std::string here =
        row.text("experiment") + ", " + row.text("workload") + ", batch " + row.text("batch") + ", " +
        (ragged.empty() ? row.text("seq_len") + " tokens" : "lengths " + ragged) +
        (row.text("head_dim").empty() ? "" : ", " + shape_of(row)) +
        (row.text("distance").empty() ? "" : ", distance " + row.text("distance")) +
        (row.text("passage_tokens").empty() ? "" : ", passage " + row.text("passage_tokens"));
    if (here != heading) {
      flush();
      heading = here;
    }
    if (table.empty()) table.push_back(table_head(row));
    table.push_back(table_row(row));
    if (row.text("verdict") == "null" && row.number("ratio_ci_low") && row.number("ratio_ci_high")) {
      ++nulls;
      decided_nulls += *row.number("ratio_ci_low") > 1.0 || *row.number("ratio_ci_high") < 1.0;
    }
  }
  flush();
  if (nulls > 0) {
    text += "\nnull A/B: " + std::to_string(decided_nulls) + " of " + std::to_string(nulls) +
            " comparisons of the baseline with itself found a difference (5 % are to be expected)\n";
  }
  return text;
}

}  // namespace kv
