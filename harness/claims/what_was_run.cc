#include "harness/claims/what_was_run.h"

#include <set>
#include <vector>

#include "harness/claims/expression.h"

namespace kv::claims {
namespace {

std::string line_of(const std::string& name, const std::string& meaning) {
  return "  " + name + " = " + meaning + "\n";
}

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

// Of the file's [define], those that the expressions name, or that such a one names.
std::set<std::string> definitions_used(const Statement& s) {
  std::vector<std::string> expressions;
  for (const std::string& expression : {s.computed, s.measured, s.tokens, s.batch, s.reserve})
    if (!expression.empty()) expressions.push_back(expression);
  std::set<std::string> used;
  while (!expressions.empty()) {
    const Expression expression(expressions.back());
    expressions.pop_back();
    for (const std::string& name : expression.names()) {
      const auto defined = s.define.find(name);
      if (defined != s.define.end() && used.insert(name).second) expressions.push_back(defined->second);
    }
  }
  return used;
}

}  // namespace

std::string how_checked(const Statement& s) {
  std::string text;
  if (!s.computed.empty()) text += "computed: " + s.computed + "\n";
  if (!s.measured.empty()) text += "measured: " + s.measured + "\n";
  for (const auto& [name, spec] : s.bytes) text += line_of(name, bytes_text(s, spec));
  for (const auto& [name, quantity] : s.quantities) text += line_of(name, quantity_text(quantity));
  for (const std::string& name : definitions_used(s)) text += line_of(name, s.define.at(name));
  if (!s.over.empty()) {
    std::string lengths;
    for (const int64_t length : s.lengths) lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
    text += line_of(s.over, lengths);
  }
  return text;
}

std::string runs_of(const ClaimFile& file, const Statement& s) {
  std::set<std::string> names;
  for (const auto& [name, quantity] : s.quantities) names.insert(quantity.run);
  std::string text;
  for (const std::string& name : names) {
    const ClaimRun& run = file.runs.at(name);
    text += "# run " + name;
    for (const int64_t seed : run.seeds)
      text += (seed == run.seeds.front() ? ", seeds " : ", ") + std::to_string(seed);
    text += "\n" + run.toml;
  }
  return text;
}

}  // namespace kv::claims
