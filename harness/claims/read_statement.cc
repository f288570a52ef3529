#include "harness/claims/read_statement.h"

#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "harness/claims/expression.h"
#include "harness/config/geometry.h"
#include "harness/experiments/written_columns.h"
#include "harness/results/table.h"
#include "kernels/attention.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"

namespace kv::claims {
namespace {

std::vector<std::string> names_of(const std::vector<CheckKind>& kinds) {
  std::vector<std::string> names;
  for (const CheckKind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

// {column} as the row has it.
std::string filled(const config::Section& section, const std::string& key, std::string text,
                   const Texts& row) {
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

// Columns of cells.csv that are times or follow from them have no interval of their own.
bool has_interval_elsewhere(const std::string& column) {
  for (const char* part : {"_us", "gbps", "ratio", "per_s", "ceiling", "bound", "rss"}) {
    if (column.find(part) != std::string::npos) return true;
  }
  return false;
}

Quantity read_quantity(config::Section section, const Texts& row) {
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
    if (!experiments::cell_table().find(key))
      section.fail(key, "is no column of cells.csv; `kvlab list columns` names them");
    q.where[key] = filled(section, key, value, row);
  }
  if (!q.take.empty() && !experiments::step_column(q.metric))
    section.fail("metric", "is no column of samples.csv or growth.csv: '" + q.metric + "'");
  if (q.take.empty() && !experiments::cell_table().find(q.metric))
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
  Keys(config::Section& claim, config::Section* figure, const Texts& row)
      : claim_(claim), figure_(figure), row_(row) {}

  config::Section& holder(const std::string& key) { return figure_ && figure_->has(key) ? *figure_ : claim_; }
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
    config::Section section = holder(key).section(key);
    for (const auto& [name, value] : section.all_verbatim()) all[name] = filled(section, name, value, row_);
    return all;
  }
  const Texts& row() const { return row_; }

 private:
  config::Section& claim_;
  config::Section* figure_;
  const Texts& row_;
};

// A tolerance of its own within which a ratio may as well be 1 tests nothing; and 1 has no gain to be a factor of.
bool reaches_no_effect(const Statement& s) {
  const Figure& f = s.published;
  const bool two_sided = f.side == Figure::Side::kBoth &&
                         (f.relation == Figure::Relation::kEqual || f.relation == Figure::Relation::kBetween);
  if (!f.is_ratio() || !two_sided || s.tolerance.kind == Tolerance::Kind::kAsPrinted) return false;
  const bool is_one = f.low <= 1 && f.high >= 1;
  return is_one ? s.tolerance.kind == Tolerance::Kind::kFactor
                : f.window(s.tolerance, f.units.front()).contains(1);
}

void require_keys(Keys& keys, const Statement& s) {
  const CheckKind& kind = kind_of(s);
  const auto need = [&](bool needed, const char* key, bool there) {
    if (needed && !there) keys.holder("check").fail("check", "is \"" + s.check + "\", which needs " + key);
  };
  need(kind.bytes, "bytes, tokens and model", !s.bytes.empty() && !s.tokens.empty());
  need(kind.computed, "computed", !s.computed.empty());
  need(kind.measured, "measured and cells", !s.measured.empty() && !s.quantities.empty());
  need(kind.over, "over, and computed or measured",
       !s.over.empty() && !(s.computed.empty() && s.measured.empty()));
  need(s.check == "none", "reason", !s.reason.empty());
  need(s.check == "ordering", "a bound as published, such as \">1\" or \"<1\"",
       s.check != "ordering" || (s.published.relation != Figure::Relation::kEqual &&
                                 s.published.relation != Figure::Relation::kBetween));
  if (kind.bounds && !s.measured.empty())
    keys.holder("measured")
        .fail("measured", "cannot be compared with a " + s.check + "; give it a figure of its own");
  if (reaches_no_effect(s))
    keys.holder("tolerance")
        .fail("tolerance",
              "has room for 1x, no effect at all, around '" + s.published.text + "'; a smaller one can fail");
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

// Looks for names that stand for nothing, or for themselves, in expressions and in what these are defined by. Each name is
// looked into once: a chain in which every name has the one before it twice has 2^n paths.
class NameCheck {
 public:
  // `sizes`: of expressions that say how large the caches are, so that they cannot depend on their bytes.
  NameCheck(const Statement& s, bool sizes) : s_(s), known_(known_names(s)), sizes_(sizes) {}

  void check(const std::string& expression) { depth_of(expression, 0); }

 private:
  static constexpr int kMostDeep = 100;  // names are looked up by recursion

  // How many definitions lie below, one in the other.
  int depth_of(const std::string& expression, int above) {
    int deepest = 0;
    const Expression parsed(expression);
    for (const std::string& name : parsed.names()) {
      refuse_unknown(name);
      const bool defined =
          s_.define.count(name) && name != s_.over && !s_.bytes.count(name) && !s_.quantities.count(name);
      if (defined) deepest = std::max(deepest, 1 + depth_of_name(name, above + 1));
    }
    return deepest;
  }

  int depth_of_name(const std::string& name, int above) {
    const auto [found, first] = depths_.emplace(name, kInside);
    if (found->second == kInside && !first)
      throw std::invalid_argument("has '" + name + "', which is defined by itself");
    if (first && above <= kMostDeep) found->second = depth_of(s_.define.at(name), above);
    if (above + std::max(found->second, 0) > kMostDeep) {
      throw std::invalid_argument("has '" + name + "', which is one of more than " +
                                  std::to_string(kMostDeep) + " that are defined by one another");
    }
    return found->second;
  }

  void refuse_unknown(const std::string& name) const {
    if (!known_.count(name)) {
      std::string list;
      for (const std::string& k : known_) list += (list.empty() ? "" : ", ") + k;
      throw std::invalid_argument("has '" + name +
                                  "', which is not a name that is known here; known: " + list);
    }
    if (sizes_ && name != s_.over && s_.bytes.count(name))
      throw std::invalid_argument("has '" + name + "', whose bytes depend on it");
  }

  static constexpr int kInside = -1;  // it is being looked into
  const Statement& s_;
  const std::set<std::string> known_;
  const bool sizes_;
  std::map<std::string, int> depths_;
};

void read_bytes(Keys& keys, const CacheShape& model, Statement& s) {
  s.model = model;
  if (keys.has("model")) {
    config::Section section = keys.holder("model").section("model");
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

Figure::Side read_side(Keys& keys, const Figure& figure) {
  const std::string side = keys.holder("read_as").choice("read_as", "", {"", "at most", "at least"});
  const bool has_sign =
      figure.relation != Figure::Relation::kEqual && figure.relation != Figure::Relation::kBetween;
  if (!side.empty() && (has_sign || figure.truth))
    keys.holder("read_as").fail("read_as", "is for a figure without a sign, not '" + figure.text + "'");
  if (side.empty()) return Figure::Side::kBoth;
  return side == "at most" ? Figure::Side::kAtMost : Figure::Side::kAtLeast;
}

void read_over(Keys& keys, Statement& s) {
  if (!keys.has("over")) return;
  config::Section section = keys.holder("over").section("over");
  const auto& table = section.table();
  if (table.size() != 1)
    keys.holder("over").fail("over", "must be one variable and its values, as in { T = [256, 512, 1024] }");
  s.over = std::string(table.begin()->first.str());
  s.lengths = section.integers(s.over, {}, 1, INT64_MAX);
  if (s.lengths.size() < 2) section.fail(s.over, "needs two values or more");
}

}  // namespace

CacheShape read_model(config::Section& section) {
  CacheShape shape;
  if (section.has("preset")) {
    try {
      const config::Geometry g = config::preset_geometry(section.text("preset", ""));
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

Statement read_statement(config::Section& claim, config::Section* figure_section, const Texts& own_row,
                         const CacheShape& model, const Texts& define) {
  Keys keys(claim, figure_section, own_row);
  Statement s;
  config::Section& published = keys.holder("published");
  if (!keys.has("published")) published.refuse("needs published, the figure as the source prints it");
  const std::string figure = keys.text("published"), tolerance = keys.text("tolerance", "as printed");
  keys.checked("published", [&] { s.published = parse_figure(figure); });
  keys.checked("tolerance", [&] { s.tolerance = parse_tolerance(tolerance); });
  s.published.side = read_side(keys, s.published);
  s.where = keys.holder("id").place();
  s.name = keys.text("name");
  s.check = keys.holder("check").choice("check", "", names_of(check_kinds()));
  s.exact = keys.holder("replica").choice("replica", "exact", {"exact", "qualitative"}) == "exact";
  s.by_construction = keys.text("by_construction");
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
  const auto check_names = [&](NameCheck names, const char* key, const std::string& expression) {
    if (!expression.empty()) keys.checked(key, [&] { names.check(expression); });
  };
  check_names({s, false}, "computed", s.computed);
  check_names({s, false}, "measured", s.measured);
  check_names({s, true}, "tokens", s.tokens);
  check_names({s, true}, "batch", s.batch);
  check_names({s, true}, "reserve", s.reserve);
  return s;
}

}  // namespace kv::claims
