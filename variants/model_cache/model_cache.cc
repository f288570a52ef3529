#include "variants/model_cache/model_cache.h"

#include <algorithm>
#include <stdexcept>

#include "variants/model_cache/resolve.h"

namespace kv {
namespace {

constexpr size_t kMostSpecText = 1 << 16;  // bytes

}  // namespace

ModelCache::ModelCache(const std::vector<LayerGroup>& groups, const ModelShape& shape, Memory& memory)
    : shape_(shape), memory_(memory), places_(static_cast<size_t>(shape.layers)) {
  for (const ModelLayer& layer : shape.kinds) {
    if (!kv::keeps_rows(layer) && !is_linear(layer))
      throw std::invalid_argument("there is no cache of layers of kind '" + layer.kind + "'");
  }
  for (const LayerGroup& group : groups) {
    for (size_t i = 0; i < group.layers.size(); ++i)
      places_[static_cast<size_t>(group.layers[i])] = {caches_.size(), static_cast<int>(i), false};
    const CacheShape own = shape_of(group, shape);
    if (group.linear) {
      caches_.push_back(build_linear_cache(shape.linear, own, memory));
    } else {
      caches_.push_back(build_cache(group.spec, own, memory));
    }
  }
  for (size_t i = 0; i < shape.kinds.size(); ++i) {
    if (shape.kinds[i].shares < 0) continue;
    places_[i] = at(shape.kinds[i].shares);
    places_[i].shares = true;
  }
}

template <class Make>
SequenceId ModelCache::in_all(Make make) {
  std::vector<SequenceId> ids;
  try {
    for (const auto& cache : caches_) {
      ids.push_back(make(*cache));
      if (ids.back() != ids.front()) throw std::logic_error("a sequence has two numbers");
    }
    return ids.front();
  } catch (...) {
    for (size_t i = 0; i < ids.size(); ++i) caches_[i]->release(ids[i]);
    throw;
  }
}

SequenceId ModelCache::add_sequence() {
  return in_all([](Cache& cache) { return cache.add_sequence(); });
}

SequenceId ModelCache::fork(SequenceId from) {
  return in_all([&](Cache& cache) { return cache.fork(from); });
}

void ModelCache::release(SequenceId id) {
  for (const auto& cache : caches_) cache->release(id);
}

std::string ModelCache::refuses_truncation(SequenceId id, int64_t tokens) const {
  for (const auto& cache : caches_) {
    if (std::string reason = cache->refuses_truncation(id, tokens); !reason.empty()) return reason;
  }
  return "";
}

std::function<void()> ModelCache::prepare_truncation(SequenceId id, int64_t tokens) {
  std::vector<std::function<void()>> parts;
  for (const auto& cache : caches_) parts.push_back(cache->prepare_truncation(id, tokens));
  return [parts = std::move(parts)] {
    for (const auto& truncate : parts) truncate();
  };
}

std::string ModelCache::refuses_sharing() const {
  for (const auto& cache : caches_) {
    if (std::string reason = cache->refuses_sharing(); !reason.empty()) return reason;
    if (cache->block_tokens() != block_tokens())
      return "layers have blocks of " + std::to_string(block_tokens()) + " and of " +
             std::to_string(cache->block_tokens()) + " tokens";
  }
  return "";
}

SharedBlock ModelCache::hold(SequenceId id, int64_t block) {
  auto groups = std::make_shared<std::vector<SharedBlock>>();
  for (const auto& cache : caches_) groups->push_back(cache->hold(id, block));
  return groups;
}

SequenceId ModelCache::adopt(std::span<const SharedBlock> prefix) {
  size_t group = 0;
  return in_all([&](Cache& cache) {
    std::vector<SharedBlock> own;
    for (const SharedBlock& block : prefix)
      own.push_back(static_cast<const std::vector<SharedBlock>*>(block.get())->at(group));
    ++group;
    return cache.adopt(own);
  });
}

int64_t ModelCache::blocks_in_use() const {
  int64_t blocks = 0;
  for (const auto& cache : caches_) blocks += cache->blocks_in_use();
  return blocks;
}

int64_t ModelCache::compact() {
  int64_t moved = 0;
  for (const auto& cache : caches_) moved += cache->compact();
  return moved;
}

// Each cache's bytes say what it is; this, which layers it is of.
std::string ModelCache::identity() const {
  std::string text = "layers of groups";
  for (const Place& place : places_)
    text += " " + std::to_string(place.group) + (place.shares ? " shared" : "");
  return text;
}

void ModelCache::write(Writer& to, SequenceId id) const {
  to.put_text(identity());
  for (const auto& cache : caches_) cache->write(to, id);
}

SequenceId ModelCache::read(Reader& from, const std::string& what) {
  std::string written;
  try {
    written = from.get_text(kMostSpecText);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("cannot load " + what + ": " + e.what());
  }
  if (written != identity())
    throw std::invalid_argument("cannot load " + what +
                                ": it holds a sequence of other layers than this cache's");
  return in_all([&](Cache& cache) { return cache.read(from, what); });
}

void ModelCache::append(int layer, std::span<const StepInput> inputs) {
  if (!at(layer).shares) of(layer).append(at(layer).layer, inputs);
}

void ModelCache::step(int layer, std::span<const StepInput> inputs) {
  if (!at(layer).shares) return of(layer).step(at(layer).layer, inputs);
  std::vector<StepInput> wanted;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(wanted),
               [](const StepInput& in) { return in.out != nullptr; });
  if (!wanted.empty()) attend(layer, wanted);
}

std::string ModelCache::kernel() const {
  std::vector<std::string> names;
  for (const auto& cache : caches_) {
    const std::string name = cache->kernel();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " + ") + name;
  return all;
}

}  // namespace kv
