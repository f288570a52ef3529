// The states of linear layers for one sequence, kept by nobody else.
#include <memory>
#include <vector>

#include "harness/memory/ledger.h"
#include "harness/model/linear_rows.h"
#include "harness/model/model.h"

namespace kv::model {
namespace {

class FullRecurrence {
 public:
  explicit FullRecurrence(const Model& model)
      : model_(model), windows_(static_cast<size_t>(model.config().layers)) {}

  void step(int layer, int64_t n, const float* projected, float* out) {
    const ModelConfig& config = model_.config();
    const LayerWeights& weights = model_.weights().layers[static_cast<size_t>(layer)];
    if (!states_) {
      CacheShape shape;
      shape.layers = config.layers;
      shape.max_tokens = INT64_MAX;
      shape.max_sequences = 1;
      states_ = build_linear_cache(config.linear, shape, ledger_);
      id_ = states_->add_sequence();
    }
    states_->step(layer, rows_.lay_out(config.linear, weights, {&id_, 1}, n, projected,
                                       {&windows_[static_cast<size_t>(layer)], 1}));
    rows_.copy_out(config.linear, weights, config.norm_epsilon, projected, out);
  }

 private:
  const Model& model_;
  memory::Ledger ledger_;
  std::unique_ptr<Cache> states_;  // made when the first layer asks for it
  SequenceId id_{};
  LinearRows rows_;
  std::vector<ConvolutionWindow> windows_;  // [layers]
};

}  // namespace

Model::Recurrence full_recurrence(const Model& model) {
  auto kept = std::make_shared<FullRecurrence>(model);
  return [kept](int layer, int64_t n, const float* projected, float* out) {
    kept->step(layer, n, projected, out);
  };
}

}  // namespace kv::model
