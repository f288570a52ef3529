#include "harness/claims/claims.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/claims/read_statement.h"
#include "harness/config/section.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"

namespace kv::claims {
namespace {

// A [run.NAME] is a sweep config but for `seeds`; load_config reads the rest when it is run. One that takes too long to be run
// with all others names its committed results instead.
ClaimRun read_run(config::Section section) {
  ClaimRun run;
  run.results = section.text("results", "");
  if (!run.results.empty() && !std::filesystem::exists(committed_run(run.results) / "cells.csv"))
    section.fail("results", "names no committed run: there is no results/" + run.results + "/cells.csv");
  if (!run.results.empty() && !section.has("experiment")) {
    section.refuse_the_rest();
    return run;
  }
  run.seeds = section.integers("seeds", {}, 0, INT64_MAX);
  if (!section.has("experiment")) section.refuse("needs experiment, sweep, … as a sweep config has them");
  toml::table config = section.table();
  config.erase("seeds"), config.erase("results");
  std::ostringstream text;
  text << config << "\n";
  run.toml = text.str();
  return run;
}

std::string row_label(const Texts& row, const std::vector<std::string>& columns) {
  if (columns.empty()) return "";
  return row.contains("name") ? row.at("name") : row.at(columns.front());
}

Claim read_claim(config::Section& section, const CacheShape& model, const Texts& define) {
  Claim claim;
  for (const char* needed : {"id", "text", "where", "quote", "check"}) {
    if (!section.has(needed)) section.refuse(std::string("needs ") + needed);
  }
  claim.id = section.text("id", "");
  claim.text = section.text("text", "");
  claim.place = section.text("where", "");
  claim.quote = section.text("quote", "");
  claim.setting = section.text("setting", "");
  const std::vector<std::string> columns = section.texts("columns", {});
  std::vector<std::vector<std::string>> rows = section.verbatim_rows("rows", columns.size());
  if (rows.empty() != columns.empty()) section.refuse("needs both columns and rows, or neither");
  if (rows.empty()) rows.emplace_back();
  std::vector<config::Section> figures = section.sections("figure");
  for (const std::vector<std::string>& values : rows) {
    Texts row;
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = values[i];
    const auto add = [&](config::Section* figure) {
      std::optional<Statement> read = read_statement(section, figure, row, model, define);
      if (!read) return;
      Statement& s = *read;
      const std::string label = row_label(row, columns);
      if (s.row.empty()) s.row = label.empty() ? s.name : label;
      if (s.column.empty() && !label.empty()) s.column = s.name;
      s.name = label.empty() || s.name.empty() ? label + s.name : label + ", " + s.name;
      claim.statements.push_back(std::move(s));
    };
    if (figures.empty()) add(nullptr);
    for (config::Section& figure : figures) add(&figure);
  }
  if (claim.statements.empty()) section.refuse("has no figure: published is empty in every row");
  if (std::ranges::none_of(claim.statements, &Statement::decides))
    section.refuse("has no check that decides");
  section.refuse_the_rest();
  for (const config::Section& figure : figures) figure.refuse_the_rest();
  return claim;
}

void check_runs(const config::Section& section, const ClaimFile& file, const Claim& claim) {
  for (const Statement& s : claim.statements) {
    for (const auto& [name, quantity] : s.quantities) {
      if (!file.runs.contains(quantity.run))
        section.fail("cells", "has '" + name + "' of the run '" + quantity.run + "', but there is no [run." +
                                  quantity.run + "]");
    }
  }
}

}  // namespace

std::filesystem::path committed_run(const std::string& results) {
  return io::project_home() / "results" / results;
}

bool Statement::depends_on_machine() const {
  return std::ranges::any_of(quantities, [](const auto& q) { return q.second.depends_on_machine(); });
}

std::string Claim::figure_of(const Statement& s) const {
  if (!s.table.empty()) return s.table + "\n" + s.row + "\n" + s.column;
  return id + "\n" + (s.published.truth || s.check->ordering ? "" : s.published.text);
}

ClaimFile load_claims(const std::string& path) {
  const toml::table root = config::parse_toml_file(path);
  config::Section top(root, path, "");
  ClaimFile file;
  file.name = io::as_utf8(std::filesystem::path(path).stem().string());
  file.path = path;
  file.title = top.text("title", file.name);
  file.document = top.text("document", "");
  file.kind = top.choice("kind", "paper", {"document", "paper"});
  if (file.document.empty())
    throw std::invalid_argument(path + ": document is missing: the source that is quoted");
  config::Section model_section = top.section("model"), define_section = top.section("define");
  const CacheShape model = read_model(model_section);
  const Texts define = define_section.all_verbatim();
  for (auto& [name, section] : top.section("run").subsections()) file.runs[name] = read_run(section);
  std::set<std::string> ids;
  std::vector<config::Section> claims = top.sections("claim");
  if (claims.empty()) throw std::invalid_argument(path + ": has no [[claim]]");
  for (config::Section& section : claims) {
    Claim claim = read_claim(section, model, define);
    if (!ids.insert(claim.id).second) section.fail("id", "names '" + claim.id + "' twice");
    check_runs(section, file, claim);
    file.claims.push_back(std::move(claim));
  }
  top.refuse_the_rest();
  return file;
}

}  // namespace kv::claims
