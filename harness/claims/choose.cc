#include "harness/claims/claims.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/io/paths.h"
#include "harness/io/suggestion.h"
#include "harness/io/text.h"
#include "harness/io/text_table.h"

namespace kv::claims {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumns = 120, kMostPublished = 24;

std::vector<fs::path> all_files() {
  std::vector<fs::path> files;
  const fs::path folder = io::project_home() / "configs" / "claims";
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

std::vector<ClaimFile> load_all(const std::vector<fs::path>& paths) {
  std::vector<ClaimFile> files;
  for (const fs::path& path : paths) files.push_back(load_claims(path.string()));
  return files;
}

std::string name_of(const ClaimFile& file, const Claim& claim) { return file.name + "/" + claim.id; }

std::string searched_text(const ClaimFile& file, const Claim& claim) {
  std::string all;
  for (const std::string& part :
       {name_of(file, claim), file.title, file.document, claim.text, claim.quote, claim.setting, claim.place})
    all += part + "\n";
  for (const Statement& s : claim.statements) all += s.name + "\n" + s.published.text + "\n";
  return all;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "PagedAttention" has two beginnings of words, "abstract" one: "tract" is not to be found in it.
bool begins_word(const std::string& text, size_t at) {
  const auto is = [&](int (*kind)(int), size_t i) { return kind(static_cast<unsigned char>(text[i])) != 0; };
  return at == 0 || !is(std::isalnum, at - 1) || (is(std::islower, at - 1) && is(std::isupper, at)) ||
         is(std::isdigit, at - 1) != is(std::isdigit, at);
}

bool contains(const std::string& text, const std::string& word) {
  const std::string all = lower(text), wanted = lower(word);
  for (size_t at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) {
    if (begins_word(text, at)) return true;
  }
  return false;
}

// The files with their claims that have all the words, without the others.
std::vector<ClaimFile> with_words(std::vector<ClaimFile> files, const std::vector<std::string>& words) {
  for (ClaimFile& file : files) {
    std::erase_if(file.claims, [&](const Claim& claim) {
      const std::string text = searched_text(file, claim);
      return !std::ranges::all_of(words, [&](const std::string& word) { return contains(text, word); });
    });
  }
  std::erase_if(files, [](const ClaimFile& file) { return file.claims.empty(); });
  return files;
}

// For a name that is no file's: "; 2 claims contain it: 003-tract-in-place/update, …".
std::string claims_with(const std::string& word, const std::vector<fs::path>& paths) {
  constexpr size_t kMostShown = 3;
  std::vector<std::string> names;
  for (const ClaimFile& file : with_words(load_all(paths), {word})) {
    for (const Claim& claim : file.claims) names.push_back(name_of(file, claim));
  }
  if (word.empty() || names.empty()) return "";
  const std::string count = counted(names.size(), "claim") + (names.size() == 1 ? " contains" : " contain");
  if (names.size() > kMostShown) {
    names.resize(kMostShown);
    names.push_back("…");
  }
  return "; " + count + " it: " + io::joined(names) + " (`kvlab reproduce --list '" + word + "'`)";
}

fs::path file_named(const std::string& name, const std::vector<fs::path>& files) {
  if (name.ends_with(".toml")) return io::find_input(name, "claim file");
  std::vector<fs::path> found;
  std::vector<std::string> stems;
  for (const fs::path& file : files) {
    stems.push_back(file.stem().string());
    if (stems.back() == name) return file;
    if (stems.back().starts_with(name)) found.push_back(file);
  }
  if (found.size() == 1) return found.front();
  const std::string meant = io::did_you_mean(name, stems);
  throw std::invalid_argument(
      "'" + name + "' names " + (found.empty() ? "no claim file" : "several claim files") +
      claims_with(name, files) +
      (meant.empty() ? "; there are " + io::joined(stems) + ", or give a path that ends in .toml" : meant));
}

void keep_claim(ClaimFile& file, const std::string& id) {
  std::vector<std::string> known;
  for (const Claim& claim : file.claims) known.push_back(claim.id);
  std::erase_if(file.claims, [&](const Claim& claim) { return claim.id != id; });
  if (file.claims.empty())
    throw std::invalid_argument("'" + id + "' is not a claim of " + file.path + "; it has " +
                                io::joined(known) + io::did_you_mean(id, known));
}

// Claims of a file that is chosen already join it: its runs are shared.
void add_claims(ClaimFile file, std::vector<ClaimFile>& chosen) {
  const auto there = std::ranges::find(chosen, file.name, &ClaimFile::name);
  if (there == chosen.end()) {
    chosen.push_back(std::move(file));
    return;
  }
  if (fs::absolute(there->path) != fs::absolute(file.path))
    throw std::invalid_argument(there->path + " and " + file.path + " have the same name; rename one");
  for (Claim& claim : file.claims) {
    if (!std::ranges::count(there->claims, claim.id, &Claim::id)) there->claims.push_back(std::move(claim));
  }
}

// At most so many code points, the last of them "…" where there were more.
std::string cut(const std::string& text, size_t columns) {
  if (io::text_width(text) <= columns) return text;
  size_t end = 0;
  for (size_t points = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && ++points == columns) break;
  }
  return text.substr(0, end) + "…";
}

// The first address of the source's document, or all of it.
std::string source_line(const ClaimFile& file) {
  const std::string& document = file.document;
  const size_t at = std::min(document.find("https://"), document.find("arXiv:"));
  const std::string address =
      at == std::string::npos ? document : document.substr(at, document.find_first_of(" ,;)", at) - at);
  return cut(file.title + "  " + address, kColumns) + "\n";
}

// A claim's rows: name, published figure, text.
std::vector<std::vector<std::string>> rows_of(const ClaimFile& file, const Claim& claim) {
  const std::vector<Statement>& figures = claim.statements;
  const std::string name = cut(name_of(file, claim), kColumns / 2 - 2);
  const auto published = [](const Statement& s) { return cut(s.published.text, kMostPublished); };
  if (figures.size() == 1) return {{name, published(figures.front()), claim.text}};
  std::vector<std::vector<std::string>> rows{{name, counted(figures.size(), "check"), claim.text}};
  for (const Statement& s : figures) rows.push_back({"", published(s), "  " + s.name});
  return rows;
}

// Words of ids and titles that may be meant by one that no claim has.
std::string nearest_words(const std::vector<ClaimFile>& files, const std::string& word) {
  std::set<std::string> known;
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      std::string text = lower(name_of(file, claim) + " " + file.title + " " + claim.text);
      std::ranges::replace_if(
          text, [](unsigned char c) { return !std::isalnum(c); }, ' ');
      std::istringstream words(text);
      for (std::string next; words >> next;) {
        if (next.size() > 3) known.insert(next);
      }
    }
  }
  return io::did_you_mean(word, known);
}

