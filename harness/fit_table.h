// What fits into a budget of memory: the longest context and the largest batch of each variant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/bytes.h"
#include "harness/geometry.h"
#include "harness/results.h"
#include "harness/text_table.h"
#include "variants/spec.h"

namespace kv {

// The most that is looked for; an answer of so many means "at least".
inline constexpr int64_t kMostTokens = int64_t{1} << 30;
inline constexpr int64_t kMostSequences = int64_t{1} << 20;

struct Fit {
  int64_t most = 0;         // tokens or sequences; 0: not even one
  int64_t bytes = 0;        // of the cache then
  std::string reason = {};  // why more is not possible, if it is not for want of memory
};

// The most tokens for which `batch` sequences' caches hold no more than `bytes`; the most sequences of
// `tokens` tokens. By the closed form.
Fit longest_context(const Geometry& geometry, const Spec& spec, int batch, int64_t bytes);
Fit largest_batch(const Geometry& geometry, const Spec& spec, int64_t tokens, int64_t bytes);

struct FitTable {
  Geometry geometry;
  std::vector<Spec> variants;
  std::vector<int64_t> lengths;  // tokens
  int batch = 1;
  int64_t budget_bytes = 0;
  std::optional<int64_t> weights_bytes = {};  // that take part of the budget, if they are known
  std::string budget_text, weights_text;      // what they are, as the user has put it
};

TextTable text_table(const FitTable& table, Units units);

std::vector<Row> csv_rows(const FitTable& table);
std::span<const Column> fit_columns();

}  // namespace kv
