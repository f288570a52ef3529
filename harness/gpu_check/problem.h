// Problems of attention whose rows the CPU encodes, and a batch of them in a GPU's memory: on a GPU for gpu-check, on the shim
// in tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/gpu_check/device_bytes.h"
#include "harness/gpu_check/exact.h"
#include "harness/gpu_check/paged_head.h"
#include "variants/storage/attention_plan.h"

namespace kv::gpu_check {

// One sequence's head: `rows` rows, the newest `tail_rows` raw, and the queries of n tokens.
struct GpuCase {
  CodecPair codec;
  int head_dim = 64;
  int group = 1;
  int32_t rows = 1, tail_rows = 0, n = 1;
  Placing placing = kContiguous;
};

// Rows and queries are numbers of a seed (numbers.h).
struct GpuProblem {
  GpuProblem(const GpuCase& c, uint64_t seed);

  // The rows as they were given, and as attention reads them: [rows, head_dim].
  std::vector<float> given(bool v) const;
  std::vector<float> decoded(bool v) const;
  int32_t seen(int query) const { return shape.rows - shape.n + 1 + query % shape.n; }

  // ||out - FP64|| / ||FP64|| over all queries.
  double relative_error() const;
  // The largest |sum - FP64| / (1 + FP64) of a row's attention weights after one step.
  double weight_error() const;

  GpuCase shape;
  uint64_t seed;
  PagedHead encoded, tail;
  std::vector<float> q, out, weights;

 private:
  Exact exact() const;
};

// The problems of one launch: one codec, head_dim and group, any lengths.
class GpuBatch {
 public:
  struct Options {
    AttentionPlan::Cut cut = AttentionPlan::Cut::kEven;
    int32_t item_rows = 0;  // rows of a work item, or of a plain split; 0: as the plan cuts
    bool scored = false;    // a step adds attention weights
  };

  // The problems outlive it.
  GpuBatch(cuda::Gpu& gpu, std::vector<GpuProblem>& problems, const Options& options);

  // True if this GPU has a kernel for a step that is not plain.
  bool is_fast() const { return plan_.block_queries > 0; }
  // Launches one step. `merges`: the fast kernel's last blocks merge partial results; else another launch does.
  void step(bool merges = true) const;
  // Brings the outputs, and the weights if they are scored, to the problems.
  void fetch();

  // True if the counters are zero, as every step must leave them.
  bool counters_are_zero() const;
  // True if copy_rows' f32 rows equal, bit for bit, the stored bytes decoded by the CPU.
  bool copy_is_the_cpus(int problem) const;

 private:
  template <class T>
  T* keep(const std::vector<T>& values);
  const cuda::Page* keep(const PagedHead& head);
  void cut(const Options& options);

  cuda::Gpu& gpu_;
  std::vector<GpuProblem>& problems_;
  AttentionPlan plan_;
  AttentionPlan::Placed at_;
  std::vector<DeviceBytes> kept_;
  std::vector<float*> weights_;  // [problems], on the GPU
  float** weights_of_ = nullptr;
  int32_t most_rows_ = 0, split_rows_ = AttentionPlan::kPlainRows;
};

// The first difference between the bytes that the GPU's append stores for rows [units * unit_rows, head_dim], from the last
// unit to the first, and the CPU's; or nothing.
std::string append_difference(cuda::Gpu& gpu, const CodecPair& codec, int head_dim, const Placing& placing,
                              const std::vector<float>& k, const std::vector<float>& v);

}  // namespace kv::gpu_check
