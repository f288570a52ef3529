// The K and V rows that outputs are compared over: as the workload gives them, and as a cache stores them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/memory/ledger.h"
#include "harness/workload/workload.h"
#include "variants/cache/cache.h"
#include "variants/core/codec.h"

namespace kv::verify {

// Rows of one head, [rows, head_dim].
struct HeadRows {
  std::vector<float> k, v;
};

// All tokens of some KV heads from the workload, read in chunks since a whole sequence of all heads may not fit.
std::vector<HeadRows> read_heads(const workload::Workload& workload, int sequence, int layer, int64_t tokens,
                                 const std::vector<bool>& wanted);

// One token of rows [heads, tokens, width].
std::vector<float> token_of(const float* rows, int64_t heads, int64_t tokens, int64_t token, int64_t width);
HeadRows pick(const HeadRows& all, std::span<const int64_t> tokens, int head_dim);

// Undoes what a cache does to rows [.., head_dim] before it encodes them.
void rotate_back(Rotation rotation, int head_dim, std::vector<float>& rows);
// Decoded rows in slot order.
HeadRows decoded_rows(Cache& cache, SequenceId id, int layer, int kv_head);
// Decoded rows, rotated back if the codec rotates.
HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int kv_head);

// Encodes and decodes rows [.., head_dim], whole units of the encoding. `tables`: learned codebooks (Side::meta), or null.
std::vector<float> through_codec(const Encoding& encoding, int head_dim, const std::vector<float>& rows,
                                 const std::byte* tables = nullptr);

// The rows of a sequence's first tokens on, [heads, tokens, head_dim] of K or V, as attention sees them once stored: rotated
// before encoding and back after, and those that the codec keeps raw as they are raw.
std::vector<float> as_stored(const Codec& codec, bool is_v, int heads, int head_dim, std::vector<float> rows);
// Rows [.., head_dim] as attention sees them while they wait to be encoded.
std::vector<float> as_waiting(const Codec& codec, bool is_v, int head_dim, std::vector<float> rows);

// Names the first stored row that differs, in any bit, from the codec's encoding of the token that the cache reports:
// "V of token 3 is not as q8_0 stores it". Empty if none does. `all`: the head's tokens before encoding.
std::string misplaced_row(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all);

bool all_finite(const HeadRows& rows);

// Names the value that the codec could not hold if a row is stored as infinities or NaN: "V of token 3 reaches 70000,
// but f16 holds only magnitudes below 65520". Empty if no value is to blame. `all`: the head's tokens before
// encoding.
std::string overflow_of(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all);

// The rows that a prompt's last query saw, for a retention that cuts the prompt at the end of its step: a cache of
// the same spec, fed one sequence's layer token by token as its layer 0 and sequence 0, so that nothing counts as a
// prompt. Rows are encoded one by one there and stored alike.
std::unique_ptr<Cache> before_the_cut(const Cache& cache, const workload::Workload& workload, int sequence,
                                      int layer, int64_t tokens, memory::Ledger& ledger);

// Checks that a codec is as exact as it states over rows of N(0,1): a workload's rows have no such limit, since one large
// channel may cost all others their bits. Returns the codec's broken statement, or empty if all hold, as they do for head_dim 32…512.
std::string codec_failure(const Codec& codec, int head_dim);

}  // namespace kv::verify
