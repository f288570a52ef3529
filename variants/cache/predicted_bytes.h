// The closed forms: bytes and rows that a spec's cache will hold, computed without allocating anything.
#pragma once

#include <span>
#include <vector>

#include "variants/cache/cache.h"

namespace kv {

// Bytes that such a cache holds for sequences of these lengths: payload, metadata and slack together, workspace left
// out. `prompts`: the tokens of each sequence's first step, where they decide which rows are kept (snapkv); empty if all
// sequences grew token by token.
int64_t predicted_bytes(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                        std::span<const int64_t> prompts = {});

// K and V values that a sequence of shape.max_tokens keeps, and the bits that store them.
struct StoredValues {
  double values = 0, bits = 0;
};
// The codec's whole units alone, scales and zero points included. Raw rows of a residual buffer count as encoded, and a
// placement's slack and tables are left out.
StoredValues stored_values(const Spec& spec, const CacheShape& shape);

// Bytes of one state (sequence, layer and kv head) of the spec's selection, included in predicted_bytes().
int64_t selection_bytes(const Spec& spec, const CacheShape& shape);

// Workspace that view() copies such sequences' rows into; 0 where they are read in place.
int64_t predicted_copies(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths);

// Rows of one head that such a sequence has in the placement: the kept rows without those that wait in the codec's
// residual buffer. One number, or [kv_heads] where the heads keep different numbers.
std::vector<int64_t> placed_rows(const Spec& spec, const CacheShape& shape, int64_t tokens,
                                 int64_t prompt = 0);

// The steps of a sequence, and its queries that count: those of tokens [first, length).
struct Queries {
  int64_t length = 0, first = 0;
  int64_t prompt = 0, step = 1;  // tokens of the first step (0: the same as all others) and of the others

  // Those of a longer sequence, whose other tokens come in front; the same where it is no longer.
  Queries in(int64_t context) const;
};
// Shares of the rows that a full cache's query reads, the mean over queries and heads. `encoded`: read as the codec stores them,
// not raw. `dropped`: not read, as they are gone or not selected.
struct RowShares {
  double encoded = 0, dropped = 0;
};
// `full`: the spec of a full cache of the same layers, which a model's own window cuts too.
RowShares row_shares(const Spec& spec, const Spec& full, const CacheShape& shape, const Queries& queries);

// predicted_bytes() by tier, and the bytes of files on a disk. All bytes are hot where a placement has one tier.
TierBytes predicted_tiers(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                          std::span<const int64_t> prompts = {});

// Bytes that one step of all sequences reads of each tier: rows in memory as they are stored, whole slots of files.
TierBytes predicted_reads(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths);

// Bytes of the rows (not the slots) that lie in files, scales and zero points included.
int64_t predicted_disk_rows_bytes(const Spec& spec, const CacheShape& shape,
                                  std::span<const int64_t> lengths);

}  // namespace kv
