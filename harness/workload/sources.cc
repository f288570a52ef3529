#include "harness/workload/sources.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/memory/ledger.h"
#include "harness/memory/machine.h"
#include "harness/model/cached_model.h"
#include "harness/model/random_weights.h"
#include "harness/model/token_ids.h"
#include "harness/workload/model_workload.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"

namespace kv::workload {
namespace {

class SharedSource : public Source {
 public:
  explicit SharedSource(std::unique_ptr<Workload> workload) : workload_(std::move(workload)) {}
  const WorkloadShape& shape() const override { return workload_->shape(); }
  int64_t max_tokens() const override { return workload_->max_tokens(); }
  std::shared_ptr<const Workload> workload(const LayerSpecs&, int64_t, int) override { return workload_; }

 private:
  std::shared_ptr<const Workload> workload_;
};

// Several workloads of one shape: sequence i reads the i-th.
class JoinedWorkload : public Workload {
 public:
  explicit JoinedWorkload(std::vector<std::unique_ptr<Workload>> parts) : parts_(std::move(parts)) {}
  const WorkloadShape& shape() const override { return parts_.front()->shape(); }
  std::string name() const override { return parts_.front()->name(); }
  int64_t max_tokens() const override { return parts_.front()->max_tokens(); }
  void read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override {
    parts_.at(static_cast<size_t>(sequence))->read(0, layer, first, n, q, k, v);
  }

 private:
  std::vector<std::unique_ptr<Workload>> parts_;
};

WorkloadShape shape_of(const model::ModelConfig& m) {
  return {.layers = m.layers,
          .q_heads = m.q_heads,
          .kv_heads = m.kv_heads,
          .head_dim = m.head_dim(),
          .rope = m.rope,
          .kinds = m.kinds,
          .linear = m.linear};
}

class ModelSource : public Source {
 public:
  ModelSource(const config::WorkloadConfig& config, const std::string& text, cuda::Gpu* gpu)
      : gpu_(gpu), path_(io::model_to_read(config.model).string()), model_(path_) {
    const int vocab = model_.config().vocab_size;
    tokenizer_path_ = model::tokenizer_for(path_, config.tokenizer);
    tokens_ = model::read_tokens(io::text_to_read(text).string(), tokenizer_path_, vocab);
    if (config.text_from >= static_cast<int64_t>(tokens_.size())) {
      throw std::invalid_argument("workload.text_from skips " + std::to_string(config.text_from) +
                                  " tokens of a text of " + std::to_string(tokens_.size()) + "; skip fewer");
    }
    tokens_.erase(tokens_.begin(), tokens_.begin() + config.text_from);
    if (config.products == "bf16") model_.multiply_in_bf16();
    if (config.k_order == "halves") model_.order_in_halves();
    shape_ = shape_of(model_.config());
  }

  const WorkloadShape& shape() const override { return shape_; }
  const model::Model* model() const override { return &model_; }
  std::string tokenizer() const override { return tokenizer_path_; }
  std::span<const int> text() const override { return tokens_; }
  std::span<const int> ids_of(const std::string& path) const override {
    const auto [found, is_new] = others_.try_emplace(path);
    if (is_new) found->second = model::read_tokens(path, tokenizer_path_, model_.config().vocab_size);
    return found->second;
  }
  int64_t max_tokens() const override {
    return std::min<int64_t>(static_cast<int64_t>(tokens_.size()), model_.config().max_tokens);
  }

  std::shared_ptr<const Workload> workload(const LayerSpecs& spec, int64_t tokens, int windows) override {
    model::check_rotation(model_.config(), spec);
    if (windows == 1) return of_window(spec, 0, tokens);
    std::vector<std::unique_ptr<Workload>> all;
    for (int i = 0; i < windows; ++i) all.push_back(of_window(spec, i * tokens, tokens));
    return std::make_shared<JoinedWorkload>(std::move(all));
  }

 private:
  std::unique_ptr<Workload> of_window(const LayerSpecs& spec, int64_t begin, int64_t tokens) const {
    constexpr int64_t kChunk = 64;
    const model::ModelConfig& m = model_.config();
    memory::Ledger ledger(INT64_MAX, gpu_);
    const auto cache = build_cache(spec, cache_shape(model_.config(), 1, tokens), ledger);
    const SequenceId id = cache->add_sequence();
    const auto attention = [&](int layer, int64_t n, const float* q, const float* k, const float* v,
                               float* out) {
      const StepInput in{.sequence = id,
                         .n = n,
                         .q = q,
                         .k = k,
                         .v = v,
                         .out = out,
                         .sink_logits = m.sinks(layer),
                         .score_cap = m.score_cap};
      cache->step(layer, {&in, 1});
    };
    const auto window = std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens));
    const model::Rotary rotary = rotates_at_read(spec) ? model::Rotary::kCache : model::Rotary::kTrained;
    return capture(model_, window, attention, "model", kChunk, rotary);
  }

  cuda::Gpu* gpu_;
  std::string path_, tokenizer_path_;
  model::Model model_;
  std::vector<int> tokens_;
  mutable std::map<std::string, std::vector<int>> others_;  // by path
  WorkloadShape shape_;
};

// A model with random weights, for experiments that feed it themselves.
class RandomModelSource : public Source {
 public:
  RandomModelSource(const config::Config& config, const config::Geometry& g)
      : model_(model::random_weights(g,
                                     config.workload.weights_type == "f32" ? model::WeightMatrix::Type::kF32
                                                                           : model::WeightMatrix::Type::kBf16,
                                     config.seed, memory::available_memory_bytes())),
        shape_(shape_of(model_.config())) {
    if (config.workload.products == "bf16") model_.multiply_in_bf16();
  }

  const WorkloadShape& shape() const override { return shape_; }
  const model::Model* model() const override { return &model_; }
  int64_t max_tokens() const override { return INT64_MAX; }
  std::shared_ptr<const Workload> workload(const LayerSpecs&, int64_t, int) override {
    throw std::logic_error("random weights compute no workload");
  }

 private:
  model::Model model_;
  WorkloadShape shape_;
};

}  // namespace

std::string unsupported_reason(const LayerSpecs& spec, const std::string& family, const ModelShape& shape,
                               const cuda::Gpu* gpu) {
  if (family == "dump" && rotates_at_read(spec))
    return "a dump's queries and keys are rotated by RoPE; positions=cache needs them before RoPE";
  return unsupported_reason(spec, shape, gpu);
}

std::unique_ptr<Source> open_source(const std::string& family, const std::string& text,
                                    const config::Config& config, const config::Geometry& g, cuda::Gpu* gpu) {
  if (family == "model" && config.workload.weights == "random")
    return std::make_unique<RandomModelSource>(config, g);
  if (family == "model") {
    if (config.workload.model.empty()) {
      throw std::invalid_argument(
          "workload \"model\" needs workload.model, and workload.tokenizer unless the text is token ids or "
          "the model's folder has a tokenizer.json");
    }
    return std::make_unique<ModelSource>(config.workload, text, gpu);
  }
  if (family == "dump") {
    if (config.workload.dump.empty()) throw std::invalid_argument("workload \"dump\" needs workload.dump");
    return std::make_unique<SharedSource>(open_dump(io::find_input(config.workload.dump, "dump").string()));
  }
  return std::make_unique<SharedSource>(make_synthetic(family,
                                                       {.layers = g.layers,
                                                        .q_heads = g.q_heads,
                                                        .kv_heads = g.kv_heads,
                                                        .head_dim = g.head_dim,
                                                        .value_dim = g.value_dim},
                                                       config.seed));
}

}  // namespace kv::workload
