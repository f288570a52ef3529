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
  // The rotation of q and k for a cache that rotates them itself; the paper's for families that have none.
  Rope rope{};
  int value_dim = 0;                   // MLA: V is the first so many values of K (CacheShape::value_dim)
  std::vector<ModelLayer> kinds = {};  // [layers]; empty where all are "full"
  LinearShape linear = {};             // for layers of kind "linear", which have no Q, K and V to read

  int row_layers() const;  // the others
};

// A stream of tokens for any number of sequences. Reading is random access and always gives the same bits for
// the same (seed, sequence, layer, token), whatever was read before, so that every variant sees the same
// tokens.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual const WorkloadShape& shape() const = 0;
  virtual std::string name() const = 0;
  // Tokens there are; INT64_MAX for synthetic families.
  virtual int64_t max_tokens() const = 0;
  // With value_dim, v is k.
  // Fills q [q_heads, n, head_dim], k and v [kv_heads, n, head_dim] with tokens [first, first + n) of a
  // sequence's layer. Any of the three pointers may be null: that tensor is not made.
  virtual void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k,
                    float* v) const = 0;
};

struct FamilyInfo {
  std::string_view name;
  std::string_view formula;  // one line, in the terms of the docs
};
// gaussian, outliers, offsets, sinks, heavy, local.
std::vector<FamilyInfo> synthetic_families();

// Throws std::invalid_argument that lists the families if `family` is none of them.
std::unique_ptr<Workload> make_synthetic(std::string_view family, const WorkloadShape& shape, uint64_t seed);

// q [layers, q_heads, n, head_dim], k and v [layers, kv_heads, n, head_dim] in a safetensors file (f32, f16
// or bf16). Every sequence reads the same dump. Throws std::invalid_argument (what, where, what would be
// right) for anything else, NaN and infinities included.
std::unique_ptr<Workload> open_dump(const std::string& path);

}  // namespace kv::workload
