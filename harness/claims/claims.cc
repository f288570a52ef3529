#include "harness/claims/claims.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/claims/claims_list.h"
#include "harness/claims/read_statement.h"
#include "harness/config/section.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"
#include "variants/cache/near_names.h"

namespace kv::claims {
namespace {

namespace fs = std::filesystem;

// A [run.NAME] is a sweep config but for `seeds`; load_config looks at the rest when it is run.
ClaimRun read_run(config::Section section) {
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

std::string title_of(const Texts& row, const std::vector<std::string>& columns, const std::string& name) {
  const std::string first = columns.empty()     ? ""
                            : row.count("name") ? row.at("name")
                                                : row.at(columns.front());
  return first.empty() || name.empty() ? first + name : first + ", " + name;
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
      Statement s = read_statement(section, figure, row, model, define);
      s.name = title_of(row, columns, s.name);
      claim.statements.push_back(std::move(s));
    };
    if (figures.empty()) add(nullptr);
    for (config::Section& figure : figures) add(&figure);
  }
  section.refuse_the_rest();
  for (const config::Section& figure : figures) figure.refuse_the_rest();
  return claim;
}

void check_runs(const config::Section& section, const ClaimFile& file, const Claim& claim) {
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
  const fs::path folder = io::project_home() / "configs" / "claims";
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::string suggestion(const std::string& wrong, const std::vector<std::string>& names) {
  return did_you_mean(wrong, std::vector<std::string_view>(names.begin(), names.end()));
}

// "; 2 claims contain it: 003-tract-in-place/update, …", of a name that is no file's; empty where none does.
std::string where_it_is(const std::string& word, const std::vector<fs::path>& files) {
  constexpr size_t kMostShown = 3;
  std::vector<ClaimFile> loaded;
  for (const fs::path& file : files) loaded.push_back(load_claims(file.string()));
  std::vector<std::string> about = claims_about(loaded, word);
  if (word.empty() || about.empty()) return "";
  const std::string count =
      std::to_string(about.size()) + (about.size() == 1 ? " claim contains" : " claims contain");
  if (about.size() > kMostShown) {
    about.resize(kMostShown);
    about.push_back("…");
  }
  return "; " + count + " it: " + joined(about) + " (`kvlab reproduce --list '" + word + "'`)";
}

fs::path file_named(const std::string& name, const std::vector<fs::path>& files) {
  if (name.ends_with(".toml")) return io::find_input(name, "claim file");
  std::vector<fs::path> found;
  std::vector<std::string> stems;
  for (const fs::path& file : files) {
    if (file.stem() == name) return file;
    if (file.stem().string().starts_with(name)) found.push_back(file);
    stems.push_back(file.stem().string());
  }
  if (found.size() == 1) return found.front();
  const std::string meant = suggestion(name, stems);
  throw std::invalid_argument(
      "'" + name + "' names " + (found.empty() ? "no claim file" : "several claim files") +
      where_it_is(name, files) +
      (meant.empty() ? "; there are " + joined(stems) + ", or give a path that ends in .toml" : meant));
}

void keep_claim(ClaimFile& file, const std::string& id) {
  std::vector<std::string> known;
  for (const Claim& claim : file.claims) known.push_back(claim.id);
  std::erase_if(file.claims, [&](const Claim& claim) { return claim.id != id; });
  if (file.claims.empty())
    throw std::invalid_argument("'" + id + "' is no claim of " + file.path + "; it has " + joined(known) +
                                suggestion(id, known));
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
      {"closed form", true, false, false, false, false,
       "bytes that a spec holds at a length; counted by the ledger as well where that is small enough"},
      {"formula", false, true, false, false, false,
       "arithmetic on figures that the source or the model's shape gives"},
      {"bound", false, true, false, false, true,
       "the most that is possible by arithmetic, of a time the least; what the source did may be less"},
      {"roofline", false, true, false, false, true,
       "a bound on a rate or a time that follows from bytes and bandwidths"},
      {"measurement", false, false, true, false, false,
       "values of cells that the driver measures here, with an interval"},
      {"ordering", false, false, true, false, false,
       "a measured ratio against a bound: which of two is better"},
      {"growth law", false, false, false, true, false,
       "the exponent of a value over lengths, fitted in log and log"},
      {"none", false, false, false, false, false, "cannot be checked here, for the reason given"},
  };
  return kinds;
}

const CheckKind& kind_of(const Statement& statement) {
  const auto named = [&](const CheckKind& kind) { return kind.name == statement.check; };
  return *std::find_if(check_kinds().begin(), check_kinds().end(), named);
}

bool Statement::depends_on_machine() const {
  return std::any_of(quantities.begin(), quantities.end(),
                     [](const auto& q) { return q.second.depends_on_machine(); });
}

ClaimFile load_claims(const std::string& path) {
  const toml::table root = config::parse_toml_file(path);
  config::Section top(root, path, "");
  ClaimFile file;
  file.name = io::as_utf8(fs::path(path).stem().string());
  file.path = path;
  file.title = top.text("title", file.name);
  file.document = top.text("document", "");
  if (file.document.empty()) throw std::invalid_argument(path + ": document is missing: what is quoted");
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

}  // namespace kv::claims
