// A plan on the terminal: its columns, its table and the sentence that answers.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "harness/math/stats.h"
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

std::string perplexity(const PlanResult& r, const char* unknown) {
  return r.perplexity_change ? fixed(100.0 * *r.perplexity_change, "%+.2f %%") : unknown;
}

std::string quality_of(const PlanResult& r) {
  if (!r.perplexity_change) return "Quality is unknown here";
  return "Perplexity with it changes by " + perplexity(r, "") + " (" +
         fixed(100.0 * r.perplexity_change_ci_low.value_or(NAN), "%.2f") + " to " +
         fixed(100.0 * r.perplexity_change_ci_high.value_or(NAN), "%.2f") + ") in " + r.quality_from;
}

// The sentence. `rows` are in order: those that serve all first.
std::string answer(const PlanTable& t, const std::vector<PlanResult>& rows, io::Units units) {
  const auto fits =
      std::count_if(rows.begin(), rows.end(), [](const PlanResult& r) { return r.status == "fits"; });
  const std::string begin = t.geometry.name + " in " + t.memory_text + ": ";
  if (fits == 0) return begin + "none of these serves " + load_of(t) + ".";
  const PlanResult& first = rows.front();
  std::string text = begin + std::to_string(fits) + " of " + std::to_string(rows.size()) + " serve" +
                     (fits == 1 ? "s " : " ") + load_of(t) + "; with the least memory a sequence " +
                     first.variant + ", " + io::human_bytes(*first.held_bytes, units);
  if (first.users_peak)
    text += " for up to " + count(first.users_peak) + " at once (median " + count(first.users_p50) + "), " +
            fixed(*first.preemptions_per_1000, "%.0f") + " preemptions per 1,000 requests, p99 wait " +
            seconds(first.wait_p99_s);
  // A little longer is the last requests' own time.
  if (first.seconds && *first.seconds > 1.1 * t.facts.seconds + 60.0)
    text += "; but it falls behind, and needs " + seconds(first.seconds) + " for what comes in " +
            seconds(t.facts.seconds);
  if (first.users_most) text += ", with room for " + count(first.users_most);
  return text + ". " + quality_of(first) +
         (t.device_text.empty() ? "." : ", and times are assumed: a machine of " + t.device_text + ".");
}

io::TextTable::Row shown(const PlanTable& table, const PlanResult& r, io::Units units, io::TextTable& text) {
  const bool trace = !table.trace.empty();
  const std::string held = r.held_bytes ? io::human_bytes(*r.held_bytes, units) : "-";
  const std::string mark = r.reason.empty() ? "" : text.footnote(r.reason);
  std::vector<io::TextTable::Field> fields{{r.status, mark}, {held}};
  if (!table.quality.name().empty()) fields.push_back({perplexity(r, "unknown")});
  if (!trace) {
    fields.insert(fields.end(), {{count(r.users_most)}, {milliseconds(r.tpot_p50_ms)}});
    return {r.variant, fields};
  }
  const auto per_1000 = r.preemptions_per_1000 ? fixed(*r.preemptions_per_1000, "%.1f") : "-";
  fields.insert(fields.end(), {{count(r.users_p50)},
                               {count(r.users_peak)},
                               {percent(r.slack_share)},
                               {per_1000},
                               {count(r.refused)},
                               {percent(r.hit_rate)},
                               {seconds(r.wait_p99_s)},
                               {seconds(r.ttft_p99_s)},
                               {milliseconds(r.tpot_p99_ms)}});
  return {r.variant, fields};
}

}  // namespace

io::TextTable text_table(const PlanTable& table, io::Units units) {
  const std::vector<PlanResult> rows = results_of(table);
  const bool trace = !table.trace.empty();
  io::TextTable text;
  text.title = answer(table, rows, units);
  text.facts = "Weights take " + table.weights_text +
               (table.geometry.parameters > 0 ? "." : ", 2 bytes a parameter for all that is known.") +
               (trace ? " " + facts_of_trace(table) : "");
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
  for (const PlanResult& row : rows) text.rows.push_back(shown(table, row, units, text));
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
                 "of that run's model and text. Unknown: it has none."});
  return text;
}

const results::Schema<PlanResult>& plan_schema() {
  using F = PlanResult;
  static const results::Schema<F> schema(
      "the plan",
      {{"model", "", &F::model, "whose geometry it is"},
       {"variant", "", &F::variant, "canonical spec"},
       {"status", "", &F::status, "fits; refuses: some requests; too_large: for so many users; unsupported"},
       {"reason", "", &F::reason, "why it is unsupported"},
       {"trace", "", &F::trace, "the requests' file; empty for users of one context"},
       {"memory_bytes", "bytes", &F::memory_bytes, "of the machine"},
       {"weights_bytes", "bytes", &F::weights_bytes, "of that"},
       {"room_bytes", "bytes", &F::room_bytes, "what is left for caches"},
       {"held_bytes", "bytes", &F::held_bytes, "of sequences, at the peak; slack and tables included"},
       {"bytes_from", "", &F::bytes_from, "computed: by allocators without rows, or by the closed form"},
       {"requests", "", &F::requests, "that came"},
       {"refused", "", &F::refused, "of these, that would not fit alone"},
       {"users_p50", "", &F::users_p50, "sequences that ran at once, median over the time in which any did"},
       {"users_peak", "", &F::users_peak, "and the most"},
       {"users_most", "", &F::users_most, "of one context, for which there is room"},
       {"pool_blocks", "", &F::pool_blocks, "of paged groups, all layers"},
       {"slack_share", "1", &F::slack_share, "of the bytes held, what is no filled row; mean over time"},
       {"preemptions_per_1000", "", &F::preemptions_per_1000, "requests"},
       {"recomputed_share", "1", &F::recomputed_share,
        "rows dropped and computed again / tokens of all requests"},
       {"hit_rate", "1", &F::hit_rate,
        "of a prefix cache of room_bytes, least recently used, one request after another"},
       {"hit_rate_at_any", "1", &F::hit_rate_at_any, "of one without limit"},
       {"perplexity_change", "1", &F::perplexity_change, "perplexity / that with a full f32 cache - 1"},
       {"perplexity_change_ci_low", "1", &F::perplexity_change_ci_low, "its 95 % interval"},
       {"perplexity_change_ci_high", "1", &F::perplexity_change_ci_high, "its upper end"},
       {"quality_from", "", &F::quality_from,
        "whose perplexity: a run, its model and context; unknown: it has no such codec and retention; empty: "
        "not asked"},
       {"times_from", "", &F::times_from, "assumed: the roofline of the stated machine; empty: no times"},
       {"wait_p99_s", "s", &F::wait_p99_s, "from arrival to admission"},
       {"ttft_p50_s", "s", &F::ttft_p50_s, "from arrival to the first token"},
       {"ttft_p99_s", "s", &F::ttft_p99_s, "likewise"},
       {"tpot_p50_ms", "ms", &F::tpot_p50_ms,
        "of each further token, mean of a request; of users: of a step"},
       {"tpot_p99_ms", "ms", &F::tpot_p99_ms, "likewise"},
       {"seconds", "s", &F::seconds, "until the last answer"},
       {"tokens_per_s", "tokens/s", &F::tokens_per_s, "generated"}});
  return schema;
}

}  // namespace kv::planner
