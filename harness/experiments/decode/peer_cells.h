// Decode cells with another engine's attention (harness/peers). Its steps run in a separate process, on the same
// tokens, between the repetitions of kvlab's own caches.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "harness/experiments/timed_group.h"
#include "harness/measure/cell.h"
#include "harness/peers/process.h"

namespace kv::experiments {

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
  void add_tasks(measure::Cell& cell, TimedGroup::Tasks& tasks, results::ResultsFolder& results);
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
