// Bytes of a cache at a length, twice: by the closed form, and counted while such a cache is filled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "variants/cache/cache.h"

namespace kv::tables {

struct CacheSize {
  Spec spec;
  CacheShape shape;  // max_tokens: pre-allocated length; max_sequences: sequences of `tokens` tokens each
  int64_t tokens;
};

// Payload, metadata and slack. Throws std::invalid_argument where they are beyond any machine.
int64_t bytes_by_form(const CacheSize& size);

// The same by the ledger, of a cache that is filled with `tokens` tokens. Nothing where that would take more
// than `limit_bytes`, or too long.
std::optional<int64_t> bytes_by_ledger(const CacheSize& size, int64_t limit_bytes);

// Calls bytes_by_ledger once a size, since several figures of a table's row are about the same cache.
class CountedBytes {
 public:
  explicit CountedBytes(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  std::optional<int64_t> of(const CacheSize& size);

 private:
  int64_t limit_bytes_;
  std::map<std::string, std::optional<int64_t>> counted_;
};

}  // namespace kv::tables
