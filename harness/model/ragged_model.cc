#include "harness/model/ragged_model.h"

#include <stdexcept>
#include <string>

#include "harness/model/cached_model.h"
#include "harness/model/codebooks.h"
#include "harness/model/step_parts.h"
#include "variants/cache/compatibility.h"

namespace kv::model {

RaggedModel::RaggedModel(const Model& model, Cache& cache)
    : model_(model), cache_(cache), rotary_(rotates_at_read(cache) ? Rotary::kCache : Rotary::kTrained) {
  for (int layer = 0; layer < model.config().layers; ++layer) {
    if (!cache.keeps_rows(layer))
      throw std::invalid_argument("layer " + std::to_string(layer) +
                                  " is linear; serving requests needs layers that keep K and V");
  }
  check_window(model.config(), cache);
  check_rotation(model.config(), cache.spec(0));
  check_codebooks(model, cache);
}

std::vector<float> RaggedModel::step(std::span<const Part> parts, int64_t padding) {
  std::vector<int> ids;
  std::vector<int64_t> positions, wanted;
  std::vector<SequenceTokens> step;
  for (const Part& part : parts) {
    step.push_back({part.sequence, std::ssize(part.ids)});
    for (int64_t i = 0; i < std::ssize(part.ids); ++i) positions.push_back(part.position + i);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    for (int64_t i = part.wanted; i > 0; --i) wanted.push_back(std::ssize(ids) - i);
  }
  ids.resize(ids.size() + static_cast<size_t>(padding));
  positions.resize(ids.size());
  return model_.forward(
      ids, positions,
      [&](int layer, int64_t rows, const float* q, const float* k, const float* v, float* out) {
        const std::span<const StepInput> inputs = rows_.lay_out(model_.config(), layer, step, rows, q, k, v);
        {
          const StepParts::Timing timing(model::Part::kAttend);
          cache_.step(layer, inputs);
        }
        rows_.copy_out(model_.config(), rows, out);
      },
      {&rotary_, 1}, wanted);
}

}  // namespace kv::model
