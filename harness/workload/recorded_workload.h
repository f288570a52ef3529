// Rows in memory: a workload's first tokens, for callers that read each of them many times, and a whole model's.
#pragma once

#include <vector>

#include "harness/workload/workload.h"
#include "variants/cache/cache.h"

namespace kv::workload {

// One layer of one sequence.
struct RecordedLayer {
  std::vector<float> q;     // [q_heads, tokens, head_dim]
  std::vector<float> k, v;  // [kv_heads, tokens, head_dim]
};

class RecordedWorkload : public Workload {
 public:
  // Holds tokens [0, tokens) of sequences 0 … sequences - 1. Reading others is a bug (std::logic_error).
  RecordedWorkload(const Workload& workload, int sequences, int64_t tokens);

  const WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return name_; }
  int64_t max_tokens() const override { return tokens_; }
  void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override;

  const RecordedLayer& at(int sequence, int layer) const;

 private:
  WorkloadShape shape_;
  std::string name_;
  int64_t tokens_;
  std::vector<RecordedLayer> layers_;  // [sequences, layers]
};

// Rows for a whole model's caches: synthetic ones for the context, the model's own for the tokens after it.
class ContextRows : public Workload {
 public:
  // Rows of any sequence come from a pool of N(0, 1), so that 128K tokens are available at once; rows from token
  // `synthetic` on are the recorded ones.
  ContextRows(const WorkloadShape& shape, int64_t synthetic, uint64_t seed);

  // Records the next tokens of sequence 0 in a layer, as the model gave them to its cache.
  void record(int layer, const StepInput& in);

  const WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return "model"; }
  int64_t max_tokens() const override { return INT64_MAX; }
  void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override;

 private:
  using Heads = std::vector<std::vector<float>>;  // [layers * heads] of [recorded tokens, head_dim]
  void read_rows(const Heads& all, int heads, uint64_t phase, int sequence, int layer, int64_t first,
                 int64_t n, float* to) const;
  const float* pool_row(uint64_t phase, int sequence, int layer, int head, int64_t token) const;

  WorkloadShape shape_;
  int64_t synthetic_;
  std::vector<float> pool_;  // [kPool, head_dim]
  Heads q_, k_, v_;
};

}  // namespace kv::workload
