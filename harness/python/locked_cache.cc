#include "harness/python/locked_cache.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>

#include "harness/memory/machine.h"
#include "harness/memory/run_context.h"
#include "variants/model_cache/layer_groups.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::python {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string within(const char* what, int64_t value, int64_t end) {
  return std::string(what) + " " + std::to_string(value) + " is none: there are 0 to " +
         std::to_string(end - 1);
}

struct Range {
  const char* name;
  int64_t value, least, most;
};

// Sizes are products of these; larger values would overflow 64 bits, or make objects until the memory is full.
void check_sizes(const Options& o) {
  for (const Range& r :
       {Range{"layers", o.layers, 1, 1024}, Range{"q_heads", o.q_heads, 1, 4096},
        Range{"kv_heads", o.kv_heads, 1, 4096}, Range{"max_sequences", o.max_sequences, 1, 65536},
        Range{"threads", o.threads, 0, 4096}}) {
    if (r.value < r.least || r.value > r.most)
      refuse(std::string(r.name) + " must be from " + std::to_string(r.least) + " to " +
             std::to_string(r.most) + ", not " + std::to_string(r.value));
  }
  if (!(o.rope_theta > 0.0 && std::isfinite(o.rope_theta)))
    refuse("rope_theta must be a positive number, not " + std::to_string(o.rope_theta));
  constexpr double kMostNumbers = 1e15;
  const double numbers = double(o.layers) * o.q_heads * o.head_dim * double(o.max_tokens) * o.max_sequences;
  if (numbers > kMostNumbers)
    refuse("layers * q_heads * head_dim * max_tokens * max_sequences is above 1e15: no machine holds that");
}

ModelShape shape_of(const Options& o) {
  check_sizes(o);
  CacheShape shape{.layers = o.layers,
                   .q_heads = o.q_heads,
                   .kv_heads = o.kv_heads,
                   .head_dim = o.head_dim,
                   .max_tokens = o.max_tokens,
                   .max_sequences = o.max_sequences};
  shape.rope.theta = o.rope_theta;
  shape.rope.pairs = o.half_split ? RopePairs::kHalfSplit : RopePairs::kInterleaved;
  if (!o.windows.empty() && std::ssize(o.windows) != o.layers)
    refuse("windows has " + std::to_string(o.windows.size()) + " entries; one for each of " +
           std::to_string(o.layers) + " layers is needed");
  std::vector<ModelLayer> kinds;
  for (const int64_t window : o.windows) {
    if (window < 0) refuse("a window of " + std::to_string(window) + " tokens cannot be; 0 is for none");
    kinds.push_back({.kind = window > 0 ? "sliding" : "full", .window = window});
  }
  return {shape, std::move(kinds)};
}

}  // namespace

LockedCache::LockedCache(const std::string& spec, const Options& options)
    : options_(options), ledger_(memory::total_memory_bytes()) {
  memory::require_stack();
  const LayerSpecs specs = parse_layer_specs(spec);
  spec_ = specs.print();
  rotates_ = rotates_at_read(specs);
  const ModelShape shape = shape_of(options);
  try {
    cache_ = build_cache(specs, shape, ledger_);
  } catch (const std::bad_alloc&) {
    throw MemoryShort("'" + spec_ + "' needs more memory than this machine's " +
                      std::to_string(ledger_.limit_bytes()) +
                      " bytes; give fewer max_tokens or max_sequences");
  }
}

template <class Work>
auto LockedCache::locked(Work work) {
  const std::lock_guard lock(mutex_);
  if (!cache_) refuse("the cache is closed");
  std::optional<memory::ThreadCount> threads;
  if (options_.threads > 0) threads.emplace(options_.threads);
  try {
    return work(*cache_);
  } catch (const OutOfBlocks&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw MemoryShort("memory is short: the cache holds " +
                      std::to_string(ledger_.payload().current_bytes + ledger_.metadata().current_bytes) +
                      " bytes, and nothing has changed");
  }
}

void LockedCache::check_sequence(int sequence) const {
  if (open_.contains(sequence)) return;
  std::string known;
  for (const int id : open_) known += (known.empty() ? "" : ", ") + std::to_string(id);
  refuse("no sequence " + std::to_string(sequence) + "; " +
         (known.empty() ? "add_sequence() makes one" : "there are: " + known));
}

void LockedCache::check_room() const {
  if (std::ssize(open_) >= options_.max_sequences)
    refuse("the cache has all of its max_sequences = " + std::to_string(options_.max_sequences) +
           " sequences; release() one");
}

