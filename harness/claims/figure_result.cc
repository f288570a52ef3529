#include "harness/claims/figure_result.h"

#include <set>
#include <vector>

#include "harness/claims/expression.h"
#include "harness/io/csv.h"
#include "harness/results/value.h"

namespace kv::claims {
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

// The definitions that the expressions name, or that such a definition names.
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

// The runs that the statement takes values from, as TOML.
std::string runs_of(const FigureResult& row) {
  std::set<std::string> names;
  for (const auto& [name, quantity] : row.statement->quantities) names.insert(quantity.run);
  std::string text;
  for (const std::string& name : names) {
    const ClaimRun& run = row.file->runs.at(name);
    text += "# run " + name;
    for (const int64_t seed : run.seeds)
      text += (seed == run.seeds.front() ? ", seeds " : ", ") + std::to_string(seed);
    text += "\n" + run.toml;
  }
  return text;
}

std::string csv_number(const std::optional<double>& value) {
  return value ? results::text_of(results::Number(*value)) : "";
}

struct Column {
  const char* name;
  std::string (*text)(const FigureResult& row);
};
using F = const FigureResult&;
constexpr Column kCsvColumns[] = {
    {"source", [](F f) { return f.file->name; }},
    {"claim", [](F f) { return f.claim->id; }},
    {"figure", [](F f) { return f.statement->name; }},
    {"check", [](F f) { return std::string(f.statement->check->name); }},
    {"replica", [](F f) -> std::string { return f.statement->exact ? "exact" : "qualitative"; }},
    {"machine", [](F f) -> std::string { return f.statement->depends_on_machine() ? "yes" : "no"; }},
    {"published", [](F f) { return f.statement->published.text; }},
    {"computed", [](F f) { return f.computed; }},
    {"measured", [](F f) { return f.measured; }},
    {"computed_value", [](F f) { return csv_number(f.computed_value); }},
    {"measured_value", [](F f) { return csv_number(f.measured_value); }},
    {"interval_low", [](F f) { return f.interval ? csv_number(f.interval->low) : ""; }},
    {"interval_high", [](F f) { return f.interval ? csv_number(f.interval->high) : ""; }},
    {"verdict", [](F f) { return std::string(f.verdict->name); }},
    {"reason", [](F f) { return f.reason; }},
    {"note", [](F f) { return f.statement->note; }},
    {"text", [](F f) { return f.claim->text; }},
    {"title", [](F f) { return f.file->title; }},
    {"document", [](F f) { return f.file->document; }},
    {"where", [](F f) { return f.claim->place; }},
    {"quote", [](F f) { return f.claim->quote; }},
    {"setting", [](F f) { return f.claim->setting; }},
    {"how", how_checked},
    {"run", runs_of},
};

}  // namespace

std::string claims_csv(std::span<const FigureResult> figures) {
  io::CsvRecord head;
  for (const Column& column : kCsvColumns) head.emplace_back(column.name);
  std::string text = io::csv_line(head);
  for (const FigureResult& figure : figures) {
    io::CsvRecord fields;
    for (const Column& column : kCsvColumns) fields.push_back(column.text(figure));
    text += io::csv_line(fields);
  }
  return text;
}

}  // namespace kv::claims
