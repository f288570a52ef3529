// The K and V rows that outputs are compared over: as they came, and as a cache stored them.
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

// All tokens of some kv heads as they came, read in chunks since a whole sequence of all heads may not fit.
std::vector<HeadRows> read_heads(const workload::Workload& workload, int sequence, int layer, int64_t tokens,
                                 const std::vector<bool>& wanted);

HeadRows pick(const HeadRows& all, std::span<const int64_t> tokens, int head_dim);

// In slot order, decoded.
HeadRows decoded_rows(Cache& cache, SequenceId id, int layer, int kv_head);
// The same, rotated back where the codec rotates.
HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int kv_head);

// rows [.., head_dim], whole units of the encoding, as they come back from it.
std::vector<float> through_codec(const Encoding& encoding, int head_dim, const std::vector<float>& rows);

// rows [.., head_dim] of one side of a codec, as attention over the stored ones sees them: rotated before they are
// encoded and back, where the codec does that.
std::vector<float> as_stored(const Codec& codec, const Encoding& side, int head_dim, std::vector<float> rows);

// Which row that is stored is not, to the bit, what the codec makes of the token that the cache says is there: "V of
// token 3 is not as q8_0 stores it". Empty if all are. `all` are the head's tokens as they came.
std::string misplaced_row(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all);

bool all_finite(const HeadRows& rows);

// Which value the codec could not hold, where a row is stored as infinities or NaN: "V of token 3 reaches 70000, but
// f16 holds only magnitudes below 65520". Empty if no value is to blame. `all` are the head's tokens as they came.
std::string overflow_of(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all);

// What a prompt's last query saw, where the retention cuts the prompt at the end of its step: a cache of the same
// spec that is given one sequence's layer, as its layer 0 and sequence 0, token by token, so that nothing of it is
// a prompt. Rows are encoded one by one there, so they are stored as they were.
std::unique_ptr<Cache> before_the_cut(const Cache& cache, const workload::Workload& workload, int sequence,
                                      int layer, int64_t tokens, memory::Ledger& ledger);

}  // namespace kv::verify
