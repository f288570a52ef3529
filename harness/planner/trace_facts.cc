#include "harness/planner/trace_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include "harness/math/random.h"

namespace kv::planner {
namespace {

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

// Gamma of this shape and scale 1, from the numbers of the stream `key`: Marsaglia and Tsang 2000. A shape below 1 is
// drawn with one more, and a power of a uniform number mends it.
double gamma(double shape, uint64_t key) {
  if (shape < 1.0) {
    const double u = math::random::uniform(math::random::key({key, 1}), 0);
    return gamma(shape + 1.0, key) * std::pow(u, 1.0 / shape);
  }
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (uint64_t i = 0;; ++i) {
    float x[2];
    math::random::fill_normal(math::random::key({key, 2, i}), x);
    const double v = std::pow(1.0 + c * static_cast<double>(x[0]), 3.0);
    const double u = math::random::uniform(math::random::key({key, 3}), i),
                 square = double{x[0]} * double{x[0]};
    if (v > 0.0 && std::log(u) < 0.5 * square + d - d * v + d * std::log(v)) return d * v;
  }
}

uint64_t arrivals_key(uint64_t seed) { return math::random::key({seed, 0x6172726976616c73}); }  // "arrivals"

// The numbers of "name(a,b)", as many as there are places for; false where the text is not that.
bool numbers_of(const std::string& text, const std::string& name, std::initializer_list<double*> places) {
  if (!text.starts_with(name + "(") || !text.ends_with(")")) return false;
  const char *at = text.data() + name.size() + 1, *end = text.data() + text.size() - 1;
  for (double* place : places) {
    if (place != *places.begin() && (at == end || *at++ != ',')) return false;
    const auto [next, error] = std::from_chars(at, end, *place);
    if (error != std::errc() || !(*place > 0.0) || !std::isfinite(*place)) return false;
    at = next;
  }
  return at == end;
}

}  // namespace

Arrivals parse_arrivals(const std::string& text) {
  Arrivals arrivals;
  if (text.empty() || numbers_of(text, "poisson", {&arrivals.per_second}) ||
      numbers_of(text, "gamma", {&arrivals.per_second, &arrivals.cv}))
    return arrivals;
  throw std::invalid_argument("arrivals: cannot read '" + text +
                              "'; write poisson(2.5) for 2.5 requests per second, or gamma(2.5,2) for gaps "
                              "whose standard deviation is 2 times their mean");
}

RequestSource::RequestSource(std::shared_ptr<const DrawnLengths> lengths, const Arrivals& arrivals,
                             int64_t requests, uint64_t seed)
    : lengths_(std::move(lengths)), arrivals_(arrivals), most_(requests), key_(arrivals_key(seed)) {
  if (arrivals.per_second == 0.0) throw std::invalid_argument("drawn requests have no arrivals of their own");
}

RequestSource::RequestSource(std::string path, const Arrivals& arrivals, int64_t most, uint64_t seed)
    : path_(std::move(path)),
      arrivals_(arrivals),
      most_(most),
      key_(arrivals_key(seed)),
      trace_(std::make_unique<io::RequestTrace>(path_)) {}

// All but the time of drawn arrivals.
bool RequestSource::read(io::Request& request) {
  if (lengths_) {
    request.prompt_tokens =
        lengths_->prefix + lengths_->prompt[static_cast<size_t>(given_) % lengths_->prompt.size()];
    request.output_tokens = lengths_->output[static_cast<size_t>(given_) % lengths_->output.size()];
    if (lengths_->id_tokens > 0) draw_ids(request);
    return true;
  }
  if (trace_->next(request)) return true;
  if (given_ == 0) throw std::invalid_argument(path_ + ": holds no request");
  if (most_ == 0 || arrivals_.per_second == 0.0) return false;
  trace_ = std::make_unique<io::RequestTrace>(path_);
  return trace_->next(request);
}

// A block that is not wholly in the prefix belongs to this request alone.
void RequestSource::draw_ids(io::Request& request) const {
  const int64_t unit = lengths_->id_tokens, alike = lengths_->prefix / unit;
  request.id_tokens = unit;
  request.prefix_ids.resize(static_cast<size_t>((request.prompt_tokens + unit - 1) / unit));
  for (int64_t i = 0; i < std::ssize(request.prefix_ids); ++i)
    request.prefix_ids[static_cast<size_t>(i)] = i < alike ? 0 : given_ + 1;
}

bool RequestSource::next(io::Request& request) {
  if ((most_ > 0 && given_ == most_) || !read(request)) return false;
  if (arrivals_.per_second > 0.0) {
    const double shape = 1.0 / (arrivals_.cv * arrivals_.cv);
    const uint64_t key = math::random::key({key_, static_cast<uint64_t>(given_)});
    if (given_ > 0) now_s_ += gamma(shape, key) / shape / arrivals_.per_second;
    request.arrival_s = now_s_;
  }
  ++given_;
  return true;
}

void check_blocks(const OpenRequests& open, std::span<const int64_t> block_tokens) {
  RequestSource source = open();
  io::Request request;
  bool more = source.next(request);
  if (block_tokens.empty()) return;
  while (more && request.prefix_ids.empty()) more = source.next(request);
  if (!more)
    throw std::invalid_argument(
        "prefix blocks, of a hit-rate curve or shared, need a trace with ids of blocks, and this one has "
        "none");
  for (const int64_t tokens : block_tokens) BlockTree(tokens).nodes(request);
}

TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens) {
  check_blocks(open, block_tokens);
  TraceFacts facts;
  std::vector<BlockTree> trees;
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
    tokens += static_cast<double>(request.prompt_tokens + request.output_tokens);
  }
  facts.typical = std::llround(std::ceil(tokens / static_cast<double>(facts.requests)));
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
      row[kHitRate] = hits.share(hits.hits(capacity));
      row[kBeladyHitRate] = hits.share(belady_hits(requests, capacity));
      row[kHitRateAtAny] = hits.share(hits.hits_at_any());
    }
  }
  return rows;
}

}  // namespace kv::planner
