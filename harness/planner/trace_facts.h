// The requests that a replay serves, those of a trace, when they came or at drawn times; and facts about a trace: its lengths, and the share of its prompts that a prefix cache would have had.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/io/request_trace.h"
#include "harness/planner/hit_rate.h"

namespace kv::planner {

// Gaps between arrivals that are independent draws from a gamma distribution: cv 1 is a Poisson process, more comes
// in bursts.
struct Arrivals {
  double per_second = 0.0;  // 0: the trace's own times
  double cv = 1.0;          // standard deviation of a gap / its mean
};
// "poisson(2.5)" or "gamma(2.5,2)": requests a second, and cv; empty: the trace's own. Throws std::invalid_argument.
Arrivals parse_arrivals(const std::string& text);

// Requests of drawn lengths, one after another and then from the first again. None of them is empty.
struct DrawnLengths {
  std::vector<int64_t> prompt, output;
  // Tokens that all prompts begin with, before their own. Ids are for `id_tokens` each, if that is not 0.
  int64_t prefix = 0, id_tokens = 0;
};

class RequestSource {
 public:
  // Throws std::invalid_argument for arrivals without a rate.
  RequestSource(std::shared_ptr<const DrawnLengths> lengths, const Arrivals& arrivals, int64_t requests,
                uint64_t seed);
  // `most`: requests in all; 0: the trace's. With drawn arrivals, more than the trace has begin it again.
  RequestSource(std::string path, const Arrivals& arrivals, int64_t most, uint64_t seed);
  // False at the end. Throws std::invalid_argument as RequestTrace, and for a trace without requests.
  bool next(io::Request& request);

 private:
  bool read(io::Request& request);
  void draw_ids(io::Request& request) const;

  const std::string path_;
  const std::shared_ptr<const DrawnLengths> lengths_;
  const Arrivals arrivals_;
  const int64_t most_;
  const uint64_t key_;
  std::unique_ptr<io::RequestTrace> trace_;
  int64_t given_ = 0;
  double now_s_ = 0.0;
};

// Opens the requests again, from the first.
using OpenRequests = std::function<RequestSource()>;

struct TraceFacts {
  int64_t requests = 0;
  double seconds = 0.0;                // from the first to the last
  std::vector<double> prompt, output;  // tokens, by request
  int64_t typical = 0;                 // mean of a prompt and its answer
  bool sessions = false;               // requests say which belong together
  std::vector<int64_t> block_tokens;   // a prefix block's; empty if the trace has no ids
  std::vector<HitRates> hits;          // by block_tokens
};
// Throws std::invalid_argument where the requests cannot be read, and where a prefix cache with blocks of these sizes cannot find
// theirs: they have no ids of blocks, or for blocks of other sizes.
void check_blocks(const OpenRequests& open, std::span<const int64_t> block_tokens);
// `block_tokens`: sizes to look at; none: the trace's own. Throws as check_blocks() does.
TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens);

// Rows of kHitColumns: some tens of capacities for each block size. Reads the requests once a size.
std::vector<results::Row> hit_curve(const TraceFacts& facts, const OpenRequests& open);

}  // namespace kv::planner
