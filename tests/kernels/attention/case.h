// A case of the table of attention: what is stored, who reads it, where it lies. A line of text says all of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/kernels/paged_head.h"

namespace kv::test {

struct Storage {
  std::string name;
  std::vector<CodecPair> codecs;  // that take turns every few rows, if there are several
};

inline const std::vector<Storage>& storages() {
  static const std::vector<Storage> all = [] {
    std::vector<Storage> found;
    const auto add = [&](const Encoding& k, const Encoding& v) {
      const CodecPair codec{k, v};
      found.push_back({codec.name(), {codec}});
    };
    for (const Encoding& e : {kF32, kF16, kBf16, kFp8E4M3, kFp8E5M2, kQ8, kQ4}) add(e, e);
    add(kQ8, kQ4);
    add(kQ4, kQ8);
    for (const int bits : {8, 4, 2}) {
      for (const bool affine : {true, false}) add(token(bits, affine), token(bits, affine));
      add(channel(bits), token(bits, true));
    }
    add(kF16, kBf16);
    add(channel(4, 8), token(2, true));
    add(token(5, true), token(2, false));
    add(token(3, true), kF16);
    for (int before = -1; const Encoding& e : levels()) {  // one of each format: all are decoded first
      if (static_cast<int>(e.format) != std::exchange(before, static_cast<int>(e.format))) add(e, e);
    }
    found.push_back({"floats", {same(kFp8E4M3), same(kBf16), same(kF32), same(kFp8E5M2), same(kF16)}});
    found.push_back({"any", {same(kF16), same(kQ8), same(kFp8E4M3), same(kF32), same(token(4, true))}});
    return found;
  }();
  return all;
}

// Heads of a pool lie side by side in each block.
inline constexpr Placing kPool{16, true};
inline constexpr std::pair<const char*, Placing> kPlacings[] = {{"contiguous", kContiguous},
                                                                {"rows", kRowMajor},
                                                                {"paged", kPaged},
                                                                {"tiny", kTiny},
                                                                {"odd", kOdd},
                                                                {"pool", kPool}};

enum Shape { kPlain, kGrowing, kUnequal, kSpiky, kLarge, kShapes };
inline constexpr const char* kShapeNames[] = {"plain", "growing", "unequal", "spiky", "large"};

struct Case {
  int storage = 0, head_dim = 64;
  int group = 1, n = 1;  // query heads, and tokens of the step
  int rows = 1;          // that the last token sees
  int unseen = 0;        // rows stored behind them
  int tail = 0;          // at least so many of the last rows are raw, of whole units before them
  int placing = 0;
  int heads = 1;             // of the step, beside them one whose tokens are fewer
  int shape = kPlain;        // of the numbers
  int keys = 0, values = 0;  // their magnitudes, as powers of two
  int sinks = 0, cap = 0;    // extra terms of the softmax
  int scored = 0;            // attention weights are asked for
  int int8 = 0;              // 8-bit arithmetic
  int shared_kib = 0;        // of a GPU's block; 0: the plain kernel
  int item_rows = 352;       // of a GPU's work item: a warp's ring wraps around in so many
};

struct Field {
  const char* name;
  int Case::*value;
};
inline constexpr Field kFields[] = {{"storage", &Case::storage},
                                    {"head_dim", &Case::head_dim},
                                    {"group", &Case::group},
                                    {"n", &Case::n},
                                    {"rows", &Case::rows},
                                    {"unseen", &Case::unseen},
                                    {"tail", &Case::tail},
                                    {"placing", &Case::placing},
                                    {"heads", &Case::heads},
                                    {"shape", &Case::shape},
                                    {"keys", &Case::keys},
                                    {"values", &Case::values},
                                    {"sinks", &Case::sinks},
                                    {"cap", &Case::cap},
                                    {"scored", &Case::scored},
                                    {"int8", &Case::int8},
                                    {"shared_kib", &Case::shared_kib},
                                    {"item_rows", &Case::item_rows}};

// Names of a field's values, if they have names.
inline std::vector<std::string> names_of(const Field& field) {
  std::vector<std::string> names;
  if (field.value == &Case::storage)
    for (const Storage& one : storages()) names.push_back(one.name);
  if (field.value == &Case::placing)
    for (const auto& one : kPlacings) names.emplace_back(one.first);
  if (field.value == &Case::shape) names.assign(std::begin(kShapeNames), std::end(kShapeNames));
  return names;
}

inline std::string to_line(const Case& c) {
  std::string line;
  for (const Field& field : kFields) {
    const int value = c.*field.value;
    if (value == Case().*field.value && field.value != &Case::storage) continue;
    const std::vector<std::string> names = names_of(field);
    line += (line.empty() ? "" : " ") + std::string(field.name) + "=" +
            (names.empty() ? std::to_string(value) : names.at(static_cast<size_t>(value)));
  }
  return line;
}

inline Case from_line(const std::string& line) {
  Case c;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    const auto field = std::ranges::find(kFields, word.substr(0, at), &Field::name);
    if (at == std::string::npos || field == std::end(kFields)) throw std::invalid_argument(word);
    const std::vector<std::string> names = names_of(*field);
    const auto name = std::ranges::find(names, word.substr(at + 1));
    c.*(field->value) =
        names.empty() ? std::stoi(word.substr(at + 1)) : static_cast<int>(name - names.begin());
    if (!names.empty() && name == names.end()) throw std::invalid_argument(word);
  }
  return c;
}

