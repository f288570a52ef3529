// From a spec to a cache, and to the bytes it will hold.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "variants/cache/cache.h"
#include "variants/core/codec.h"

namespace kv {

// Whether a cache of this spec wants q and k before RoPE, and rotates them itself, by their cache positions
// and shape.rope, when it reads: positions=cache.
bool rotates_at_read(const Spec& spec);
// The same of a built cache, whose layers are alike in this.
bool rotates_at_read(const Cache& cache);

// Throws std::invalid_argument if the shape is not one that caches have, or if the spec's stages cannot work
// together (the reason of unsupported_reason). The memory outlives the cache.
std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory);

// The closed form of what such a cache holds for sequences of these lengths, workspace left out: payload,
// metadata and slack together. Computed from the formats' sizes alone; no allocation is made. `prompts`: the
// tokens of each sequence's first step, where that decides what is kept (snapkv); empty if all grew token by
// token.
int64_t predicted_bytes(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                        std::span<const int64_t> prompts = {});

// K and V values that a sequence of shape.max_tokens keeps, and the bits that store them.
struct StoredValues {
  double values = 0, bits = 0;
};
// The codec's whole units alone, scales and zero points included, of each tier with its own codec. Raw rows of a residual
// buffer count as encoded, and a placement's slack and tables are left out.
StoredValues stored_values(const Spec& spec, const CacheShape& shape);

// Of that, what one state of the spec's selection (one sequence, layer and kv head) holds to choose by.
int64_t selection_bytes(const Spec& spec, const CacheShape& shape);

// The closed form of the workspace that such sequences' rows are copied into by view(); 0 where they are read in place.
int64_t predicted_copies(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths);

// Rows of one head that such a sequence has in the placement: those that are kept, without those that wait in
// the codec's residual buffer. One number, or [kv_heads] where the heads keep different ones.
std::vector<int64_t> placed_rows(const Spec& spec, const CacheShape& shape, int64_t tokens,
                                 int64_t prompt = 0);

// predicted_bytes by tier, and the bytes of files on a disk. Where a placement has one tier, all is hot.
TierBytes predicted_tiers(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                          std::span<const int64_t> prompts = {});

// Of placements with several tiers: what one step of all sequences reads of each. Rows in memory as they are stored;
// of files, whole slots.
TierBytes predicted_reads(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths);

// Bytes of the rows (not the slots) that lie in files, scales and zero points included.
int64_t predicted_disk_rows_bytes(const Spec& spec, const CacheShape& shape,
                                  std::span<const int64_t> lengths);
// Whether a placement has more than one tier. An empty spec, of no cache, has none.
bool has_tiers(const Spec& spec);

// The codecs through which a row passes, in order, as it gets older: the spec's own, then each tier's, where the
// placement gives them their own.
std::vector<Codec> stored_codecs(const Spec& spec);

// attention_error_bound (kernels/attention.h) of the rows that the spec's codecs store, the largest.
double kernel_error_bound(const Spec& spec);

// Why truncation has a limit with this codec, as a clause, or empty if it has none.
std::string_view irreversible(const Codec& codec);

// Why sequences of such a cache cannot share blocks of rows by what is in them, or empty if they can.
std::string unshareable_reason(const Spec& spec);

// Empty if the four stages can work together for some head_dim, else the reason.
std::string unsupported_reason(const Spec& spec);
// The same for one head_dim (codecs of blocks of 32 elements refuse others than multiples of 32), and for a
// cache whose rows lie in the memory of `gpu`; null: the host's.
std::string unsupported_reason(const Spec& spec, int head_dim, const cuda::Gpu* gpu = nullptr);
// The same for a geometry, whose rows may be latent (MLA).
std::string unsupported_reason(const Spec& spec, const CacheShape& shape, const cuda::Gpu* gpu = nullptr);

}  // namespace kv
