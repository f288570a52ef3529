// A workload's first tokens in memory, for callers that read each of them many times.
#pragma once

#include "harness/workload/workload.h"

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

}  // namespace kv::workload
