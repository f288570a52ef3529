// A plan as text: its table and the sentence that answers.
#include <algorithm>
#include <cmath>

#include "harness/io/text.h"
#include "harness/planner/plan_columns.h"
#include "harness/planner/serving_plan.h"
#include "harness/planner/serving_row.h"
#include "harness/tables/fit_table.h"

namespace kv::planner {
namespace {

std::string percent(const results::Number& share) {
  return share ? io::formatted("%.1f %%", 100.0 * *share) : "-";
}
std::string seconds(const results::Number& s) {
  return s ? io::formatted(*s < 10 ? "%.2f s" : "%.0f s", *s) : "-";
}
std::string milliseconds(const results::Number& ms) { return ms ? io::formatted("%.1f ms", *ms) : "-"; }
std::string count(const results::Integer& n) { return n ? tables::grouped(*n) : "-"; }

std::string facts_of_trace(const PlanTable& t) {
  results::Row f;
  set_facts(f, t.facts);
  std::string text =
      t.trace + ": " + count(f[kRequests]) + " requests in " + io::formatted("%.0f s", *f[kTraceS]) +
      (t.arrivals.empty() ? "" : " (" + t.arrivals + ", drawn by seed)") + ", prompts of " +
      count(f[kPromptP50Tokens]) + " tokens (p99 " + count(f[kPromptP99Tokens]) + "), answers of " +
      count(f[kOutputP50Tokens]) + " (p99 " + count(f[kOutputP99Tokens]) + ").";
  if (t.facts.hits.empty()) return text;
  const HitRates& hits = t.facts.hits.front();
  return text + " " + tables::grouped(hits.distinct()) + " of " + tables::grouped(hits.blocks()) +
         " prompt blocks of " + std::to_string(t.facts.block_tokens.front()) +
         " tokens are distinct, so a prefix cache without limit finds " + percent(f[kHitRateAtAny]) + ".";
}

std::string load_of(const PlanTable& t) {
  if (!t.trace.empty()) return t.trace;
  return tables::grouped(t.users) + (t.users == 1 ? " user of " : " users of ") + tables::grouped(t.context) +
         " tokens";
}

std::string perplexity(const results::Row& r, const char* unknown) {
  return r[kPerplexityChange] ? io::formatted("%+.2f %%", 100.0 * *r[kPerplexityChange]) : unknown;
}

std::string quality_of(const results::Row& r) {
  if (!r[kPerplexityChange])
    return "Its quality is unknown here" +
           (r[kQualityFrom].find(": not put") == std::string::npos ? "" : ", " + r[kQualityFrom]);
  return "Its perplexity changes by " + perplexity(r, "") + " (" +
         io::formatted("%.2f", 100.0 * r[kPerplexityChange.low].value_or(NAN)) + " to " +
         io::formatted("%.2f", 100.0 * r[kPerplexityChange.high].value_or(NAN)) + ") in " + r[kQualityFrom];
}

// The sentence that answers. `rows` begin with those that serve all requests.
std::string answer(const PlanTable& t, std::vector<results::Row> rows, io::Units units) {
  std::erase_if(rows, [](const results::Row& r) {
    return !oracle_of(parse_layer_specs(r[results::kVariant])).empty();
  });
  const auto fits =
      std::count_if(rows.begin(), rows.end(), [](const results::Row& r) { return r[kPlanStatus] == "fits"; });
  const std::string begin = t.geometry.name + " in " + t.memory_text + ": ";
  if (fits == 0) return begin + "none of these caches serves " + load_of(t) + ".";
  const results::Row& first = rows.front();
  std::string text =
      begin + std::to_string(fits) + " of " + std::to_string(rows.size()) +
      (rows.size() == 1 ? " cache serves "
       : fits == 1      ? " caches serves "
                        : " caches serve ") +
      load_of(t) + ". The smallest is " + first[results::kVariant] + ": it takes " +
      io::human_bytes(*first[kHeldBytes] / std::max<int64_t>(1, first[kUsersPeak].value_or(t.users)), units) +
      " per sequence and " + io::human_bytes(*first[kHeldBytes], units) + " in all";
  if (first[kUsersPeak])
    text += " at the peak of " + count(first[kUsersPeak]) + " sequences at once (median " +
            count(first[kUsersP50]) + "), with " + io::formatted("%.0f", *first[kPreemptionsPer1000]) +
            " preemptions per 1,000 requests and a p99 wait of " + seconds(first[kWaitP99S]);
  // The last requests' own time explains a small excess.
  if (first[kSeconds] && *first[kSeconds] > 1.1 * t.facts.seconds + 60.0)
    text += ". It falls behind: it needs " + seconds(first[kSeconds]) + " for the requests of " +
            seconds(t.facts.seconds);
  if (first[kUsersMost]) text += "; " + count(first[kUsersMost]) + " users would fit";
  return text + ". " + quality_of(first) +
         (t.device_text.empty() ? "." : ". Times are assumed for a machine of " + t.device_text + ".");
}

// A variant's fields, each with its heading.
using Fields = std::vector<std::pair<std::vector<std::string>, std::string>>;
Fields fields_of(const PlanTable& table, const results::Row& r, io::Units units) {
  const bool trace = !table.trace.empty();
  Fields fields{
      {{"serves", "all"}, r[kPlanStatus]},
      {{"bytes", trace ? "at peak" : "held"}, r[kHeldBytes] ? io::human_bytes(*r[kHeldBytes], units) : "-"}};
  if (!table.quality.name().empty()) fields.push_back({{"perplexity", "change"}, perplexity(r, "unknown")});
  if (!trace) {
    fields.push_back({{"users", "that fit"}, count(r[kUsersMost])});
    fields.push_back({{"per token"}, milliseconds(r[kTpotP50Ms])});
    return fields;
  }
  const results::Number& preempted = r[kPreemptionsPer1000];
  const Fields more{{{"users", "p50"}, count(r[kUsersP50])},
                    {{"users", "most"}, count(r[kUsersPeak])},
                    {{"slack"}, percent(r[kSlackShare])},
                    {{"preempted", "per 1,000"}, preempted ? io::formatted("%.1f", *preempted) : "-"},
                    {{"refused"}, count(r[kRefused])},
                    {{"hit rate"}, percent(r[kHitRate])},
                    {{"wait", "p99"}, seconds(r[kWaitP99S])},
                    {{"TTFT", "p99"}, seconds(r[kTtftP99S])},
                    {{"per token", "p99"}, milliseconds(r[kTpotP99Ms])}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

}  // namespace

io::TextTable text_table(const PlanTable& table, io::Units units) {
  const std::vector<results::Row> rows = results_of(table);
  const bool trace = !table.trace.empty();
  io::TextTable text;
  text.title = answer(table, rows, units);
  text.facts = "Weights take " + table.weights_text +
               (table.geometry.parameters > 0 ? "." : ", assuming 2 bytes per parameter.") +
               (trace ? " " + facts_of_trace(table) : "");
  for (const std::string& note : table.geometry.notes)
    text.facts += (&note == &table.geometry.notes.front() ? " About the model: " : "; ") + note;
  if (!table.geometry.notes.empty()) text.facts += ".";
  text.corner = "variant";
  for (const auto& [head, field] : fields_of(table, {}, units)) text.heads.push_back(head);
  for (const results::Row& row : rows) {
    io::TextTable::Row& line = text.rows.emplace_back();
    line.label = row[results::kVariant];
    for (const auto& [head, field] : fields_of(table, row, units)) line.fields.push_back({field});
    if (!row[results::kReason].empty()) line.fields.front().mark = text.footnote(row[results::kReason]);
  }
  text.notes.push_back(
      {"", trace ? "The caches' own allocators count bytes, blocks, preemptions and refusals, without "
                   "storing K and V. Times are the roofline of the stated machine; they decide which "
                   "requests run together. Hit rate: that of a prefix cache with all memory left for caches, "
                   "one request after another; the replay itself shares no prefixes. Refused: longer than "
                   "the context, or too large for the memory."
                 : "Bytes are predicted from the length. Times, if a machine is stated, are its roofline."});
  if (!table.quality.name().empty())
    text.notes.push_back(
        {"", "Perplexity: measured in " + table.quality.name() +
                 " on that run's model and text, for the same codec and retention, compared with an f32 "
                 "cache that keeps all tokens; the placement changes no bit. Unknown: the run has no such "
                 "cache, or its context is too short (quality_from)."});
  return text;
}

}  // namespace kv::planner
