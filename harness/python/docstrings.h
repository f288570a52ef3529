// Texts of Python's help() for a cache.
#pragma once

namespace kv::python {

inline constexpr const char* kCacheDoc = R"(A KV cache, made from a spec as `kvlab list` describes it.

Arrays are float32, contiguous, in the CPU's memory: NumPy's, or any with __dlpack__ (PyTorch, JAX). They are read and written
where they lie. With `sequence` a list, all arrays have one more dimension in front, one entry a sequence.

Threads may share a cache: calls take turns, and Python's own lock is free while one works.
Errors: TypeError for what is no float32 array; ValueError for a wrong shape, a layout that is not contiguous, a GPU's array, a
spec or number that cannot be, and a closed cache; MemoryError where memory is short, and then nothing has changed.)";

inline constexpr const char* kInitDoc =
    R"(spec: "placement/codec/retention/selection", as in "paged(block=16)/q8_0"; layers may differ:
  "contiguous/f16 + 0-1:contiguous + sliding:contiguous/q8_0".
layers, q_heads, kv_heads, head_dim: the geometry; head_dim is a multiple of 8, q_heads one of kv_heads.
max_tokens: the most tokens that a sequence will get; placements that reserve ahead reserve so many.
max_sequences: the most sequences at once.
windows: for each layer the newest tokens that it sees, 0 for all of them; without it no layer has a window.
rope_theta, rope_half_split: how q and k are rotated with positions=cache; else of no meaning.
threads: 0 for as many as OpenMP takes.)";

inline constexpr const char* kCloseDoc =
    "Gives all memory back; any other call then raises ValueError. May be called again.";
inline constexpr const char* kAddSequenceDoc = "A new empty sequence; returns its number.";
inline constexpr const char* kForkDoc =
    "A sequence with the same contents that grows apart from here on; shares memory where the placement can. "
    "Returns its number.";
inline constexpr const char* kReleaseDoc = "Forgets a sequence and gives its memory back.";
inline constexpr const char* kTruncateDoc =
    "Forgets all but the first `tokens` tokens of every layer, bit for bit as if the later ones had never "
    "come. ValueError, with "
    "the reason, where later tokens have overwritten earlier ones.";
inline constexpr const char* kAppendDoc = R"(Stores n tokens of one layer.

k, v: [kv_heads, n, head_dim], k after RoPE (before it with positions=cache).
ValueError where some of the n tokens must attend before the others are stored (retentions that evict): use step().)";
inline constexpr const char* kAttendDoc =
    R"(softmax(q k^T / sqrt(head_dim)) v over what is kept, for the newest n tokens.

q: [q_heads, n, head_dim]. Causal inside the n tokens, which append() stored last.
out: where the result goes, of q's shape; a new NumPy array where it is left out. Returned.
score_cap: a score s becomes cap * tanh(s / cap); 0: it stays.)";
inline constexpr const char* kStepDoc =
    R"(append() and attend() in one, with any retention: each token is stored, then attends to
what is kept of the tokens up to it.

q: [q_heads, n, head_dim]; k, v: [kv_heads, n, head_dim]; out: as in attend().
sink_logits: [q_heads], a score that takes part in each softmax without a value (gpt-oss).)";
inline constexpr const char* kSaveDoc =
    "Writes a sequence to a file, in bytes proportional to what is kept. RuntimeError where the file cannot "
    "be written whole; there "
    "is none then.";
inline constexpr const char* kLoadDoc =
    "A new sequence, bit for bit the one that save() wrote from a cache of the same spec and geometry. "
    "Returns its number. ValueError "
    "for a file that is damaged or of another spec.";
inline constexpr const char* kTokensDoc = "Tokens that a layer of a sequence was given, kept or not.";
inline constexpr const char* kKeptDoc =
    "The token that each kept row holds, in the order of the rows: [kept] int64. Heads may differ where a "
    "retention scores tokens.";
inline constexpr const char* kBytesDoc =
    "Bytes held now, as the allocator counted them: payload (encoded K and V), metadata (scales, block "
    "tables, scores), workspace, "
    "disk; and peak, the most of the memory together so far.";
inline constexpr const char* kKernelDoc =
    "The attention kernel that runs for this cache, as in \"avx3/f16\".";

}  // namespace kv::python
