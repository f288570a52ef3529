#include "harness/model/cached_model.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "harness/model/codebooks.h"
#include "harness/model/step_parts.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/spec.h"

namespace kv::model {
namespace {

class Seconds {
 public:
  double so_far() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Models, by index, whose caches have answered alike in this step, so that a row a token serves all of them.
using Alike = std::vector<size_t>;

// Divides groups by their models' answers, each [heads, each, values], and empty where the cache failed. Sets `out` to
// [heads, groups * each, values], and returns which of the rows before each row goes on from.
std::vector<int64_t> part(std::span<const std::vector<float>> answers, int64_t heads, int64_t each,
                          std::vector<Alike>& groups, std::vector<float>& out) {
  std::vector<Alike> parted;
  std::vector<int64_t> from;
  for (int64_t group = 0; group < std::ssize(groups); ++group) {
    const auto begin = std::ssize(parted);
    for (const size_t m : groups[static_cast<size_t>(group)]) {
      const std::vector<float>& own = answers[m];
      if (own.empty()) continue;
      const auto same = std::find_if(parted.begin() + begin, parted.end(), [&](const Alike& a) {
        return std::memcmp(answers[a.front()].data(), own.data(), own.size() * sizeof(float)) == 0;
      });
      if (same != parted.end()) {
        same->push_back(m);
        continue;
      }
      parted.push_back({m});
      for (int64_t i = 0; i < each; ++i) from.push_back(group * each + i);
    }
  }
  groups = std::move(parted);
  const auto a_head = std::ssize(answers[groups.front().front()]) / heads,
             stride = a_head * std::ssize(groups);
  out.resize(static_cast<size_t>(heads * stride));
  float* to = out.data();
  for (int64_t h = 0; h < heads; ++h) {
    for (const Alike& group : groups)
      to = std::copy_n(answers[group.front()].data() + h * a_head, a_head, to);
  }
  return from;
}

}  // namespace

void check_window(const ModelConfig& config, const Cache& cache) {
  const int64_t tokens = cache.shape().max_tokens;
  for (int layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.window(layer);
    if (window == 0 || tokens <= window || !retention_of(cache.spec(layer)).keeps_all) continue;
    const Spec& spec = cache.spec(layer);
    throw std::invalid_argument(config.viewer(layer) + " sees the last " + std::to_string(window) +
                                " tokens, but '" + spec.print() + "' shows it all " + std::to_string(tokens) +
                                "; give the layer ring(window=" + std::to_string(window) +
                                "), or shorten the sequences");
  }
}

void check_rotation(const ModelConfig& config, const LayerSpecs& specs) {
  if (!rotates_at_read(specs)) return;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(why + ": leave positions=cache out of '" + specs.print() + "'");
  };
  if (!config.rotary) refuse("the model's positions are learned, not rotary");
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.rope_of(layer) == config.rope) continue;
    refuse(config.viewer(layer) + " has a RoPE of its own, and a cache rotates all layers alike");
  }
}

ModelShape cache_shape(const ModelConfig& config, int sequences, int64_t max_tokens) {
  return {{.layers = config.layers,
           .q_heads = config.q_heads,
           .kv_heads = config.kv_heads,
           .head_dim = config.head_dim(),
           .max_tokens = max_tokens,
           .max_sequences = sequences,
           .rope = config.rope},
          config.kinds,
          config.linear};
}

CachedModel::CachedModel(const Model& model, Cache& cache, int sequences, Rotary rotary)
    : model_(model), cache_(cache), rotary_(rotates_at_read(cache) ? Rotary::kCache : rotary) {
  check_window(model.config(), cache);
  int rows = 0;  // a layer that keeps them
  while (!cache.keeps_rows(rows)) ++rows;
  check_rotation(model.config(), cache.spec(rows));
  check_codebooks(model, cache);
  windows_.assign(static_cast<size_t>(model.config().layers),
                  std::vector<ConvolutionWindow>(static_cast<size_t>(sequences)));
  for (int i = 0; i < sequences; ++i) ids_.push_back(cache.add_sequence());
}

std::vector<float> CachedModel::prompt(std::span<const int> ids, int64_t n) {
  std::vector<int64_t> last;
  for (int64_t end = n; end <= std::ssize(ids); end += n) last.push_back(end - 1);
  return step(ids, n, last);
}

