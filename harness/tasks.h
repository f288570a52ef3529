// What a block times: decode steps, attention on cold caches, growth runs, and between them the ceilings that
// they are held against.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/live_cell.h"
#include "harness/results.h"
#include "harness/timing.h"
#include "harness/token_feed.h"

namespace kv {

// A row of samples.csv with the columns that say whose it is.
Row sample_row(const LiveCell& cell, int repetition, size_t sample, const char* kind);

// Decode steps base … base + steps - 1, on forks of the cell's sequences, so that every repetition starts
// from the same state.
std::unique_ptr<TimedTask> step_task(LiveCell& cell, TokenFeed& feed, int64_t base, int64_t steps,
                                     ResultsFolder& results);

// Attention alone at `tokens` tokens, each time over another of `replicas` copies of the cache, so that its
// rows have left the last-level cache. Throws std::bad_alloc where the copies do not fit.
std::unique_ptr<TimedTask> cold_task(LiveCell& cell, TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, ResultsFolder& results);

// Bytes held after each token of a growth run, alike in every repetition.
struct GrowthBytes {
  int64_t payload = 0, metadata = 0, slack = 0, workspace = 0, copied = 0;
};

// `bytes.size()` tokens from an empty cache, every step recorded. One iteration is a whole run.
std::unique_ptr<TimedTask> growth_task(LiveCell& cell, int batch, bool attend,
                                       const std::vector<GrowthBytes>& bytes, ResultsFolder& results);

// Reading `bytes` and nothing else, on all threads.
class CeilingTask : public TimedTask {
 public:
  explicit CeilingTask(int64_t bytes);
  std::string name() const override;
  int iterations() const override;
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double gbps() const;

 private:
  const int64_t bytes_;
  Ledger ledger_;
  Block block_;
  volatile uint64_t sum_ = 0;  // volatile, so that the reads cannot be left out
  std::vector<double> gbps_;
};

// Multiply-adds in registers and nothing else, on all threads.
class PeakTask : public TimedTask {
 public:
  enum class Kind { kFloats, kCodes };  // as in MultiplyAdds
  explicit PeakTask(Kind kind) : kind_(kind) {}
  std::string name() const override;
  int iterations() const override { return 1; }
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double per_second() const;

 private:
  double multiply_adds() const;  // does some, and says how many

  const Kind kind_;
  int64_t rounds_ = 1000;
  std::vector<double> per_second_;
};

// Tokens that a growth run makes ready at a time.
inline constexpr int64_t kGrowthLoad = 256;

}  // namespace kv
