// Facts that follow from a spec alone, and why stages do not work together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "variants/cache/cache.h"
#include "variants/core/codec.h"

namespace kv {

// True where the cache takes q and k before RoPE and rotates them when it reads, by their cache positions and
// shape.rope: positions=cache.
bool rotates_at_read(const Spec& spec);
// All layers of a cache agree.
bool rotates_at_read(const Cache& cache);

// The placement's tiers, if it has more than one. An empty spec, of no cache, has none.
std::optional<TierSettings> tier_settings(const Spec& spec);
bool has_tiers(const Spec& spec);

// The pool of a placement whose sequences share one.
std::optional<PoolSettings> pool_settings(const Spec& spec);
// The same spec with a pool of so many blocks.
Spec with_pool(Spec spec, int64_t blocks);

// The users' functions that caches of the spec call; nothing of them is timed.
std::vector<std::string> functions_of(const Spec& spec);

// The attention_error_bound (kernels/attention.h) of the rows that the spec's codec stores.
double kernel_error_bound(const Spec& spec);

// Why truncation has a limit with this codec, as a clause; empty if it has none.
std::string_view irreversible(const Codec& codec);

// Why sequences of such a cache cannot share blocks of equal rows; empty if they can.
std::string unshareable_reason(const Spec& spec);

// Why the four stages do not work together, for any head_dim; empty if they do.
std::string unsupported_reason(const Spec& spec);
// The same for one head_dim (codecs of blocks of 32 elements refuse others than multiples of 32), and for a cache whose
// rows lie in the memory of `gpu`; null: the host's.
std::string unsupported_reason(const Spec& spec, int head_dim, const cuda::Gpu* gpu = nullptr);
// The same for a geometry, whose rows may be latent (MLA).
std::string unsupported_reason(const Spec& spec, const CacheShape& shape, const cuda::Gpu* gpu = nullptr);

}  // namespace kv
