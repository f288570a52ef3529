#include "harness/claims/claims_list.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <stdexcept>

#include "harness/io/aligned_text.h"
#include "variants/cache/near_names.h"

namespace kv::claims {
namespace {

constexpr size_t kColumns = 120, kMostPublished = 24;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string name_of(const ClaimFile& file, const Claim& claim) { return file.name + "/" + claim.id; }

// All that is searched.
std::string words_of(const ClaimFile& file, const Claim& claim) {
  std::string all;
  for (const std::string& part :
       {name_of(file, claim), file.title, file.document, claim.text, claim.quote, claim.setting, claim.place})
    all += part + "\n";
  for (const Statement& s : claim.statements) all += s.name + "\n" + s.published.text + "\n";
  return all;
}

// Where a word begins, in "PagedAttention" twice: "tract" is not to be found in every abstract.
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

bool has_all(const ClaimFile& file, const Claim& claim, const std::vector<std::string>& words) {
  const std::string all = words_of(file, claim);
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return contains(all, word); });
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

std::string padded(const std::string& text, size_t columns) {
  const std::string shown = cut(text, columns);
  return shown + std::string(columns - io::text_width(shown), ' ');
}

// Where someone else finds the source: the first address of its document, or the rest of it.
std::string source_line(const ClaimFile& file) {
  size_t address = file.document.find("https://");
  if (address == std::string::npos) address = file.document.find("arXiv:");
  const std::string found =
      address == std::string::npos
          ? file.document
          : file.document.substr(address, file.document.find_first_of(" ,;)", address) - address);
  return cut(file.title + "  " + found, kColumns) + "\n";
}

struct Columns {
  size_t name, published;
};

std::string claim_lines(const ClaimFile& file, const Claim& claim, const Columns& columns) {
  const auto line = [&](const std::string& name, const std::string& published, const std::string& text) {
    const std::string all =
        padded(name, columns.name) + "  " + padded(published, columns.published) + "  " + text;
    return cut(all.substr(0, all.find_last_not_of(' ') + 1), kColumns) + "\n";
  };
  const std::vector<Statement>& figures = claim.statements;
  const std::string name = "  " + name_of(file, claim);
  if (figures.size() == 1) return line(name, figures.front().published.text, claim.text);
  std::string text = line(name, std::to_string(figures.size()) + " figures", claim.text);
  for (const Statement& s : figures) text += line("", s.published.text, "  " + s.name);
  return text;
}

Columns columns_of(const std::vector<ClaimFile>& files) {
  Columns columns{0, 0};
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      columns.name = std::max(columns.name, 2 + io::text_width(name_of(file, claim)));
      for (const Statement& s : claim.statements)
        columns.published = std::max(columns.published, io::text_width(s.published.text));
    }
  }
  return {std::min(columns.name, kColumns / 2), std::min(columns.published, kMostPublished)};
}

// Words of ids and titles that may be meant by one that no claim has.
std::string nearest_words(const std::vector<ClaimFile>& files, const std::string& word) {
  std::set<std::string> known;
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      std::string next;
      for (const char c : lower(name_of(file, claim) + " " + file.title + " " + claim.text) + " ") {
        if (std::isalnum(static_cast<unsigned char>(c))) {
          next += c;
        } else {
          if (next.size() > 3) known.insert(next);
          next.clear();
        }
      }
    }
  }
  return did_you_mean(word, std::vector<std::string_view>(known.begin(), known.end()));
}

[[noreturn]] void refuse(const std::vector<ClaimFile>& files, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (claims_about(files, word).empty())
      throw std::invalid_argument("no claim contains '" + word + "'" + nearest_words(files, word));
  }
  throw std::invalid_argument("no claim contains all of these words; give fewer");
}

}  // namespace

std::vector<std::string> claims_about(const std::vector<ClaimFile>& files, const std::string& word) {
  std::vector<std::string> names;
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims)
      if (has_all(file, claim, {word})) names.push_back(name_of(file, claim));
  }
  return names;
}

std::string claims_list(const std::vector<ClaimFile>& files, const std::vector<std::string>& words) {
  std::vector<ClaimFile> found;
  size_t claims = 0, figures = 0;
  for (ClaimFile file : files) {
    std::erase_if(file.claims, [&](const Claim& claim) { return !has_all(file, claim, words); });
    if (file.claims.empty()) continue;
    claims += file.claims.size();
    for (const Claim& claim : file.claims) figures += claim.statements.size();
    found.push_back(std::move(file));
  }
  if (found.empty()) refuse(files, words);
  const Columns columns = columns_of(found);
  std::string text;
  for (const ClaimFile& file : found) {
    text += source_line(file);
    for (const Claim& claim : file.claims) text += claim_lines(file, claim, columns);
    text += "\n";
  }
  const auto counted = [](size_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return text + counted(claims, "claim") + " with " + counted(figures, "figure") + " of " +
         counted(found.size(), "source") + "; `kvlab reproduce NAME` checks one\n";
}

}  // namespace kv::claims