std::vector<float> CachedModel::step(std::span<const int> ids, int64_t n, Model::Wanted wanted) {
  CachedModel* const alone = this;
  return step_together({&alone, 1}, ids, n, wanted).logits;
}

// A step of several models: which share rows, and the tokens of a row each of every group.
struct CachedModel::Company {
  std::span<CachedModel* const> models;
  int64_t each;  // rows of a group
  bool first_answers;
  const std::function<void()>& after_layer;
  std::vector<Alike> groups = {};
  std::vector<int> tokens = {};
  std::vector<int64_t> positions = {}, wanted = {};
  std::vector<Rotary> rotary = {};
  std::vector<std::vector<float>> answers = std::vector<std::vector<float>>(models.size());
  double in_caches = 0;

  // Models whose caches get the same queries and keys share rows at first.
  void group(std::span<const int> ids, int64_t n, Model::Wanted logits_of) {
    for (size_t at = 0; at < models.size(); ++at) {
      const Rotary own = models[at]->rotary_;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const Alike& group) {
        return models[group.front()]->rotary_ == own;
      });
      if (same != groups.end()) {
        same->push_back(at);
        continue;
      }
      groups.push_back({at});
      for (const int64_t one : logits_of.value_or(std::span<const int64_t>()))
        wanted.push_back(std::ssize(tokens) + one);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      rotary.insert(rotary.end(), ids.size(), own);
      for (int64_t i = 0; i < each; ++i) positions.push_back(models.front()->tokens_ + i % n);
    }
  }

  // The first model's answer as that of every group.
  void repeat_first(int64_t heads, std::vector<float>& out) {
    for (Alike& group : groups)
      std::erase_if(group, [&](size_t m) { return models[m]->failure_ != nullptr; });
    const auto a_head = std::ssize(answers.front()) / heads;
    out.clear();
    for (auto head = answers.front().begin(); head != answers.front().end(); head += a_head) {
      for (size_t group = 0; group < groups.size(); ++group) out.insert(out.end(), head, head + a_head);
    }
  }

  // Calls work(model, first of its rows, its answer or null) for each model, whose answer has `values` values; see part().
  std::vector<int64_t> answer(int64_t heads, int64_t values, std::vector<float>& out, const auto& work) {
    std::vector<int64_t> first(models.size());
    for (size_t group = 0; group < groups.size(); ++group) {
      for (const size_t m : groups[group]) first[m] = static_cast<int64_t>(group) * each;
    }
    in_caches += each_alone(models, [&](CachedModel& m, int64_t at) {
      std::vector<float>& own = answers[static_cast<size_t>(at)];
      if (!first_answers || at == 0) own.resize(static_cast<size_t>(values));
      work(m, first[static_cast<size_t>(at)], own.empty() ? nullptr : own.data());
    });
    if (first_answers && models.front()->failure_) std::rethrow_exception(models.front()->failure_);
    for (size_t m = 0; m < models.size(); ++m) {
      if (models[m]->failure_) answers[m].clear();
    }
    after_layer();
    if (first_answers) {
      repeat_first(heads, out);
      return {};
    }
    return part(answers, heads, each, groups, out);
  }
};

CachedModel::Together CachedModel::step_together(std::span<CachedModel* const> models,
                                                 std::span<const int> ids, int64_t n, Model::Wanted wanted,
                                                 bool first_answers,
                                                 const std::function<void()>& after_layer) {
  const Seconds whole;
  const Model& model = models.front()->model_;
  const ModelConfig& config = model.config();
  const auto each = std::ssize(ids);
  Company all{.models = models, .each = each, .first_answers = first_answers, .after_layer = after_layer};
  all.group(ids, n, wanted);
  const Model::Parting layers{
      .attention =
          [&](int layer, int64_t rows, const float* q, const float* k, const float* v,
              std::vector<float>& out) {
            return all.answer(config.q_heads, each * config.q_heads * config.head_dim(), out,
                              [&](CachedModel& m, int64_t first, float* own) {
                                const int64_t at = first * config.head_dim();
                                m.attend(layer, n, rows, q + at, k + at, v + at, own);
                              });
          },
      .recurrence =
          [&](int layer, int64_t, const float* projected, std::vector<float>& out) {
            const int64_t width = model.weights().layers[static_cast<size_t>(layer)].recurrent_out.cols();
            return all.answer(1, each * width, out, [&](CachedModel& m, int64_t first, float* own) {
              m.recur(layer, n, projected + first * projected_values(config.linear), own);
            });
          }};
  Together result{.logits = model.forward(all.tokens, all.positions, layers, all.rotary,
                                          wanted ? Model::Wanted(all.wanted) : std::nullopt),
                  .group = std::vector<int64_t>(models.size(), -1)};
  const double share = (whole.so_far() - all.in_caches) / static_cast<double>(models.size());
  for (size_t group = 0; group < all.groups.size(); ++group) {
    for (const size_t m : all.groups[group]) {
      result.group[m] = static_cast<int64_t>(group);
      models[m]->tokens_ += n;
      models[m]->shared_seconds_ += share;
    }
  }
  return result;
}

