#include "harness/planner/trace_facts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

namespace kv::planner {
namespace {

double part_of(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

// Capacities from 1 to the largest at which anything changes, equally far apart in logarithm.
std::set<int64_t> capacities(const HitRates& hits) {
  constexpr int kPoints = 32;
  std::set<int64_t> all;
  const std::vector<int64_t> steps = hits.steps();
  if (steps.empty()) return all;
  const double most = std::log(static_cast<double>(steps.back()));
  for (int i = 0; i <= kPoints; ++i) all.insert(std::lround(std::exp(most * i / kPoints)));
  return all;
}

}  // namespace

TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens) {
  TraceFacts facts;
  std::vector<BlockTree> trees;
  const bool asked = !block_tokens.empty();
  RequestSource source = open();
  double tokens = 0.0;
  for (io::Request request; source.next(request);) {
    if (!request.prefix_ids.empty() && block_tokens.empty()) block_tokens = {request.id_tokens};
    for (size_t i = trees.size(); i < block_tokens.size(); ++i) {
      trees.emplace_back(block_tokens[i]);
      facts.hits.emplace_back();
    }
    for (size_t i = 0; i < trees.size(); ++i) facts.hits[i].add(trees[i].nodes(request));
    ++facts.requests;
    facts.sessions |= request.session >= 0;
    facts.seconds = request.arrival_s;
    facts.prompt.push_back(static_cast<double>(request.prompt_tokens));
    facts.output.push_back(static_cast<double>(request.output_tokens));
    facts.longest = std::max(facts.longest, request.prompt_tokens + request.output_tokens);
    tokens += static_cast<double>(request.prompt_tokens + request.output_tokens);
  }
  facts.typical = std::llround(std::ceil(tokens / static_cast<double>(facts.requests)));
  if (asked && facts.hits.front().blocks() == 0)
    throw std::invalid_argument("--prefix-blocks needs a trace with ids of blocks, and this one has none");
  facts.block_tokens = std::move(block_tokens);
  return facts;
}

std::vector<results::Row> hit_curve(const TraceFacts& facts, const OpenRequests& open) {
  std::vector<results::Row> rows;
  for (size_t i = 0; i < facts.hits.size(); ++i) {
    const HitRates& hits = facts.hits[i];
    const int64_t tokens = facts.block_tokens[i];
    BlockTree tree(tokens);
    std::vector<std::vector<int32_t>> requests;
    RequestSource source = open();
    for (io::Request request; source.next(request);) requests.push_back(tree.nodes(request));
    for (const int64_t capacity : capacities(hits)) {
      results::Row& row = rows.emplace_back();
      row[kBlockTokens] = tokens;
      row[kCapacityBlocks] = capacity;
      row[kHitRate] = part_of(hits.hits(capacity), hits.blocks());
      row[kBeladyHitRate] = part_of(belady_hits(requests, capacity), hits.blocks());
      row[kHitRateAtAny] = part_of(hits.hits_at_any(), hits.blocks());
    }
  }
  return rows;
}

}  // namespace kv::planner
