#include "harness/claims.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/expression.h"
#include "harness/geometry.h"
#include "harness/paths.h"
#include "harness/results.h"
#include "harness/section.h"
#include "kernels/attention.h"
#include "variants/build.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

using Texts = std::map<std::string, std::string>;

std::vector<std::string> names_of(const std::vector<CheckKind>& kinds) {
  std::vector<std::string> names;
  for (const CheckKind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

// {column} as the row has it.
std::string filled(const Section& section, const std::string& key, std::string text, const Texts& row) {
  for (size_t open = 0; (open = text.find('{', open)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    const std::string name = text.substr(open + 1, close == std::string::npos ? close : close - open - 1);
    const auto value = row.find(name);
    if (close == std::string::npos || value == row.end()) {
      std::string known;
      for (const auto& [column, unused] : row) known += (known.empty() ? "" : ", ") + column;
      section.fail(key, "has {" + name + "}, which is no column of the table; columns: " +
                            (known.empty() ? "none" : known));
    }
    text.replace(open, close - open + 1, value->second);
    open += value->second.size();
  }
  return text;
}

CacheShape read_model(Section& section) {
  CacheShape shape;
  if (section.has("preset")) {
    try {
      const Geometry g = preset_geometry(section.text("preset", ""));
      shape = {.layers = g.layers, .q_heads = g.q_heads, .kv_heads = g.kv_heads, .head_dim = g.head_dim};
    } catch (const std::invalid_argument& e) {
      section.fail("preset", e.what());
    }
  }
  shape.layers = static_cast<int>(section.integer("layers", shape.layers, 1, 1024));
  shape.kv_heads = static_cast<int>(section.integer("kv_heads", shape.kv_heads, 1, 4096));
  shape.q_heads =
      static_cast<int>(section.integer("q_heads", std::max(shape.q_heads, shape.kv_heads), 1, 4096));
  shape.head_dim = static_cast<int>(section.integer("head_dim", shape.head_dim, 8, kMaxHeadDim));
  section.refuse_the_rest();
  return shape;
}

// A [run.NAME] is a sweep config but for `seeds`; load_config looks at the rest when it is run.
ClaimRun read_run(Section section) {
  ClaimRun run;
  run.seeds = section.integers("seeds", {}, 0, INT64_MAX);
  if (!section.has("experiment")) section.refuse("needs experiment, sweep, … as a sweep config has them");
  toml::table config = section.table();
  config.erase("seeds");
  std::ostringstream text;
  text << config << "\n";
  run.toml = text.str();
  return run;
}

// Columns of cells.csv that are times or follow from them have no interval of their own.
bool has_interval_elsewhere(const std::string& column) {
  for (const char* part : {"_us", "gbps", "ratio", "per_s", "ceiling", "bound", "rss"}) {
    if (column.find(part) != std::string::npos) return true;
  }
  return false;
}

bool is_column(std::span<const Column> columns, const std::string& name) {
  return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
}

Quantity read_quantity(Section section, const Texts& row) {
  Quantity q;
  q.run = section.text("run", "");
  q.metric = section.text("metric", "");
  q.take = section.choice("take", "", {"", "median", "sum", "increases"});
  q.kind = section.text("kind", "");
  for (const char* needed : {"run", "metric"}) {
    if (!section.has(needed)) section.refuse(std::string("needs ") + needed);
  }
  for (const auto& [key, value] : section.all_verbatim()) {
    if (key == "run" || key == "metric" || key == "take" || key == "kind") continue;
    if (!is_column(cell_columns(), key))
      section.fail(key, "is no column of cells.csv; `kvlab list` names them");
    q.where[key] = filled(section, key, value, row);
  }
  const bool sampled = is_column(sample_columns(), q.metric) || is_column(growth_columns(), q.metric);
  if (!q.take.empty() && !sampled)
    section.fail("metric", "is no column of samples.csv or growth.csv: '" + q.metric + "'");
  if (q.take.empty() && !is_column(cell_columns(), q.metric))
    section.fail("metric", "is no column of cells.csv: '" + q.metric + "'");
  if (q.take.empty() && has_interval_elsewhere(q.metric)) {
    section.fail("metric",
                 "is a time: take = \"median\" of samples (step_us, attend_us, …) has an interval, '" +
                     q.metric + "' has none");
  }
  return q;
}

// What a claim says, or one of its figures in place of it.
class Keys {
 public:
  Keys(Section& claim, Section* figure, const Texts& row) : claim_(claim), figure_(figure), row_(row) {}

  Section& holder(const std::string& key) { return figure_ && figure_->has(key) ? *figure_ : claim_; }
  // Both are asked, since a key that was asked for is a known one.
  bool has(const std::string& key) {
    const bool own = figure_ && figure_->has(key), shared = claim_.has(key);
    return own || shared;
  }
  std::string text(const std::string& key, const std::string& fallback = "") {
    return filled(holder(key), key, holder(key).verbatim(key, fallback), row_);
  }
  std::string expression(const std::string& key, const std::string& fallback = "") {
    const std::string value = text(key, fallback);
    if (!value.empty()) checked(key, [&] { Expression{value}; });
    return value;
  }
  // What `use` throws is said with file, line and key.
  void checked(const std::string& key, const std::function<void()>& use) {
    try {
      use();
    } catch (const std::invalid_argument& e) {
      holder(key).fail(key, e.what());
    }
  }
  Texts texts(const std::string& key) {
    Texts all;
    Section section = holder(key).section(key);
    for (const auto& [name, value] : section.all_verbatim()) all[name] = filled(section, name, value, row_);
    return all;
  }
  const Texts& row() const { return row_; }

 private:
  Section& claim_;
  Section* figure_;
  const Texts& row_;
};

void require_keys(Keys& keys, const Statement& s) {
  const auto kind = std::find_if(check_kinds().begin(), check_kinds().end(),
                                 [&](const CheckKind& k) { return k.name == s.check; });
  const auto need = [&](bool needed, const char* key, bool there) {
    if (needed && !there) keys.holder("check").fail("check", "is \"" + s.check + "\", which needs " + key);
  };
  need(kind->bytes, "bytes, tokens and model", !s.bytes.empty() && !s.tokens.empty());
  need(kind->computed, "computed", !s.computed.empty());
  need(kind->measured, "measured and cells", !s.measured.empty() && !s.quantities.empty());
  need(kind->over, "over, and computed or measured",
       !s.over.empty() && !(s.computed.empty() && s.measured.empty()));
  need(s.check == "none", "reason", !s.reason.empty());
  need(s.check == "ordering", "a bound as published, such as \">1\" or \"<1\"",
       s.check != "ordering" || (s.published.relation != Figure::Relation::kEqual &&
                                 s.published.relation != Figure::Relation::kBetween));
  if (s.check != "growth law" && (s.published.exponent() || !s.over.empty()))
    keys.holder("check").fail("check", "must be \"growth law\" where there is O(…) or over");
}

std::set<std::string> known_names(const Statement& s) {
  std::set<std::string> names{"K", "MB", "GB"};
  for (const auto& [name, value] : s.define) names.insert(name);
  for (const auto& [name, value] : s.bytes) names.insert(name);
  for (const auto& [name, value] : s.quantities) names.insert(name);
  if (!s.over.empty()) names.insert(s.over);
  return names;
}

// Throws for a name that stands for nothing, or for itself, in an expression or in what it is defined by.
void check_names(const Statement& s, const std::string& expression, std::vector<std::string> inside) {
  const std::set<std::string> known = known_names(s);
  const Expression parsed(expression);
  for (const std::string& name : parsed.names()) {
    if (!known.count(name)) {
      std::string list;
      for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
      throw std::invalid_argument("has '" + name +
                                  "', which is not a name that is known here; known: " + list);
    }
    if (std::count(inside.begin(), inside.end(), name))
      throw std::invalid_argument("has '" + name + "', which is defined by itself");
    const bool defined =
        s.define.count(name) && name != s.over && !s.bytes.count(name) && !s.quantities.count(name);
    if (!defined) continue;
    inside.push_back(name);
    check_names(s, s.define.at(name), inside);
    inside.pop_back();
  }
}

void read_bytes(Keys& keys, const CacheShape& model, Statement& s) {
  s.model = model;
  if (keys.has("model")) {
    Section section = keys.holder("model").section("model");
    s.model = read_model(section);
  }
  if (!keys.has("bytes")) return;
  s.bytes = keys.texts("bytes");
  for (const auto& [name, text] : s.bytes) {
    keys.checked("bytes", [&, &spec = text] {
      const std::string reason = unsupported_reason(parse_spec(spec), s.model.head_dim);
      if (!reason.empty()) throw std::invalid_argument("has '" + spec + "': " + reason);
    });
  }
  s.tokens = keys.expression("tokens");
  s.batch = keys.expression("batch", "1");
  s.reserve = keys.expression("reserve");
  if (s.computed.empty() && s.bytes.size() == 1) s.computed = s.bytes.begin()->first;
}

void read_over(Keys& keys, Statement& s) {
  if (!keys.has("over")) return;
  Section section = keys.holder("over").section("over");
  const auto& table = section.table();
  if (table.size() != 1)
    keys.holder("over").fail("over", "must be one variable and its values, as in { T = [256, 512, 1024] }");
  s.over = std::string(table.begin()->first.str());
  s.lengths = section.integers(s.over, {}, 1, INT64_MAX);
  if (s.lengths.size() < 2) section.fail(s.over, "needs two values or more");
}

Statement read_statement(Keys& keys, const CacheShape& model, const Texts& define) {
  Statement s;
  Section& published = keys.holder("published");
  if (!keys.has("published")) published.refuse("needs published, the figure as the source prints it");
  const std::string figure = keys.text("published"), tolerance = keys.text("tolerance", "as printed");
  keys.checked("published", [&] { s.published = parse_figure(figure); });
  keys.checked("tolerance", [&] { s.tolerance = parse_tolerance(tolerance); });
  s.where = keys.holder("id").place();
  s.name = keys.text("name");
  s.check = keys.holder("check").choice("check", "", names_of(check_kinds()));
  s.exact = keys.holder("replica").choice("replica", "exact", {"exact", "qualitative"}) == "exact";
  s.note = keys.text("note");
  s.reason = keys.text("reason");
  s.define = define;
  for (const auto& [column, value] : keys.row()) s.define[column] = value;
  if (keys.has("define")) {
    for (const auto& [name, value] : keys.texts("define")) s.define[name] = value;
  }
  s.computed = keys.expression("computed");
  s.measured = keys.expression("measured");
  read_over(keys, s);
  if (s.published.exponent() && !s.over.empty()) s.published.exponent_of = s.over;
  read_bytes(keys, model, s);
  if (keys.has("cells")) {
    // {T} of a growth law stays for its values.
    Texts row = keys.row();
    if (!s.over.empty()) row[s.over] = "{" + s.over + "}";
    for (auto& [name, section] : keys.holder("cells").section("cells").subsections())
      s.quantities[name] = read_quantity(section, row);
  }
  require_keys(keys, s);
  const std::pair<const char*, const std::string&> expressions[] = {{"computed", s.computed},
                                                                    {"measured", s.measured},
                                                                    {"tokens", s.tokens},
                                                                    {"batch", s.batch},
                                                                    {"reserve", s.reserve}};
  for (const auto& [key, text] : expressions) {
    if (!text.empty()) keys.checked(key, [&, &expression = text] { check_names(s, expression, {}); });
  }
  return s;
}

std::string title_of(const Texts& row, const std::vector<std::string>& columns, const std::string& name) {
  const std::string first = columns.empty()     ? ""
                            : row.count("name") ? row.at("name")
                                                : row.at(columns.front());
  return first.empty() || name.empty() ? first + name : first + ", " + name;
}

Claim read_claim(Section& section, const CacheShape& model, const Texts& define) {
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
  std::vector<Section> figures = section.sections("figure");
  for (const std::vector<std::string>& values : rows) {
    Texts row;
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = values[i];
    const auto add = [&](Section* figure) {
      Keys keys(section, figure, row);
      Statement s = read_statement(keys, model, define);
      s.name = title_of(row, columns, s.name);
      claim.statements.push_back(std::move(s));
    };
    if (figures.empty()) add(nullptr);
    for (Section& figure : figures) add(&figure);
  }
  section.refuse_the_rest();
  for (const Section& figure : figures) figure.refuse_the_rest();
  return claim;
}

void check_runs(const Section& section, const ClaimFile& file, const Claim& claim) {
  for (const Statement& s : claim.statements) {
    for (const auto& [name, quantity] : s.quantities) {
      if (!file.runs.count(quantity.run))
        section.fail("cells", "has '" + name + "' of the run '" + quantity.run + "', but there is no [run." +
                                  quantity.run + "]");
    }
  }
}

std::vector<fs::path> all_files() {
  std::vector<fs::path> files;
  const fs::path folder = project_home() / "configs" / "claims";
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

fs::path file_named(const std::string& name, const std::vector<fs::path>& files) {
  if (name.ends_with(".toml")) return find_input(name, "claim file");
  std::vector<fs::path> found;
  std::string known;
  for (const fs::path& file : files) {
    if (file.stem() == name) return file;
    if (file.stem().string().starts_with(name)) found.push_back(file);
    known += (known.empty() ? "" : ", ") + file.stem().string();
  }
  if (found.size() == 1) return found.front();
  throw std::invalid_argument("'" + name + "' names " +
                              (found.empty() ? "no claim file" : "several claim files") + "; there are " +
                              known + ", or give a path that ends in .toml");
}

void keep_claim(ClaimFile& file, const std::string& id) {
  std::string known;
  for (const Claim& claim : file.claims) known += (known.empty() ? "" : ", ") + claim.id;
  std::erase_if(file.claims, [&](const Claim& claim) { return claim.id != id; });
  if (file.claims.empty())
    throw std::invalid_argument("'" + id + "' is no claim of " + file.path + "; it has " + known);
}

// Claims of a file that is chosen already join it: its runs are shared.
void add_claims(ClaimFile file, std::vector<ClaimFile>& chosen) {
  const auto there =
      std::find_if(chosen.begin(), chosen.end(), [&](const ClaimFile& c) { return c.name == file.name; });
  if (there == chosen.end()) {
    chosen.push_back(std::move(file));
    return;
  }
  if (fs::absolute(there->path) != fs::absolute(file.path))
    throw std::invalid_argument(there->path + " and " + file.path + " have the same name; rename one");
  for (Claim& claim : file.claims) {
    const bool known = std::any_of(there->claims.begin(), there->claims.end(),
                                   [&](const Claim& c) { return c.id == claim.id; });
    if (!known) there->claims.push_back(std::move(claim));
  }
}

}  // namespace

const std::vector<CheckKind>& check_kinds() {
  static const std::vector<CheckKind> kinds{
      {"closed form", true, false, false, false,
       "bytes that a spec holds at a length; counted by the ledger as well where that is small enough"},
      {"formula", false, true, false, false,
       "arithmetic on figures that the source or the model's shape gives"},
      {"roofline", false, true, false, false, "a time or rate that follows from bytes and bandwidths"},
      {"measurement", false, false, true, false,
       "values of cells that the driver measures here, with an interval"},
      {"ordering", false, false, true, false, "a measured ratio against a bound: which of two is better"},
      {"growth law", false, false, false, true,
       "the exponent of a value over lengths, fitted in log and log"},
      {"none", false, false, false, false, "cannot be checked here, for the reason given"},
  };
  return kinds;
}

bool Statement::depends_on_machine() const {
  return std::any_of(quantities.begin(), quantities.end(),
                     [](const auto& q) { return q.second.depends_on_machine(); });
}

ClaimFile load_claims(const std::string& path) {
  const toml::table root = parse_toml_file(path);
  Section top(root, path, "");
  ClaimFile file;
  file.name = fs::path(path).stem().string();
  file.path = path;
  file.title = top.text("title", file.name);
  file.document = top.text("document", "");
  if (file.document.empty()) throw std::invalid_argument(path + ": document is missing: what is quoted");
  Section model_section = top.section("model"), define_section = top.section("define");
  const CacheShape model = read_model(model_section);
  const Texts define = define_section.all_verbatim();
  for (auto& [name, section] : top.section("run").subsections()) file.runs[name] = read_run(section);
  std::set<std::string> ids;
  std::vector<Section> claims = top.sections("claim");
  if (claims.empty()) throw std::invalid_argument(path + ": has no [[claim]]");
  for (Section& section : claims) {
    Claim claim = read_claim(section, model, define);
    if (!ids.insert(claim.id).second) section.fail("id", "names '" + claim.id + "' twice");
    check_runs(section, file, claim);
    file.claims.push_back(std::move(claim));
  }
  top.refuse_the_rest();
  return file;
}

std::vector<ClaimFile> choose_claims(const std::vector<std::string>& names) {
  const std::vector<fs::path> files = all_files();
  std::vector<ClaimFile> chosen;
  if (names.empty()) {
    for (const fs::path& file : files) chosen.push_back(load_claims(file.string()));
  }
  for (const std::string& name : names) {
    const size_t slash = name.ends_with(".toml") ? std::string::npos : name.find('/');
    ClaimFile file = load_claims(file_named(name.substr(0, slash), files).string());
    if (slash != std::string::npos) keep_claim(file, name.substr(slash + 1));
    add_claims(std::move(file), chosen);
  }
  if (chosen.empty()) throw std::invalid_argument("there are no claim files in configs/claims");
  return chosen;
}

}  // namespace kv
