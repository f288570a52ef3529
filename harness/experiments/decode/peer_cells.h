// Decode cells with another engine's attention (harness/peers). Its steps run in a separate process, on the same
// tokens, between the repetitions of kvlab's own caches.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "harness/config/key.h"
#include "harness/measure/timed_tasks.h"
#include "harness/peers/process.h"

namespace kv::experiments {

inline const config::Key<int64_t> kColdStepsKey{
    "cold_steps", config::SharedTable::kMeasure, 16, config::count(0, 100000),
    "attends over rotating caches a repetition; 0 leaves the cold columns out"};
inline const config::Key<int64_t> kDraftKey{
    "draft", config::SharedTable::kMeasure, 0, config::tokens(0, 1024),
    "tokens that a step verifies besides its own; 0 leaves the draft columns out"};
inline const config::Key<double> kAcceptKey{"accept", config::SharedTable::kMeasure, 0.7,
                                            config::number(0.0, 1.0),
                                            "probability that a draft is accepted if those before it were"};
inline const config::Key<int64_t> kPeerTimeoutKey{"peer_timeout", config::SharedTable::kMeasure, 300,
                                                  config::count(1, 100000),
                                                  "seconds in which a peer has to answer"};
// A peer's name selects all of its formats.
extern const config::Key<std::vector<std::string>> kPeersKey;

class PeerCells {
 public:
  // `base`: tokens before the timed steps.
  PeerCells(const measure::SweepPoint& point, int64_t base) : point_(point), base_(base) {}
  // Peak bytes of a peer's cell: its cache and a copy, more copies if one would stay in the last-level cache, the
  // engine itself, and the tokens while it is filled.
  static int64_t bytes(const measure::SweepPoint& point, const LayerSpecs& spec);
  // Bytes of the tokens, if the point has peers.
  static int64_t tokens_bytes(const measure::SweepPoint& point);

  // Starts the cell's peer, sends it the tokens, and compares its outputs of the last step with FP64.
  void verify(measure::Cell& cell);
  // Adds hot steps, and steps over rows that have left the last-level cache.
  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks, results::ResultsFolder& results);
  // Call once all peers have been filled.
  void forget_tokens() { tokens_.reset(); }
  // Clears the columns that only kvlab's own caches have, and compares with the cell of `group` that stores the same
  // bits.
  static void summarise(measure::Cell& cell, const std::vector<measure::Cell*>& group);

 private:
  void read_tokens(const measure::Cell& cell);
  void prepare(measure::Cell& cell, peers::Process& process);
  void check(measure::Cell& cell, double tolerance) const;

  const measure::SweepPoint& point_;
  const int64_t base_;
  std::unique_ptr<peers::SharedFloats> tokens_;  // K, V, the steps' queries, and room for outputs
  std::map<const measure::Cell*, std::unique_ptr<peers::Process>> processes_;
  std::set<const measure::Cell*> cold_;  // cells measured cold
};

// Adds the cells of the config's peers, marked as unsupported if a peer is not installed or cannot run here.
void add_peers(measure::SweepPoint& point);

}  // namespace kv::experiments
