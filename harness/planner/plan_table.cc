// A plan as text: its table and the sentence that answers.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "harness/math/stats.h"
#include "harness/planner/plan_columns.h"
#include "harness/planner/serving_plan.h"
#include "harness/tables/fit_table.h"

namespace kv::planner {
namespace {

std::string fixed(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string percent(const results::Number& share) { return share ? fixed(100.0 * *share, "%.1f %%") : "-"; }
std::string seconds(const results::Number& s) { return s ? fixed(*s, *s < 10 ? "%.2f s" : "%.0f s") : "-"; }
std::string milliseconds(const results::Number& ms) { return ms ? fixed(*ms, "%.1f ms") : "-"; }
std::string count(const results::Integer& n) { return n ? tables::grouped(*n) : "-"; }

int64_t at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

std::string facts_of_trace(const PlanTable& t) {
  const TraceFacts& f = t.facts;
  std::string text = t.trace + ": " + tables::grouped(f.requests) + " requests in " +
                     fixed(f.seconds, "%.0f s") +
                     (t.arrivals.empty() ? "" : " (" + t.arrivals + ", seed-drawn)") + ", prompts of " +
                     tables::grouped(at(f.prompt, 50)) + " tokens (p99 " + tables::grouped(at(f.prompt, 99)) +
                     "), answers of " + tables::grouped(at(f.output, 50)) + " (p99 " +
                     tables::grouped(at(f.output, 99)) + ").";
  if (f.hits.empty()) return text;
  const HitRates& hits = f.hits.front();
  return text + " Of " + tables::grouped(hits.blocks()) + " prompt blocks of " +
         std::to_string(f.block_tokens.front()) + " tokens " + tables::grouped(hits.distinct()) +
         " are distinct: a prefix cache without limit finds " +
         percent(static_cast<double>(hits.hits_at_any()) / static_cast<double>(hits.blocks())) + ".";
}

std::string load_of(const PlanTable& t) {
  if (!t.trace.empty()) return t.trace;
  return tables::grouped(t.users) + " users of " + tables::grouped(t.context) + " tokens";
}

std::string perplexity(const results::Row& r, const char* unknown) {
  return r[kPerplexityChange] ? fixed(100.0 * *r[kPerplexityChange], "%+.2f %%") : unknown;
}

std::string quality_of(const results::Row& r) {
  if (!r[kPerplexityChange])
    return "Quality is unknown here" +
           (r[kQualityFrom].find(": not put") == std::string::npos ? "" : ", " + r[kQualityFrom]);
  return "Perplexity with it changes by " + perplexity(r, "") + " (" +
         fixed(100.0 * r[kPerplexityChange.low].value_or(NAN), "%.2f") + " to " +
         fixed(100.0 * r[kPerplexityChange.high].value_or(NAN), "%.2f") + ") in " + r[kQualityFrom];
}

// The sentence that answers. `rows` begin with those that serve all requests.
std::string answer(const PlanTable& t, std::vector<results::Row> rows, io::Units units) {
  std::erase_if(rows, [](const results::Row& r) {
    return !oracle_of(parse_layer_specs(r[results::kVariant])).empty();
  });
  const auto fits =
      std::count_if(rows.begin(), rows.end(), [](const results::Row& r) { return r[kPlanStatus] == "fits"; });
  const std::string begin = t.geometry.name + " in " + t.memory_text + ": ";
  if (fits == 0) return begin + "none of these serves " + load_of(t) + ".";
  const results::Row& first = rows.front();
  std::string text =
      begin + std::to_string(fits) + " of " + std::to_string(rows.size()) + " serve" +
      (fits == 1 ? "s " : " ") + load_of(t) + "; " + first[results::kVariant] + " takes least, " +
      io::human_bytes(*first[kHeldBytes] / std::max<int64_t>(1, first[kUsersPeak].value_or(t.users)), units) +
      " per sequence and " + io::human_bytes(*first[kHeldBytes], units) + " in all";
  if (first[kUsersPeak])
    text += " at the peak, for up to " + count(first[kUsersPeak]) + " at once (median " +
            count(first[kUsersP50]) + "), " + fixed(*first[kPreemptionsPer1000], "%.0f") +
            " preemptions per 1,000 requests, p99 wait " + seconds(first[kWaitP99S]);
  // The last requests' own time explains a small excess.
  if (first[kSeconds] && *first[kSeconds] > 1.1 * t.facts.seconds + 60.0)
    text += "; but it falls behind, and needs " + seconds(first[kSeconds]) + " for what comes in " +
            seconds(t.facts.seconds);
  if (first[kUsersMost]) text += ", with room for " + count(first[kUsersMost]);
  return text + ". " + quality_of(first) +
         (t.device_text.empty() ? "." : ", and times are assumed: a machine of " + t.device_text + ".");
}

io::TextTable::Row shown(const PlanTable& table, const results::Row& r, io::Units units,
                         io::TextTable& text) {
  const bool trace = !table.trace.empty();
  const std::string held = r[kHeldBytes] ? io::human_bytes(*r[kHeldBytes], units) : "-";
  const std::string mark = r[results::kReason].empty() ? "" : text.footnote(r[results::kReason]);
  std::vector<io::TextTable::Field> fields{{r[kPlanStatus], mark}, {held}};
  if (!table.quality.name().empty()) fields.push_back({perplexity(r, "unknown")});
  if (!trace) {
    fields.insert(fields.end(), {{count(r[kUsersMost])}, {milliseconds(r[kTpotP50Ms])}});
    return {r[results::kVariant], fields};
  }
  const auto per_1000 = r[kPreemptionsPer1000] ? fixed(*r[kPreemptionsPer1000], "%.1f") : "-";
  fields.insert(fields.end(), {{count(r[kUsersP50])},
                               {count(r[kUsersPeak])},
                               {percent(r[kSlackShare])},
                               {per_1000},
                               {count(r[kRefused])},
                               {percent(r[kHitRate])},
                               {seconds(r[kWaitP99S])},
                               {seconds(r[kTtftP99S])},
                               {milliseconds(r[kTpotP99Ms])}});
  return {r[results::kVariant], fields};
}

}  // namespace

io::TextTable text_table(const PlanTable& table, io::Units units) {
  const std::vector<results::Row> rows = results_of(table);
  const bool trace = !table.trace.empty();
  io::TextTable text;
  text.title = answer(table, rows, units);
  text.facts = "Weights take " + table.weights_text +
               (table.geometry.parameters > 0 ? "." : ", 2 bytes a parameter for all that is known.") +
               (trace ? " " + facts_of_trace(table) : "");
  for (const std::string& note : table.geometry.notes)
    text.facts += (&note == &table.geometry.notes.front() ? " Of the model, " : "; ") + note;
  if (!table.geometry.notes.empty()) text.facts += ".";
  text.corner = "variant";
  text.heads = {{"serves", "all"}, {"bytes", trace ? "at peak" : "held"}};
  if (!table.quality.name().empty()) text.heads.push_back({"perplexity", "change"});
  if (trace)
    text.heads.insert(text.heads.end(), {{"users", "p50"},
                                         {"users", "most"},
                                         {"slack"},
                                         {"preempted", "per 1,000"},
                                         {"refused"},
                                         {"hit rate"},
                                         {"wait", "p99"},
                                         {"TTFT", "p99"},
                                         {"per token", "p99"}});
  else
    text.heads.insert(text.heads.end(), {{"room for", "users"}, {"per token"}});
  for (const results::Row& row : rows) text.rows.push_back(shown(table, row, units, text));
  text.notes.push_back(
      {"",
       trace
           ? "Bytes, blocks, preemptions and refusals are counted by the caches' own allocators, without "
             "rows; "
             "times are assumed, the roofline of the stated machine, and they decide who runs beside whom. "
             "Hit "
             "rate: of a prefix cache of all that is left for caches, requests one after another; the replay "
             "itself shares nothing. Refused: longer than the context, or than the memory alone."
           : "Bytes by the closed form; times, where a machine is stated, are assumed: its roofline."});
  if (!table.quality.name().empty())
    text.notes.push_back(
        {"", "Perplexity: that of the same codec and retention in " + table.quality.name() +
                 ", against an f32 cache that keeps all, whatever the placement, which changes no bit; "
                 "of that run's model and text. Unknown: it has none, or of too short a context "
                 "(quality_from)."});
  return text;
}

}  // namespace kv::planner