double CachedModel::each_alone(std::span<CachedModel* const> models,
                               const std::function<void(CachedModel& model, int64_t at)>& work) {
  const Seconds whole;
  const auto count = std::ssize(models);
  // Fewer models than threads share them one after another.
#pragma omp parallel for schedule(dynamic, 1) if (count > 1 && count >= omp_get_max_threads())
  for (int64_t at = 0; at < count; ++at) {
    CachedModel& m = *models[static_cast<size_t>(at)];
    if (m.failure_) continue;
    const Seconds own;
    try {
      work(m, at);
    } catch (...) {
      m.failure_ = std::current_exception();
    }
    m.cache_seconds_ += own.so_far();
  }
  const auto failed = [](const CachedModel* m) { return m->failure_ != nullptr; };
  if (std::all_of(models.begin(), models.end(), failed)) std::rethrow_exception(models.front()->failure_);
  return whole.so_far();
}

void CachedModel::fork(int samples) {
  std::vector<SequenceId> all;
  for (const SequenceId id : ids_) {
    all.push_back(id);
    for (int i = 1; i < samples; ++i) all.push_back(cache_.fork(id));
  }
  ids_ = std::move(all);
  for (std::vector<ConvolutionWindow>& layer : windows_) {
    std::vector<ConvolutionWindow> copies;
    for (const ConvolutionWindow& window : layer)
      copies.insert(copies.end(), static_cast<size_t>(samples), window);
    layer = std::move(copies);
  }
}

void CachedModel::recur(int layer, int64_t n, const float* projected, float* out) {
  const LayerWeights& weights = model_.weights().layers[static_cast<size_t>(layer)];
  const ModelConfig& config = model_.config();
  const std::span<const StepInput> inputs =
      linear_rows_.lay_out(config.linear, weights, ids_, n, projected, windows_[static_cast<size_t>(layer)]);
  {
    const StepParts::Timing timing(Part::kState);
    cache_.step(layer, inputs);
  }
  tell(layer, inputs);
  if (out) linear_rows_.copy_out(config.linear, weights, config.norm_epsilon, projected, out);
}

void CachedModel::attend(int layer, int64_t n, int64_t rows, const float* q, const float* k, const float* v,
                         float* out) {
  const std::span<StepInput> inputs = rows_.lay_out(model_.config(), layer, step_of(ids_, n), rows, q, k, v);
  if (!out) {
    for (StepInput& in : inputs) in.out = nullptr;
    return cache_.step(layer, inputs);
  }
  step_cache(layer, inputs);
  tell(layer, inputs);
  rows_.copy_out(model_.config(), std::ssize(ids_) * n, out);
}

void CachedModel::step_cache(int layer, std::span<const StepInput> inputs) {
  if (inputs.front().n > 1) {  // perhaps in slices, each stored and attended to
    const StepParts::Timing timing(Part::kAttend);
    return cache_.step(layer, inputs);
  }
  {
    const StepParts::Timing timing(Part::kAppend);
    cache_.append(layer, inputs);
  }
  {
    const StepParts::Timing timing(Part::kView);
    cache_.view(layer, inputs);
  }
  const StepParts::Timing timing(Part::kAttend);
  cache_.attend(layer, inputs);
}

}  // namespace kv::model
