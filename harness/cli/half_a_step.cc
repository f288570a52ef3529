#include "harness/cli/half_a_step.h"

#include <algorithm>
#include <cmath>

namespace kv::cli {
namespace {

std::string tokens_text(double tokens) {
  // Two digits: more than the shares are known to.
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(tokens)) - 1));
  return format("%.0f", std::round(tokens / unit) * unit);
}

// Of a variant's cells of one batch, at ascending contexts; empty where the cache takes less than half at all of them.
std::string crossing(const Cells& cells) {
  const auto tokens = [](const results::CellResult* row) { return static_cast<double>(*row->seq_len); };
  const results::CellResult* before = nullptr;
  for (const results::CellResult* row : cells) {
    if (*row->cache_share < 0.5) {
      before = row;
      continue;
    }
    if (!before) return "at " + tokens_text(tokens(row)) + " tokens already";
    const double part = (0.5 - *before->cache_share) / (*row->cache_share - *before->cache_share);
    return "from about " + tokens_text(tokens(before) * std::pow(tokens(row) / tokens(before), part)) +
           " tokens";
  }
  return "";
}

}  // namespace

std::string half_a_step(const Cells& cells) {
  Cells timed;
  for (const results::CellResult* row : cells) {
    if (row->cache_share && row->seq_len && !row->is_aa_test()) timed.push_back(row);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto* a, const auto* b) { return *a->seq_len < *b->seq_len; });
  std::string text;
  const results::CellResult* most = nullptr;  // of those that stay below
  int below = 0;
  for (const auto& [name, own] : grouped(timed, [](const results::CellResult& row) {
         return row.variant + ", batch " + results::text_of(row.batch);
       })) {
    const std::string where = crossing(own);
    if (!where.empty()) text += (text.empty() ? "" : "; ") + name + " " + where;
    if (where.empty() && (!below++ || *own.back()->cache_share > *most->cache_share)) most = own.back();
  }
  if (below > 0) {
    text += (text.empty() ? "at no context that was measured"
                          : "; not at the contexts measured: " + std::to_string(below) + " more") +
            std::string(", at most ") + percent(most->cache_share) + " (" + most->variant + ", " +
            results::text_of(most->seq_len) + " tokens)";
  }
  return timed.empty() ? "" : "The cache takes half of a step: " + text + "\n";
}

}  // namespace kv::cli
