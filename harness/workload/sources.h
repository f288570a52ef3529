// Opens the workload that a config names and gives each variant its tokens.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "harness/config/config.h"
#include "harness/model/model.h"
#include "harness/workload/workload.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::cuda {
class Gpu;
}

namespace kv::workload {

class Source {
 public:
  virtual ~Source() = default;
  virtual const WorkloadShape& shape() const = 0;
  virtual int64_t max_tokens() const = 0;
  // The workload for `spec`, with at least `tokens` tokens. Synthetic tokens and dumps are the same for every
  // variant. A model computes its K and V with this very cache; sequence i reads the i-th of `windows` stretches of
  // its text.
  virtual std::shared_ptr<const Workload> workload(const LayerSpecs& spec, int64_t tokens,
                                                   int windows = 1) = 0;
  // For the workload "model": the model, the path of its tokenizer or nothing, and the text's ids.
  virtual const model::Model* model() const { return nullptr; }
  virtual std::string tokenizer() const { return ""; }
  virtual std::span<const int> text() const { return {}; }
  // The ids of another text file, by the same tokenizer. Throws std::invalid_argument without one.
  virtual std::span<const int> ids_of(const std::string& /*path*/) const { return {}; }
};

// The reason that a cache of this spec cannot be measured on such a workload, or empty. Synthetic families have no
// RoPE: their rows count as rotated unless the cache rotates rows itself.
std::string unsupported_reason(const LayerSpecs& spec, const std::string& family, const ModelShape& shape,
                               const cuda::Gpu* gpu);

// `family`: a synthetic family, "dump" or "model", which reads `text`, or without one Python's documentation. A model's K
// and V are computed with caches on `gpu` if there is one. Throws std::invalid_argument.
std::unique_ptr<Source> open_source(const std::string& family, const std::string& text,
                                    const config::Config& config, const config::Geometry& g,
                                    cuda::Gpu* gpu = nullptr);

}  // namespace kv::workload
