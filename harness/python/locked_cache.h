// A cache that is safe for Python's threads: each call takes a lock, checks its arguments, and throws instead of
// undefined behaviour.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/memory/ledger.h"
#include "variants/cache/cache.h"

namespace kv::python {

struct Options {
  int layers = 1, q_heads = 1, kv_heads = 1, head_dim = 64;
  int64_t max_tokens = 0;
  int max_sequences = 1;
  std::vector<int64_t> windows;  // [layers], 0 for a layer without one; empty if no layer has one
  double rope_theta = 10000.0;   // for specs with positions=cache
  bool half_split = true;
  int threads = 0;  // 0: OpenMP's default
};

// A step of one layer for several sequences, of n tokens each.
struct Step {
  std::vector<int> sequences;
  int layer = 0;
  int64_t n = 1;
  const float* q = nullptr;            // [sequences, q_heads, n, head_dim]
  const float* k = nullptr;            // [sequences, kv_heads, n, head_dim]
  const float* v = nullptr;            // likewise
  float* out = nullptr;                // [sequences, q_heads, n, head_dim]
  const float* sink_logits = nullptr;  // [q_heads], or null
  float score_cap = 0.0f;
};

struct HeldBytes {
  int64_t payload, metadata, workspace, disk, peak;
};

// Lack of memory, with one line of text, which std::bad_alloc lacks.
class MemoryShort : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every call throws std::invalid_argument for a caller's mistake and after the cache is closed.
class LockedCache {
 public:
  LockedCache(const std::string& spec, const Options& options);

  int add_sequence();
  int fork(int sequence);
  void release(int sequence);
  void truncate(int sequence, int64_t tokens);
  void append(const Step& step);
  void attend(const Step& step);
  void step(const Step& step);
  void save(int sequence, const std::string& path);
  int load(const std::string& path);
  void close();

  int64_t tokens(int sequence, int layer);
  std::vector<int64_t> kept(int sequence, int layer, int head);
  std::vector<int> sequences();
  HeldBytes bytes();
  std::string kernel();
  bool closed();

  // The spec it was built from, also after closing.
  const std::string& spec() const { return spec_; }
  const Options& options() const { return options_; }
  bool rotates() const { return rotates_; }

 private:
  // Runs `work(cache)` under the lock with the cache's number of threads.
  template <class Work>
  auto locked(Work work);
  void check_sequence(int sequence) const;
  void check_room() const;
  void check_step(Cache& cache, const Step& step, bool adds_tokens) const;
  std::vector<StepInput> inputs_of(const Step& step) const;

  const Options options_;
  std::string spec_;
  bool rotates_ = false;
  std::mutex mutex_;
  memory::Ledger ledger_;  // outlives the cache
  std::unique_ptr<Cache> cache_;
  std::set<int> open_;
};

}  // namespace kv::python