[[noreturn]] void refuse(const std::vector<ClaimFile>& files, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (with_words(files, {word}).empty())
      throw std::invalid_argument("no claim contains '" + word + "'" + nearest_words(files, word));
  }
  throw std::invalid_argument("no claim contains all of these words; give fewer");
}

}  // namespace

std::vector<ClaimFile> choose_claims(const std::vector<std::string>& names) {
  const std::vector<fs::path> files = all_files();
  std::vector<ClaimFile> chosen;
  if (names.empty()) chosen = load_all(files);
  for (const std::string& name : names) {
    const size_t slash = name.ends_with(".toml") ? std::string::npos : name.find('/');
    ClaimFile file = load_claims(file_named(name.substr(0, slash), files).string());
    if (slash != std::string::npos) keep_claim(file, name.substr(slash + 1));
    add_claims(std::move(file), chosen);
  }
  if (chosen.empty()) throw std::invalid_argument("there are no claim files in configs/claims");
  return chosen;
}

std::string claims_list(const std::vector<std::string>& words) {
  const std::vector<ClaimFile> all = choose_claims({}), found = with_words(all, words);
  if (found.empty()) refuse(all, words);
  std::string text;
  size_t claims = 0, checks = 0;
  std::set<std::string> figures;
  for (const ClaimFile& file : found) {
    text += source_line(file);
    std::vector<std::vector<std::string>> rows;
    for (const Claim& claim : file.claims) {
      std::ranges::move(rows_of(file, claim), std::back_inserter(rows));
      ++claims, checks += claim.statements.size();
      for (const Statement& s : claim.statements) {
        if (s.decides()) figures.insert(file.name + "\n" + claim.figure_of(s));
      }
    }
    std::istringstream lines(io::aligned_text(rows, 3));
    for (std::string line; std::getline(lines, line);) text += cut(line, kColumns) + "\n";
    text += "\n";
  }
  return text + counted(claims, "claim") + " of " + counted(found.size(), "source") + ": " +
         counted(figures.size(), "published figure") + ", " + counted(checks, "check") +
         "; `kvlab reproduce NAME` checks one\n";
}

}  // namespace kv::claims