void LockedCache::check_step(Cache& cache, const Step& step, bool adds_tokens) const {
  if (step.layer < 0 || step.layer >= options_.layers) refuse(within("layer", step.layer, options_.layers));
  if (!(step.score_cap >= 0.0f && std::isfinite(step.score_cap)))
    refuse("score_cap must be a positive number, or 0 for none, not " + std::to_string(step.score_cap));
  std::set<int> seen;
  for (const int sequence : step.sequences) {
    check_sequence(sequence);
    if (!seen.insert(sequence).second) refuse("sequence " + std::to_string(sequence) + " is given twice");
    const int64_t tokens = cache.tokens(sequence, step.layer);
    const std::string whose =
        "sequence " + std::to_string(sequence) + " has " + std::to_string(tokens) + " tokens in layer ";
    if (adds_tokens && step.n > options_.max_tokens - tokens)
      refuse(whose + std::to_string(step.layer) + "; " + std::to_string(step.n) +
             " more are past max_tokens = " + std::to_string(options_.max_tokens));
    // A step's queries are its newest tokens; evicted or removed tokens cannot query.
    if (!adds_tokens && step.n > std::ssize(cache.kept(sequence, step.layer, 0)))
      refuse(whose + std::to_string(step.layer) + " and keeps fewer than the " + std::to_string(step.n) +
             " that q asks for; append them first, or use step()");
  }
}

std::vector<StepInput> LockedCache::inputs_of(const Step& step) const {
  const int64_t queries = int64_t{options_.q_heads} * step.n * options_.head_dim;
  const int64_t rows = int64_t{options_.kv_heads} * step.n * options_.head_dim;
  const auto at = [](auto* base, int64_t offset) { return base ? base + offset : nullptr; };
  std::vector<StepInput> inputs;
  for (int64_t i = 0; i < std::ssize(step.sequences); ++i) {
    inputs.push_back({.sequence = step.sequences[static_cast<size_t>(i)],
                      .n = step.n,
                      .q = at(step.q, i * queries),
                      .k = at(step.k, i * rows),
                      .v = at(step.v, i * rows),
                      .out = at(step.out, i * queries),
                      .sink_logits = step.sink_logits,
                      .score_cap = step.score_cap});
  }
  return inputs;
}

int LockedCache::add_sequence() {
  return locked([&](Cache& cache) {
    check_room();
    return *open_.insert(cache.add_sequence()).first;
  });
}

int LockedCache::fork(int sequence) {
  return locked([&](Cache& cache) {
    check_sequence(sequence);
    check_room();
    return *open_.insert(cache.fork(sequence)).first;
  });
}

void LockedCache::release(int sequence) {
  locked([&](Cache& cache) {
    check_sequence(sequence);
    cache.release(sequence);
    open_.erase(sequence);
  });
}

void LockedCache::truncate(int sequence, int64_t tokens) {
  locked([&](Cache& cache) {
    check_sequence(sequence);
    cache.truncate(sequence, tokens);
  });
}

void LockedCache::append(const Step& step) {
  locked([&](Cache& cache) {
    check_step(cache, step, true);
    try {
      cache.append(step.layer, inputs_of(step));
    } catch (const std::logic_error& error) {
      refuse(error.what());
    }
  });
}

void LockedCache::attend(const Step& step) {
  locked([&](Cache& cache) {
    check_step(cache, step, false);
    const std::vector<StepInput> inputs = inputs_of(step);
    try {
      cache.view(step.layer,
                 inputs);  // attend() alone would use the previous call's view, perhaps of other sequences
      cache.attend(step.layer, inputs);
    } catch (const std::logic_error& error) {
      refuse(error.what());
    }
  });
}

void LockedCache::step(const Step& step) {
  locked([&](Cache& cache) {
    check_step(cache, step, true);
    cache.step(step.layer, inputs_of(step));
  });
}

void LockedCache::save(int sequence, const std::string& path) {
  locked([&](Cache& cache) {
    check_sequence(sequence);
    cache.save(sequence, path);
  });
}

int LockedCache::load(const std::string& path) {
  return locked([&](Cache& cache) {
    check_room();
    return *open_.insert(cache.load(path)).first;
  });
}

void LockedCache::close() {
  const std::lock_guard lock(mutex_);
  cache_.reset();
  open_.clear();
}

int64_t LockedCache::tokens(int sequence, int layer) {
  return locked([&](Cache& cache) {
    check_sequence(sequence);
    if (layer < 0 || layer >= options_.layers) refuse(within("layer", layer, options_.layers));
    return cache.tokens(sequence, layer);
  });
}

std::vector<int64_t> LockedCache::kept(int sequence, int layer, int head) {
  return locked([&](Cache& cache) {
    check_sequence(sequence);
    if (layer < 0 || layer >= options_.layers) refuse(within("layer", layer, options_.layers));
    if (head < 0 || head >= options_.kv_heads) refuse(within("kv_head", head, options_.kv_heads));
    return cache.kept(sequence, layer, head);
  });
}

std::vector<int> LockedCache::sequences() {
  return locked([&](Cache&) { return std::vector<int>(open_.begin(), open_.end()); });
}

HeldBytes LockedCache::bytes() {
  return locked([&](Cache&) {
    return HeldBytes{ledger_.payload().current_bytes, ledger_.metadata().current_bytes,
                     ledger_.workspace().current_bytes, ledger_.disk().current_bytes,
                     ledger_.peak_total_bytes()};
  });
}

std::string LockedCache::kernel() {
  return locked([](Cache& cache) { return cache.kernel(); });
}

bool LockedCache::closed() {
  const std::lock_guard lock(mutex_);
  return !cache_;
}

}  // namespace kv::python