// Scales of 16 bits, and numbers of f16, have no room for every magnitude, nor codes of one scale for spikes.
inline bool numbers_fit(const Case& c) {
  bool wide = c.tail == 0, floats = true;
  for (const CodecPair& codec : storages()[static_cast<size_t>(c.storage)].codecs) {
    for (const Encoding& e : {codec.k, codec.v}) {
      const Format f = e.format;
      floats &= descriptor_of(f).elements == Elements::kFloats;
      wide &= f != Format::kF16 && (descriptor_of(f).elements == Elements::kFloats || f == Format::kToken);
    }
  }
  const auto [least, most] = std::minmax(c.keys, c.values);
  return (wide || (least >= -13 && most <= 4)) && (floats || c.shape != kSpiky);
}

// Fields that are set together, and their values.
struct Axis {
  std::vector<int Case::*> fields;
  std::vector<std::vector<int>> values;
};
inline Axis axis(int Case::*field, const std::vector<int>& values) {
  Axis a{{field}, {}};
  for (const int value : values) a.values.push_back({value});
  return a;
}

// Cases in which each two axes meet with each two of their values, where `valid` allows it, and all of `first`, whose own
// axes are the first ones. The same at every call.
class Pairs {
 public:
  Pairs(std::vector<Axis> axes, std::function<bool(const Case&)> valid)
      : axes_(std::move(axes)), valid_(std::move(valid)) {
    for (size_t a = 0; a < axes_.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        for (int x = 0; x < sizes(a); ++x)
          for (int y = 0; y < sizes(b); ++y) missing_.insert({a, x, b, y});
  }
  // First a case for each key that values of the first `axes` axes give.
  template <class Key>
  Pairs& with_each(size_t axes, Key key) {
    std::set<decltype(key(Case()))> seen;
    Choice choice(axes_.size(), 0);
    for (size_t a = 0; a < axes;) {
      Choice part = choice;
      std::fill(part.begin() + static_cast<std::ptrdiff_t>(axes), part.end(), -1);
      if (!seen.contains(key(case_of(choice))) && add(part)) seen.insert(key(case_of(choice)));
      for (a = 0; a < axes && ++choice[a] == sizes(a); ++a) choice[a] = 0;
    }
    return *this;
  }
  std::vector<Case> cases() {
    while (!missing_.empty()) {
      const auto [a, x, b, y] = *missing_.begin();
      Choice choice(axes_.size(), -1);
      choice[a] = x;
      choice[b] = y;
      if (!add(choice)) missing_.erase({a, x, b, y});  // they exclude each other
    }
    return cases_;
  }

 private:
  using Choice = std::vector<int>;  // of a value in each axis
  int sizes(size_t a) const { return static_cast<int>(axes_[a].values.size()); }
  Case case_of(const Choice& choice) const {
    Case c;
    for (size_t a = 0; a < axes_.size(); ++a)
      for (size_t f = 0; f < axes_[a].fields.size(); ++f)
        c.*axes_[a].fields[f] = axes_[a].values[static_cast<size_t>(choice[a])][f];
    return c;
  }
  // The pairs of a choice that are still missing.
  std::vector<std::tuple<size_t, int, size_t, int>> found(const Choice& choice) const {
    std::vector<std::tuple<size_t, int, size_t, int>> all;
    for (size_t a = 0; a < axes_.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (missing_.contains({a, choice[a], b, choice[b]})) all.push_back({a, choice[a], b, choice[b]});
    return all;
  }
  // Adds the completion with the most missing pairs among some random ones; false if none is valid.
  bool add(const Choice& part) {
    Choice best;
    size_t most = 0;
    for (int attempt = 0, valid = 0; attempt < 1000 && valid < 20; ++attempt) {
      Choice choice = part;
      for (size_t a = 0; a < choice.size(); ++a)
        if (choice[a] < 0) choice[a] = static_cast<int>(random_() % static_cast<unsigned>(sizes(a)));
      if (!valid_(case_of(choice))) continue;
      ++valid;
      const size_t count = found(choice).size() + 1;
      if (count > most) best = choice, most = count;
    }
    if (best.empty()) return false;
    for (const auto& pair : found(best)) missing_.erase(pair);
    cases_.push_back(case_of(best));
    return true;
  }

  std::vector<Axis> axes_;
  std::function<bool(const Case&)> valid_;
  std::set<std::tuple<size_t, int, size_t, int>> missing_;
  std::mt19937 random_{1};
  std::vector<Case> cases_;
};

}  // namespace kv::test
