#include "harness/claims/read_statement.h"

#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "harness/claims/expression.h"
#include "harness/claims/quantities.h"
#include "harness/config/geometry.h"
#include "harness/io/suggestion.h"
#include "harness/io/text.h"
#include "kernels/attention.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"

namespace kv::claims {
namespace {

std::set<std::string> keys_of(const auto& map) {
  std::set<std::string> keys;
  for (const auto& [key, value] : map) keys.insert(key);
  return keys;
}

// {column} as the row has it.
std::string filled(const config::Section& section, const std::string& key, std::string text,
                   const Texts& row) {
  for (size_t open = 0; (open = text.find('{', open)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    const std::string name = text.substr(open + 1, close == std::string::npos ? close : close - open - 1);
    const auto value = row.find(name);
    if (close == std::string::npos || value == row.end())
      section.fail(key, "has {" + name + "}, which is not a column of the table; columns: " +
                            (row.empty() ? "none" : io::joined(keys_of(row))));
    text.replace(open, close - open + 1, value->second);
    open += value->second.size();
  }
  return text;
}

// Most columns of cells.csv that are times or follow from them have no interval of their own.
bool has_interval_elsewhere(const std::string& column) {
  if (!cell_column(interval_column(column, "low")).empty()) return false;
  constexpr const char* kParts[] = {"_us", "gbps", "ratio", "per_s", "ceiling", "bound", "rss"};
  return std::ranges::any_of(kParts,
                             [&](const char* part) { return column.find(part) != std::string::npos; });
}

Quantity read_quantity(config::Section section, const Texts& row) {
  Quantity q;
  for (const char* needed : {"run", "metric"}) {
    if (!section.has(needed)) section.refuse(std::string("needs ") + needed);
  }
  q.run = filled(section, "run", section.text("run", ""), row);
  q.take = section.choice("take", "", {"", "median", "sum", "increases"});
  q.kind = section.text("kind", "");
  const std::string metric = filled(section, "metric", section.text("metric", ""), row);
  for (const auto& [key, text] : section.all_verbatim()) {
    if (key == "run" || key == "metric" || key == "take" || key == "kind") continue;
    const std::string column = cell_column(key);
    if (column.empty()) section.fail(key, "is not a column of cells.csv; `kvlab list columns` names them");
    q.where[column] = filled(section, key, text, row);
  }
  q.metric = q.take.empty() ? cell_column(metric) : sample_column(metric);
  if (q.metric.empty())
    section.fail("metric", std::string("is not a column of ") +
                               (q.take.empty() ? "cells.csv" : "samples.csv or growth.csv") + ": '" + metric +
                               "'");
  if (q.take.empty() && has_interval_elsewhere(q.metric))
    section.fail("metric",
                 "is a time: take = \"median\" of samples (step_us, attend_us, …) has an interval, '" +
                     q.metric + "' has none");
  return q;
}

// A claim's keys, or in their place those of one of its figures.
class Keys {
 public:
  Keys(config::Section& claim, config::Section* figure, const Texts& row)
      : claim_(claim), figure_(figure), row_(row) {}

  config::Section& holder(const std::string& key) { return figure_ && figure_->has(key) ? *figure_ : claim_; }
  // Asks both, which makes the key a known one of both.
  bool has(const std::string& key) {
    const bool own = figure_ && figure_->has(key), shared = claim_.has(key);
    return own || shared;
  }
  [[noreturn]] void fail(const std::string& key, const std::string& what) { holder(key).fail(key, what); }
  // Adds file, line and key to what `use` throws.
  void checked(const std::string& key, const std::function<void()>& use) {
    try {
      use();
    } catch (const std::invalid_argument& e) {
      fail(key, e.what());
    }
  }
  std::string text(const std::string& key, const std::string& fallback = "") {
    return filled(holder(key), key, holder(key).verbatim(key, fallback), row_);
  }
  std::string expression(const std::string& key, const std::string& fallback = "") {
    const std::string value = text(key, fallback);
    if (!value.empty()) checked(key, [&] { Expression{value}; });
    return value;
  }
  Texts texts(const std::string& key) {
    config::Section section = holder(key).section(key);
    Texts all = section.all_verbatim();
    for (auto& [name, value] : all) value = filled(section, name, value, row_);
    return all;
  }

 private:
  config::Section& claim_;
  config::Section* figure_;
  const Texts& row_;
};

// True if the claim's own tolerance around a ratio has room for 1, so that nothing would be tested. A ratio of 1 has no gain to
// be a factor of.
bool reaches_no_effect(const Statement& s) {
  const Figure& f = s.published;
  if (!f.is_ratio() || f.has_sign() || f.side != Figure::Side::kBoth ||
      s.tolerance.kind == Tolerance::Kind::kAsPrinted)
    return false;
  const bool is_one = f.low <= 1 && f.high >= 1;
  return is_one ? s.tolerance.kind == Tolerance::Kind::kFactor
                : f.window(s.tolerance, f.units.front()).contains(1);
}

void require_keys(Keys& keys, const Statement& s) {
  const CheckKind& kind = *s.check;
  const struct {
    bool needed, there;
    const char* keys;
  } needs[] = {
      {kind.bytes, !s.bytes.empty() && !s.tokens.empty(), "bytes, tokens and model"},
      {kind.computed, !s.computed.empty(), "computed"},
      {kind.measured, !s.measured.empty() && !s.quantities.empty(), "measured and cells"},
      {kind.over, !s.over.empty() && !(s.computed.empty() && s.measured.empty()),
       "over, and computed or measured"},
      {kind.needs, !s.needs.empty() && !s.reason.empty(), "needs and reason"},
      {kind.test, !s.test.empty() && s.published.truth, "test, and yes or no as published"},
      {kind.ordering, s.published.has_sign(), "a bound as published, such as \">1\" or \"<1\""},
  };
  for (const auto& need : needs) {
    if (need.needed && !need.there)
      keys.fail("check", "is \"" + std::string(kind.name) + "\", which needs " + need.keys);
  }
  if (kind.bounds && !s.measured.empty())
    keys.fail("measured",
              "cannot be compared with a " + std::string(kind.name) + "; give it a figure of its own");
  if (s.role == kRoles[1] && s.depends_on_machine())
    keys.fail("role", "is \"control\", which cannot rest on a time: --quick leaves times out");
  if (reaches_no_effect(s))
    keys.fail("tolerance",
              "has room for 1x, no effect at all, around '" + s.published.text + "'; a smaller one can fail");
  if (!kind.over && (s.published.exponent() || !s.over.empty()))
    keys.fail("check", "must be \"growth law\" where there is O(…) or over");
}

// Refuses names that stand for nothing or for themselves, in an expression and in the definitions below it. `sizes`: of
// expressions that say how large the caches are, so that they cannot depend on their bytes.
void check_names(const Statement& s, const std::string& expression, bool sizes) {
  std::set<std::string> known = keys_of(s.bytes);
  known.merge(keys_of(s.quantities));
  if (!s.over.empty()) known.insert(s.over);
  const auto defined = [&](const std::string& name) {
    return s.define.contains(name) && !known.contains(name);
  };
  Names(s.define, [&](const std::string& name) -> std::optional<double> {
    if (sizes && name != s.over && s.bytes.contains(name))
      throw std::invalid_argument("has '" + name + "', whose bytes depend on it");
    if (defined(name)) return std::nullopt;
    if (known.contains(name) || name == "K" || name == "MB" || name == "GB") return 1.0;
    std::set<std::string> all = keys_of(s.define);
    all.merge(std::set<std::string>(known));
    all.insert({"K", "MB", "GB"});
    throw std::invalid_argument("has '" + name + "', which is not a name that is known here" +
                                io::known_names(name, all));
  }).value(expression);
}

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
  if (side.empty()) return Figure::Side::kBoth;
  if (figure.has_sign() || figure.truth)
    keys.fail("read_as", "is for a figure without a sign, not '" + figure.text + "'");
  return side == "at most" ? Figure::Side::kAtMost : Figure::Side::kAtLeast;
}

void read_over(Keys& keys, Statement& s) {
  if (!keys.has("over")) return;
  config::Section section = keys.holder("over").section("over");
  const auto& table = section.table();
  if (table.size() != 1)
    keys.fail("over", "must be one variable and its values, as in { T = [256, 512, 1024] }");
  s.over = std::string(table.begin()->first.str());
  s.lengths = section.integers(s.over, {}, 1, INT64_MAX);
  if (s.lengths.size() < 2) section.fail(s.over, "needs two values or more");
}

const CheckKind* read_check(config::Section& section) {
  std::vector<std::string> names;
  for (const CheckKind& kind : kCheckKinds) names.emplace_back(kind.name);
  return std::ranges::find(kCheckKinds, section.choice("check", "", names), &CheckKind::name);
}

// The first one where the claim has no such key.
std::string_view read_word(Keys& keys, const char* key, auto& known) {
  const std::string word = keys.text(key, std::string(known[0]));
  const auto found = std::ranges::find(known, word);
  if (found == std::end(known)) keys.fail(key, "is '" + word + "'" + io::known_names(word, known));
  return *found;
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
  const auto read = [&](const char* key, int fallback, int least, int most) {
    return static_cast<int>(section.integer(key, fallback, least, most));
  };
  shape.layers = read("layers", shape.layers, 1, 1024);
  shape.kv_heads = read("kv_heads", shape.kv_heads, 1, 4096);
  shape.q_heads = read("q_heads", std::max(shape.q_heads, shape.kv_heads), 1, 4096);
  shape.head_dim = read("head_dim", shape.head_dim, 8, kMaxHeadDim);
  section.refuse_the_rest();
  return shape;
}

std::optional<Statement> read_statement(config::Section& claim, config::Section* figure_section,
                                        const Texts& row, const CacheShape& model, const Texts& define) {
  Keys keys(claim, figure_section, row);
  Statement s;
  if (!keys.has("published")) claim.refuse("needs published, the figure as the source prints it");
  const std::string figure = keys.text("published"), tolerance = keys.text("tolerance", "as printed");
  if (figure.empty() && !row.empty()) return std::nullopt;
  keys.checked("published", [&] { s.published = parse_figure(figure); });
  keys.checked("tolerance", [&] { s.tolerance = parse_tolerance(tolerance); });
  s.published.side = read_side(keys, s.published);
  s.where = claim.place();
  s.name = keys.text("name");
  s.table = keys.text("table");
  s.row = keys.text("row");
  s.column = keys.text("column");
  s.reading = keys.holder("reading").boolean("reading", false);
  s.check = read_check(keys.holder("check"));
  s.exact = keys.holder("replica").choice("replica", "exact", {"exact", "qualitative"}) == "exact";
  s.by_construction = keys.text("by_construction");
  s.note = keys.text("note");
  s.role = read_word(keys, "role", kRoles);
  if (keys.has("needs")) s.needs = read_word(keys, "needs", kNeeds);
  s.reason = keys.text("reason");
  s.test = keys.text("test");
  if (keys.has("define")) s.define = keys.texts("define");
  s.define.insert(row.begin(), row.end());
  s.define.insert(define.begin(), define.end());
  s.computed = keys.expression("computed");
  s.measured = keys.expression("measured");
  read_over(keys, s);
  if (s.published.exponent() && !s.over.empty()) s.published.exponent_of = s.over;
  read_bytes(keys, model, s);
  if (keys.has("cells")) {
    Texts columns = row;
    if (!s.over.empty()) columns[s.over] = "{" + s.over + "}";  // stays for a growth law's values
    for (auto& [name, section] : keys.holder("cells").section("cells").subsections())
      s.quantities[name] = read_quantity(section, columns);
  }
  if (s.check->own) s.measured.clear(), s.quantities.clear();  // of the claim's other figures
  require_keys(keys, s);
  const struct {
    const char* key;
    const std::string& expression;
    bool sizes;
  } expressions[] = {{"computed", s.computed, false},
                     {"measured", s.measured, false},
                     {"tokens", s.tokens, true},
                     {"batch", s.batch, true},
                     {"reserve", s.reserve, true}};
  for (const auto& [key, expression, sizes] : expressions) {
    if (expression.empty()) continue;
    keys.checked(key, [&, &text = expression, size = sizes] { check_names(s, text, size); });
  }
  return s;
}

}  // namespace kv::claims
