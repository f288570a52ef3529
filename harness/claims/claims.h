// Published claims about KV caches, as configs/claims/*.toml state them: data, no code a claim.
//
// A file is a source. Each [[claim]] quotes it and says how its figures are checked; a table is `columns` and
// `rows`, and [[claim.figure]] are the figures of every row. configs/claims/README.md lists the keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/claims/figure.h"
#include "variants/cache/cache.h"

namespace kv::claims {

using Texts = std::map<std::string, std::string>;

// How a figure is checked: which keys a claim needs for it, and how its values are judged.
struct CheckKind {
  std::string_view name;
  bool bytes = false, computed = false, measured = false, over = false, needs = false;  // keys that it needs
  bool bounds = false;    // `computed` is the most that is possible, for a duration the least
  bool counted = false;   // caches are also built and counted by the ledger, where they are small enough
  bool ordering = false;  // a measured ratio against a bound: which of two is better
  bool test = false;      // a test of the project decides; nothing is run here
  bool own = false;       // arithmetic of the source on its own figures, which is no published figure
};
inline constexpr CheckKind kCheckKinds[] = {
    {.name = "closed form", .bytes = true, .counted = true},
    {.name = "formula", .computed = true},
    {.name = "sum", .computed = true, .own = true},
    {.name = "bound", .computed = true, .bounds = true},
    {.name = "roofline", .computed = true, .bounds = true},
    {.name = "measurement", .measured = true},
    {.name = "ordering", .measured = true, .ordering = true},
    {.name = "growth law", .over = true, .counted = true},
    {.name = "test", .test = true},
    {.name = "none", .needs = true},
};

// A check's part in its claim's verdict.
inline constexpr std::string_view kRoles[] = {
    "decides",  // by its verdict
    "control",  // must come out as stated, else the claim is not judged
    "scope",    // tells where the claim stops holding, or goes on, and decides nothing
};

// Whatever an untested claim may wait for. What has come to be there is removed here, which refuses claims that name it.
inline constexpr std::string_view kNeeds[] = {"a GPU", "a GPU of Apple's", "models of billions of parameters",
                                              "a server", "more questions"};

// A value of a run's results, from the one cell in which every column of `where` has its text.
struct Quantity {
  std::string run;
  Texts where;
  std::string metric;  // a column of cells.csv; with `take`, of samples.csv or growth.csv
  std::string take;    // "", or of a repetition's samples: "median", "sum", "increases"
  std::string kind;    // samples.csv's kind, where there are several

  // Times differ from machine to machine; bytes and errors do not.
  bool depends_on_machine() const { return metric.ends_with("_us"); }
};

// One published figure with all it takes to check it. Names in expressions are looked up in `over`, `bytes`
// or `quantities`, then in `define`.
struct Statement {
  std::string name;  // the table's row and figure; empty where a claim has only one
  std::string table, row,
      column;  // the cell of the source's table that the figure stands in; table: empty if in none
  std::string_view role = kRoles[0];
  bool reading = false;  // one of several meanings of what the source leaves open: the best of them decides
  Figure published;
  Tolerance tolerance;
  const CheckKind* check;
  bool exact = true;  // false: a qualitative replica, other inputs or another size than the source's
  Texts define;
  CacheShape model;                    // for closed forms; `reserve` sets max_tokens
  Texts bytes;                         // name -> spec
  std::string tokens, batch, reserve;  // expressions; reserve: tokens that are pre-allocated for, or empty
  std::string computed, measured;      // expressions, or empty
  std::map<std::string, Quantity> quantities;
  std::string over;  // growth law: the variable, and its values
  std::vector<int64_t> lengths;
  std::string by_construction;            // why it agrees whatever is computed or measured; else empty
  std::string note, needs, reason, test;  // test: "tests/FILE Suite.Name"
  std::string where;                      // file and line, for messages

  bool depends_on_machine() const;
  bool decides() const { return role == kRoles[0] && !check->own; }
};

struct Claim {
  std::string id, text, place, quote, setting;
  std::vector<Statement> statements;

  // The source's figure that a statement is about, so that each is counted once: a cell of its table, a number that the claim
  // quotes, or all that it says in words (yes, >1×).
  std::string figure_of(const Statement& s) const;
};

// A sweep config to run, once a seed, or a committed run.
struct ClaimRun {
  std::string results;  // a folder of results/, whose cells stand unless the user has a model; else empty
  std::string toml;
  std::vector<int64_t> seeds;  // empty: the config's own
};

// The folder of a committed run, as ClaimRun::results names it.
std::filesystem::path committed_run(const std::string& results);

struct ClaimFile {
  std::string name, path;             // the file's stem, and its path
  std::string title, document, kind;  // kind: document or paper
  std::map<std::string, ClaimRun> runs;
  std::vector<Claim> claims;
};

// Throws std::invalid_argument: file, line, key, and what would be right.
ClaimFile load_claims(const std::string& path);

// "1 claim", "2 claims".
inline std::string counted(size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// Without names, all files of configs/claims; else files by stem, unique prefix or path, and claims as FILE/ID. Throws
// std::invalid_argument that lists the names there are.
std::vector<ClaimFile> choose_claims(const std::vector<std::string>& names);

// `kvlab reproduce --list`: a line a claim with all the words, below a line with its source, and a line a check where it has
// several, at most 120 columns wide. A word is found at the beginning of words, in any case: in the name, title or document of
// the source, in the id, text, quote, setting or place of the claim, or in one of its figures. Throws std::invalid_argument
// where no claim has them all.
std::string claims_list(const std::vector<std::string>& words);

}  // namespace kv::claims
