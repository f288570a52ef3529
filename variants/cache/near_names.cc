#include "variants/cache/near_names.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace kv {
namespace {

constexpr size_t kMostNames = 3;
constexpr size_t kLongest = 64;   // nobody means a name of ours by a longer one
constexpr size_t kShortPart = 3;  // shorter ones are a part of too many names

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::vector<std::string_view> near_names(std::string_view wrong, std::span<const std::string_view> names) {
  struct Candidate {
    size_t distance;
    bool contains;
    std::string_view name;
  };
  const std::string written = lower(wrong.substr(0, kLongest));
  std::vector<Candidate> candidates;
  for (const std::string_view name : names) {
    const std::string known = lower(name);
    const size_t distance = edit_distance(written, known);
    const bool contains = written.size() >= kShortPart && known.find(written) != std::string::npos;
    const bool begins = known.size() >= kShortPart && written.starts_with(known);
    const bool is_alike = distance <= std::max<size_t>(2, known.size() / 3) && distance < known.size();
    if (contains || begins || is_alike) candidates.push_back({distance, contains, name});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  std::vector<std::string_view> near;
  for (const Candidate& c : candidates) {
    if (near.size() < kMostNames && (c.contains || c.distance == candidates.front().distance))
      near.push_back(c.name);
  }
  return near;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string_view> names) {
  const std::vector<std::string_view> near = near_names(wrong, names);
  std::string text;
  for (size_t i = 0; i < near.size(); ++i) {
    text += i == 0 ? "; did you mean '" : i + 1 == near.size() ? "' or '" : "', '";
    text += near[i];
  }
  return near.empty() ? "" : text + "'?";
}

std::string known_names(std::string_view wrong, std::span<const std::string_view> names) {
  constexpr size_t kAll = 8, kSome = 5;
  const std::string near = did_you_mean(wrong, names);
  std::string text = near + (near.empty() ? "; known: " : " Known: ");
  if (names.empty()) return text + "none";
  const size_t shown = names.size() > kAll ? kSome : names.size();
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + std::string(names[i]);
  return shown == names.size() ? text : text + ", … (" + std::to_string(names.size()) + ")";
}

}  // namespace kv
