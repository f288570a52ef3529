// Published claims about KV caches, as configs/claims/*.toml state them: data, no code a claim.
//
// A file is a source. Each [[claim]] quotes it and says how its figures are checked; a table is `columns` and
// `rows`, and [[claim.figure]] are the figures of every row. configs/claims/README.md lists the keys.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/claims/figure.h"
#include "variants/cache/cache.h"

namespace kv::claims {

// How a figure is checked: which keys a claim must have, and so what a verdict rests on.
struct CheckKind {
  std::string_view name;
  bool bytes, computed, measured, over;  // keys that it needs
  bool bounds;                           // `computed` is the most that is possible, of a duration the least
  std::string_view help;
};
const std::vector<CheckKind>& check_kinds();

// A value of a run's results: of the one cell in which every column of `where` has its text.
struct Quantity {
  std::string run;
  std::map<std::string, std::string> where;
  std::string metric;  // a column of cells.csv; with `take`, of samples.csv or growth.csv
  std::string take;    // "", or of a repetition's samples: "median", "sum", "increases"
  std::string kind;    // samples.csv's kind, where there are several

  // A time is this machine's; bytes and errors are the same on every one.
  bool depends_on_machine() const { return metric.ends_with("_us"); }
};

// One published figure with all it takes to check it. Names in expressions are looked up in `over`, `bytes`
// or `quantities`, then in `define`.
struct Statement {
  std::string name;  // of the table's row and figure; empty where a claim has only one
  Figure published;
  Tolerance tolerance;
  std::string check;
  bool exact = true;  // false: a qualitative replica, other inputs or another size than the source's
  std::map<std::string, std::string> define;
  CacheShape model;                          // of closed forms; max_tokens is set by `reserve`
  std::map<std::string, std::string> bytes;  // name -> spec
  std::string tokens, batch, reserve;  // expressions; reserve: tokens that are pre-allocated for, or empty
  std::string computed, measured;      // expressions, or empty
  std::map<std::string, Quantity> quantities;
  std::string over;  // growth law: the variable, and its values
  std::vector<int64_t> lengths;
  std::string by_construction;  // why it agrees whatever is computed or measured; else empty
  std::string note, reason;
  std::string where;  // file and line, for messages

  bool depends_on_machine() const;
};

const CheckKind& kind_of(const Statement& statement);

struct Claim {
  std::string id, text, place, quote, setting;
  std::vector<Statement> statements;
};

// A sweep config to run, once a seed.
struct ClaimRun {
  std::string toml;
  std::vector<int64_t> seeds;  // empty: the config's own
};

struct ClaimFile {
  std::string name, path;  // the file's stem, and where it is
  std::string title, document;
  std::map<std::string, ClaimRun> runs;
  std::vector<Claim> claims;
};

// Throws std::invalid_argument: file, line, key, and what would be right.
ClaimFile load_claims(const std::string& path);

// What NAMEs choose: all of configs/claims where there are none; else files by stem, unique prefix or path,
// and claims as FILE/ID. Throws std::invalid_argument that lists what there is.
std::vector<ClaimFile> choose_claims(const std::vector<std::string>& names);

}  // namespace kv::claims
