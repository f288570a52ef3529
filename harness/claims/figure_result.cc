#include "harness/claims/figure_result.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "harness/claims/expression.h"
#include "harness/results/table.h"

namespace kv::claims {

inline constexpr results::TextColumn kSource{"source", "", "name of the claim file"};
inline constexpr results::TextColumn kClaim{"claim", "", "id of the claim in its file"};
inline constexpr results::TextColumn kFigure{
    "figure", "", "row of the table and name of the check; empty if the claim has one"};
inline constexpr results::TextColumn kKind{"kind", "", "of the source: document or paper"};
inline constexpr results::TextColumn kTableTitle{"table", "", "the source's table, if the figure is in one"};
inline constexpr results::TextColumn kTableRow{"row", "", "row of that table"};
inline constexpr results::TextColumn kTableColumn{"column", "", "column of that table"};
inline constexpr results::TextColumn kReading{"reading", "",
                                              "yes if the source leaves open whether it means this"};
inline constexpr results::TextColumn kRole{"role", "", "decides, control, scope, or sum of the source's own"};
inline constexpr results::TextColumn kDecides{
    "decides", "", "yes in one row of each published figure, which gives its verdict"};
inline constexpr results::TextColumn kCheck{"check", "", "kind of the check"};
inline constexpr results::TextColumn kReplica{"replica", "",
                                              "exact, or qualitative: other inputs or another size"};
inline constexpr results::TextColumn kMachine{"machine", "", "yes if the verdict depends on the machine"};
inline constexpr results::TextColumn kPublished{"published", "", "the source's figure"};
inline constexpr results::TextColumn kComputed{"computed", "", "computed value in the figure's unit"};
inline constexpr results::TextColumn kMeasured{"measured", "",
                                               "measured value in the figure's unit, and its interval"};
inline constexpr results::NumberColumn kComputedValue{"computed_value", "", "computed, in the base unit"};
inline constexpr results::NumberColumn kMeasuredValue{"measured_value", "", "measured, in the base unit"};
inline constexpr results::NumberColumn kIntervalLow{"interval_low", "", "lower end of its 95 % interval"};
inline constexpr results::NumberColumn kIntervalHigh{"interval_high", "", "upper end of its 95 % interval"};
inline constexpr results::TextColumn kVerdict{"verdict", "", "explained in configs/claims/README.md"};
inline constexpr results::TextColumn kReason{"reason", "", "reason of the verdict"};
inline constexpr results::TextColumn kNote{"note", "", "remark of the claim file"};
inline constexpr results::TextColumn kText{"text", "", "the claim in a sentence"};
inline constexpr results::TextColumn kTitle{"title", "", "title of the source"};
inline constexpr results::TextColumn kDocument{"document", "", "document of the source"};
inline constexpr results::TextColumn kWhere{"where", "", "place in the source"};
inline constexpr results::TextColumn kQuote{"quote", "", "words of the source"};
inline constexpr results::TextColumn kSetting{"setting", "", "the configuration that reproduces it"};
inline constexpr results::TextColumn kHow{"how", "", "expressions of the check, and their names"};
inline constexpr results::TextColumn kRun{"run", "", "sweep configs that they need, as TOML"};
inline constexpr auto kClaimColumns = results::column_list(
    kSource, kKind, kClaim, kFigure, kTableTitle, kTableRow, kTableColumn, kRole, kReading, kDecides, kCheck,
    kReplica, kMachine, kPublished, kComputed, kMeasured, kComputedValue, kMeasuredValue, kIntervalLow,
    kIntervalHigh, kVerdict, kReason, kNote, kText, kTitle, kDocument, kWhere, kQuote, kSetting, kHow, kRun);
inline const results::Table kClaimTable{"claims.csv", {kClaimColumns.begin(), kClaimColumns.end()}};

namespace {

std::string bytes_text(const Statement& s, const std::string& spec) {
  const CacheShape& m = s.model;
  return "bytes of " + spec + ", layers " + std::to_string(m.layers) + ", KV heads " +
         std::to_string(m.kv_heads) + ", head dim " + std::to_string(m.head_dim) + ", tokens " + s.tokens +
         ", batch " + s.batch + (s.reserve.empty() ? "" : ", room for " + s.reserve);
}

std::string quantity_text(const Quantity& quantity) {
  std::string text = (quantity.take.empty() ? "" : quantity.take + " of ") + quantity.metric +
                     (quantity.kind.empty() ? "" : " of " + quantity.kind) + " in run " + quantity.run;
  for (const auto& [column, value] : quantity.where) text += ", " + column + " " + value;
  return text;
}

// The definitions that the expressions use, directly or through another definition.
std::set<std::string> definitions_used(const Statement& s) {
  std::vector<std::string> expressions{s.computed, s.measured, s.tokens, s.batch, s.reserve};
  std::set<std::string> used;
  while (!expressions.empty()) {
    const std::string text = expressions.back();
    expressions.pop_back();
    if (text.empty()) continue;
    const Expression expression(text);
    for (const std::string& name : expression.names()) {
      const auto defined = s.define.find(name);
      if (defined != s.define.end() && used.insert(name).second) expressions.push_back(defined->second);
    }
  }
  return used;
}

std::string how_checked(const FigureResult& row) {
  const Statement& s = *row.statement;
  std::string text;
  const auto say = [&](const std::string& name, const std::string& meaning) {
    text += "  " + name + " = " + meaning + "\n";
  };
  if (!s.computed.empty()) text += "computed: " + s.computed + "\n";
  if (!s.measured.empty()) text += "measured: " + s.measured + "\n";
  for (const auto& [name, spec] : s.bytes) say(name, bytes_text(s, spec));
  for (const auto& [name, quantity] : s.quantities) say(name, quantity_text(quantity));
  for (const std::string& name : definitions_used(s)) say(name, s.define.at(name));
  std::string lengths;
  for (const int64_t length : s.lengths) lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
  if (!s.over.empty()) say(s.over, lengths);
  return text;
}

// The configs of the runs whose values the statement uses, as TOML.
std::string runs_of(const FigureResult& row) {
  std::set<std::string> names;
  for (const auto& [name, quantity] : row.statement->quantities) names.insert(quantity.run);
  std::string text;
  for (const std::string& name : names) {
    const ClaimRun& run = row.file->runs.at(name);
    text += "# run " + name;
    for (const int64_t seed : run.seeds)
      text += (seed == run.seeds.front() ? ", seeds " : ", ") + std::to_string(seed);
    text += run.results.empty() ? "\n" + run.toml : ", results/" + run.results + "\n";
  }
  return text;
}

results::Row row_of(const FigureResult& f) {
  const Statement& s = *f.statement;
  results::Row row;
  row[kSource] = f.file->name;
  row[kClaim] = f.claim->id;
  row[kKind] = f.file->kind;
  row[kFigure] = s.name;
  row[kTableTitle] = s.table;
  row[kTableRow] = s.table.empty() ? "" : s.row;
  row[kTableColumn] = s.table.empty() ? "" : s.column;
  row[kRole] = std::string(s.check->own ? "sum" : s.role);
  row[kReading] = s.reading ? "yes" : "no";
  row[kDecides] = f.decides ? "yes" : "no";
  row[kCheck] = s.check->name;
  row[kReplica] = s.exact ? "exact" : "qualitative";
  row[kMachine] = s.depends_on_machine() ? "yes" : "no";
  row[kPublished] = s.published.text;
  row[kComputed] = f.computed;
  row[kMeasured] = f.measured;
  if (f.computed_value) row[kComputedValue] = *f.computed_value;
  if (f.measured_value) row[kMeasuredValue] = *f.measured_value;
  if (f.interval) {
    row[kIntervalLow] = f.interval->low;
    row[kIntervalHigh] = f.interval->high;
  }
  row[kVerdict] = f.verdict->name;
  row[kReason] = f.reason;
  row[kNote] = s.note;
  row[kText] = f.claim->text;
  row[kTitle] = f.file->title;
  row[kDocument] = f.file->document;
  row[kWhere] = f.claim->place;
  row[kQuote] = f.claim->quote;
  row[kSetting] = f.claim->setting;
  row[kHow] = how_checked(f);
  row[kRun] = runs_of(f);
  return row;
}

}  // namespace

void settle(std::vector<FigureResult>& figures) {
  for (const FigureResult& control : figures) {
    if (control.statement->role != kRoles[1] || control.verdict->rank >= kConsistent.rank) continue;
    for (FigureResult& f : figures) {
      if (f.claim != control.claim || !f.statement->decides()) continue;
      f.verdict = &kNotTestable;
      f.reason = "not judged, since a control came out otherwise: " + control.statement->name + ", " +
                 (control.measured.empty() ? control.computed : control.measured);
    }
  }
  std::map<std::pair<const ClaimFile*, std::string>, std::vector<FigureResult*>> checks;
  for (FigureResult& f : figures) {
    if (f.statement->decides()) checks[{f.file, f.claim->figure_of(*f.statement)}].push_back(&f);
  }
  const auto worse = [](const FigureResult* a, const FigureResult* b) {
    return a->verdict->rank < b->verdict->rank;
  };
  for (auto& [published, of_figure] : checks) {
    const auto readings = std::stable_partition(of_figure.begin(), of_figure.end(),
                                                [](const FigureResult* f) { return !f->statement->reading; });
    if (of_figure.end() - readings > 1) {
      std::iter_swap(readings, std::max_element(readings, of_figure.end(), worse));
      of_figure.erase(readings + 1, of_figure.end());
    }
    (*std::min_element(of_figure.begin(), of_figure.end(), worse))->decides = true;
  }
}

std::string claims_csv(std::span<const FigureResult> figures) {
  std::vector<results::Row> rows;
  std::ranges::transform(figures, std::back_inserter(rows), row_of);
  return results::csv_text(kClaimTable, rows);
}

}  // namespace kv::claims
