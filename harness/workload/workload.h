// Sources of Q, K and V: synthetic families with a seed, a tensor dump, or a real model's own layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "variants/core/rope.h"
#include "variants/model_cache/linear_cache.h"
#include "variants/model_cache/model_layer.h"

namespace kv::workload {

struct WorkloadShape {
  int layers = 1;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 64;
  // RoPE of q and k for a cache that rotates them itself; families without RoPE use the paper's.
  Rope rope{};
  int value_dim = 0;                   // MLA: V is the first value_dim values of K (CacheShape::value_dim)
  std::vector<ModelLayer> kinds = {};  // [layers]; empty if all are "full"
  LinearShape linear = {};             // for layers of kind "linear", which have no Q, K and V

  int row_layers() const;  // layers that keep rows
};

// A stream of tokens for any number of sequences. Reading is random access and gives the same bits for the same
// (seed, sequence, layer, token), whatever was read before: every variant sees the same tokens.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual const WorkloadShape& shape() const = 0;
  virtual std::string name() const = 0;
  // Number of tokens; INT64_MAX for synthetic families.
  virtual int64_t max_tokens() const = 0;
  // Fills q [q_heads, n, head_dim], k and v [kv_heads, n, head_dim] with tokens [first, first + n) of a sequence's
  // layer. A null pointer skips its tensor. With value_dim, v is k.
  virtual void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k,
                    float* v) const = 0;
};

struct FamilyInfo {
  std::string_view name;
  std::string_view formula;  // one line, in the documentation's terms
};
// gaussian, outliers, offsets, sinks, heavy, local.
std::vector<FamilyInfo> synthetic_families();

// Throws std::invalid_argument that lists the families if `family` is unknown.
std::unique_ptr<Workload> make_synthetic(std::string_view family, const WorkloadShape& shape, uint64_t seed);

// Opens a safetensors file (f32, f16 or bf16) with q [layers, q_heads, n, head_dim], k and v [layers, kv_heads, n,
// head_dim]. Every sequence reads the same dump. Throws std::invalid_argument (what, where, what would be right) for
// any other file, NaN and infinities included.
std::unique_ptr<Workload> open_dump(const std::string& path);

}  // namespace kv::workload
