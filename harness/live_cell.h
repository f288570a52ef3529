// One cell while it is measured: its cache, its bytes and its samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/bound.h"
#include "harness/ledger.h"
#include "harness/results.h"
#include "harness/timing.h"
#include "harness/token_feed.h"
#include "harness/verify.h"
#include "variants/build.h"

namespace kv {

struct StepTimes {
  double append_us = 0, view_us = 0, attend_us = 0;
  double step_us() const { return append_us + view_us + attend_us; }
};

// What one attend reads and does: counted from the spans, not told by the cache.
struct AttendWork {
  int64_t payload = 0, metadata = 0;  // metadata: scales and zero points only
  MultiplyAdds multiply_adds;
};
AttendWork attend_work(Cache& cache, std::span<const SequenceId> ids);

struct LiveCell {
  std::string key;
  Spec spec;
  Row row{cell_columns()};
  std::shared_ptr<const Workload> workload;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<Cache> cache;
  std::vector<SequenceId> ids;
  int64_t prompt = 0;                         // tokens of each sequence's first step, if it was a prompt
  std::vector<std::vector<StepTimes>> steps;  // [repetition][step]
  std::vector<std::vector<double>> cold_us;   // [repetition][attend]
  int64_t read_bytes = 0;                     // that one attend reads
  MultiplyAdds multiply_adds;                 // that it does

  // The whole step of one token of all sequences and layers.
  StepTimes step(TokenFeed& feed, int64_t token, std::span<const SequenceId> sequences, bool attend) const;

  // Fills the byte columns from the ledger and the spans, and throws std::logic_error if the ledger, the
  // allocator and the closed form do not agree. `lengths` are the tokens of every open sequence,
  // `prompts` those of their first steps, where they are not all `prompt`.
  void account(std::span<const int64_t> lengths, std::span<const int64_t> prompts = {});
  // The errors of the outputs of the feed's last step, at `tokens` tokens.
  Errors errors(TokenFeed& feed, int64_t tokens);
  // Sets the error columns from `errors`, a mean over `positions` of them, checks the evictions as well, and
  // says so in the status: false if the cell has failed.
  bool judge(const Errors& errors, int64_t positions);
  bool check(TokenFeed& feed, int64_t tokens) { return judge(errors(feed, tokens), 1); }
  // Fills the time columns.
  void summarise();

 private:
  int64_t looked_bytes_ = 0;  // copied by account's own looks at the rows, since the ledger began
};

std::vector<double> step_medians(const LiveCell& cell);  // one a repetition

}  // namespace kv
