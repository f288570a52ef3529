#include "harness/experiments/model/cache_half_share_length.h"

#include <algorithm>
#include <cmath>

#include "harness/experiments/model/columns.h"
#include "harness/results/cell_columns.h"
namespace kv::experiments {
namespace {

constexpr int kDigits = 2;  // the shares are not known better

// The crossing of a variant's cells of one batch, at ascending contexts; empty if the cache takes less than half at
// all of them.
std::string crossing(const Cells& cells) {
  const auto tokens = [](const results::Row* row) { return static_cast<double>(*(*row)[results::kSeqLen]); };
  const results::Row* before = nullptr;
  for (const results::Row* row : cells) {
    if (*(*row)[experiments::kCacheShare] < 0.5) {
      before = row;
      continue;
    }
    if (!before) return "at " + rounded_tokens(tokens(row), kDigits) + " tokens already";
    const double part = (0.5 - *(*before)[experiments::kCacheShare]) /
                        (*(*row)[experiments::kCacheShare] - *(*before)[experiments::kCacheShare]);
    return "from about " +
           rounded_tokens(tokens(before) * std::pow(tokens(row) / tokens(before), part), kDigits) + " tokens";
  }
  return "";
}

}  // namespace

std::string cache_half_share_length(std::span<const results::Row* const> cells) {
  Cells timed;
  for (const results::Row* row : cells) {
    if ((*row)[experiments::kCacheShare] && (*row)[results::kSeqLen] && !results::is_aa_test(*row))
      timed.push_back(row);
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto* a, const auto* b) {
    return *(*a)[results::kSeqLen] < *(*b)[results::kSeqLen];
  });
  std::string text;
  const results::Row* most = nullptr;  // the largest share below a half
  int below = 0;
  for (const auto& [name, own] : grouped(timed, [](const results::Row& row) {
         return results::label_of(row) + ", batch " + results::text_of(row[results::kBatch]);
       })) {
    const std::string where = crossing(own);
    if (!where.empty()) text += (text.empty() ? "" : "; ") + name + " " + where;
    if (where.empty() &&
        (!below++ || *(*own.back())[experiments::kCacheShare] > *(*most)[experiments::kCacheShare]))
      most = own.back();
  }
  if (below > 0) {
    text += (text.empty() ? "at no context that was measured"
                          : "; not at the contexts measured: " + std::to_string(below) + " more") +
            std::string(", at most ") + percent((*most)[experiments::kCacheShare]) + " (" +
            results::label_of(*most) + ", " + results::text_of((*most)[results::kSeqLen]) + " tokens)";
  }
  return timed.empty() ? "" : "The cache takes half of a step: " + text + "\n";
}

}  // namespace kv::experiments
