// Texts of Python's help() for a cache.
#pragma once

namespace kv::python {

inline constexpr const char* kCacheDoc = R"(A KV cache, built from a spec (`kvlab list` describes them).

Arrays are contiguous, in the CPU's memory: NumPy's, or any with __dlpack__ (PyTorch, JAX). float32 is read and written in place;
float16 and bfloat16 are widened to it, which is exact, and results are always float32. With a list as `sequence`, all arrays have one more dimension in front, one entry a sequence.

Threads may share a cache: its calls run one at a time and release Python's own lock.
Errors: TypeError for any other array; ValueError for a wrong shape, a layout that is not contiguous, a GPU's array,
an invalid spec or number, and a closed cache; MemoryError if memory is short, which leaves the cache unchanged.)";

inline constexpr const char* kInitDoc =
    R"(spec: "placement/codec/retention/selection", as in "paged(block=16)/q8_0"; layers may differ:
  "contiguous/f16 + 0-1:contiguous + sliding:contiguous/q8_0".
layers, q_heads, kv_heads, head_dim: the geometry; head_dim is a multiple of 8, q_heads one of kv_heads.
max_tokens: the most tokens of a sequence; placements that reserve ahead reserve this many.
max_sequences: the most sequences at once.
windows: for each layer the number of newest tokens that it sees, 0 for all; without it no layer has a window.
rope_theta, rope_half_split: rotation of q and k with positions=cache; else unused.
threads: 0 for OpenMP's default.)";

inline constexpr const char* kCloseDoc =
    "Releases all memory; any other call then raises ValueError. May be called again.";
inline constexpr const char* kAddSequenceDoc = "A new empty sequence; returns its number.";
inline constexpr const char* kForkDoc =
    "A sequence with the same contents that diverges from here on; shares memory if the placement can. "
    "Returns its number.";
inline constexpr const char* kReleaseDoc = "Drops a sequence and releases its memory.";
inline constexpr const char* kTruncateDoc =
    "Forgets all but the first `tokens` tokens of every layer, bit for bit as if the later ones had never "
    "come. ValueError, with the reason, where later tokens have overwritten earlier ones.";
inline constexpr const char* kAppendDoc = R"(Stores n tokens of one layer.

k, v: [kv_heads, n, head_dim], k after RoPE (before it with positions=cache).
ValueError where some of the n tokens must attend before the others are stored (retentions that evict): use step().)";
inline constexpr const char* kAttendDoc =
    R"(softmax(q k^T / sqrt(head_dim)) v over the kept tokens, for the newest n tokens.

q: [q_heads, n, head_dim]. Causal inside the n tokens, which append() stored last.
out: array for the result, of q's shape; default: a new NumPy array. Returned.
score_cap: a score s becomes cap * tanh(s / cap); 0: it stays.)";
inline constexpr const char* kStepDoc =
    R"(append() and attend() in one, with any retention: each token is stored, then attends to
the kept tokens up to it.

q: [q_heads, n, head_dim]; k, v: [kv_heads, n, head_dim]; out: as in attend().
sink_logits: [q_heads], a score that takes part in each softmax without a value (gpt-oss).)";
inline constexpr const char* kSaveDoc =
    "Writes a sequence to a file, in bytes proportional to its kept tokens. RuntimeError if the file cannot "
    "be written whole; then there is none.";
inline constexpr const char* kLoadDoc =
    "A new sequence, bit for bit the one that save() wrote from a cache of the same spec and geometry. "
    "Returns its number. ValueError for a file that is damaged or of another spec.";
inline constexpr const char* kTokensDoc = "Tokens that a layer of a sequence was given, kept or not.";
inline constexpr const char* kKeptDoc =
    "The token that each kept row holds, in the order of the rows: [kept] int64. Heads may differ where a "
    "retention scores tokens.";
inline constexpr const char* kBytesDoc =
    "Bytes held now, as the allocator counted them: payload (encoded K and V), metadata (scales, block "
    "tables, scores), workspace, disk; and peak, the most of the memory together so far.";
inline constexpr const char* kKernelDoc =
    "The attention kernel that runs for this cache, as in \"avx3/f16\".";

}  // namespace kv::python
