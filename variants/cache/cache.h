// A built KV cache: what a spec string turns into, and all that the driver ever calls.
//
// Retention says which slot a token gets, placement says where that slot lives, codec says which bits are
// stored there, selection says which slots a query reads. Cache joins the four over a storage
// (variants/storage/storage.h); attention then reads spans.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/span.h"
#include "variants/cache/spec.h"
#include "variants/core/memory.h"
#include "variants/core/placement.h"
#include "variants/core/rope.h"
#include "variants/core/snapshot.h"

namespace kv {

// The geometry of one cache.
struct CacheShape {
  int layers = 1;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 64;  // a multiple of 8
  // Most tokens that a sequence will be given; pre-allocating placements reserve this many.
  int64_t max_tokens = 1024;
  int max_sequences = 1;  // most sequences alive at once; pools are sized by it
  Rope rope{};            // for positions=cache: how keys and queries are rotated
  // MLA (arXiv:2405.04434): 0, or V is the first so many values of K's row, which is stored once: the latent,
  // before the rope part of the row. kv_heads is 1 then, `v` of a step is not looked at, and outputs have so
  // many values.
  int value_dim = 0;
  // The model's numbers of the layers, ascending, where the cache is of some alone; empty: all, in their order.
  std::vector<int> model_layers = {};
  bool is_latent() const { return value_dim > 0; }
  int out_dim() const { return is_latent() ? value_dim : head_dim; }
  int group() const { return q_heads / kv_heads; }
};

using SequenceId = int;

// One sequence's part of a step of one layer: n new tokens.
struct StepInput {
  SequenceId sequence = 0;
  int64_t n = 1;
  const float* q =
      nullptr;  // [q_heads, n, head_dim], after RoPE; before it where the spec has positions=cache
  const float* k = nullptr;  // [kv_heads, n, head_dim], likewise
  const float* v = nullptr;  // [kv_heads, n, head_dim]; of latent rows not looked at
  float* out = nullptr;      // [q_heads, n, out_dim]
  // The same as in HeadQueries (kernels/attention.h). Not on a GPU, whose attend throws std::invalid_argument.
  const float* sink_logits = nullptr;  // [q_heads], or null
  float score_cap = 0.0f;
  // Linear layers alone (variants/model_cache/linear_cache.h has the shapes).
  const float* alpha = nullptr;
  const float* beta = nullptr;
};

class Cache {
 public:
  virtual ~Cache() = default;

  virtual const CacheShape& shape() const = 0;
  // False for a linear layer of a model: it has a state of constant size in place of rows, no spec and no spans.
  virtual bool keeps_rows(int /*layer*/) const { return true; }
  // The spec of one layer: caches of models have several (variants/model_cache). Throws std::logic_error for a layer
  // without one.
  virtual const Spec& spec(int layer) const = 0;

  // A new empty sequence. Throws std::bad_alloc (or OutOfBlocks, a kind of it) and changes nothing when
  // memory is short.
  virtual SequenceId add_sequence() = 0;
  // A sequence with the same contents that grows apart from here on; shares storage where the placement can.
  virtual SequenceId fork(SequenceId from) = 0;
  virtual void release(SequenceId sequence) = 0;

  // Forgets all but the first `tokens` tokens of every layer, as to undo a draft: the sequence is then, bit for
  // bit, as if the later ones had never come. A layer that has no more stays as it is. Throws
  // std::invalid_argument with the reason where refuses_truncation() has one, and std::bad_alloc or
  // std::runtime_error where rows have to come back from a slower memory and cannot; then nothing has changed.
  void truncate(SequenceId sequence, int64_t tokens);
  // The capability: why not, as where later tokens have overwritten earlier ones, or empty if it can be.
  virtual std::string refuses_truncation(SequenceId sequence, int64_t tokens) const = 0;
  // truncate() in two parts, for caches made of others: the call that is returned cannot fail, and before it nothing
  // changes. The sequence must not change in between.
  virtual std::function<void()> prepare_truncation(SequenceId sequence, int64_t tokens) = 0;

  // Blocks that sequences share by content (variants/cache/prefix_cache.h):
  //   refuses_sharing  the capability: why there are none, or empty
  //   block_tokens     tokens of a block
  //   hold             keeps a block of a sequence, of which all layers have all tokens, when the sequence goes
  //   adopt            a new sequence that begins with these blocks; throws as add_sequence does
  virtual std::string refuses_sharing() const { return "this cache has no blocks of rows"; }
  virtual int64_t block_tokens() const { return 0; }
  virtual SharedBlock hold(SequenceId, int64_t /*block*/) { throw std::logic_error(refuses_sharing()); }
  virtual SequenceId adopt(std::span<const SharedBlock>) { throw std::logic_error(refuses_sharing()); }

  // Blocks that are taken of a pool, all layers together; 0 without one.
  virtual int64_t blocks_in_use() const { return 0; }

  // Closes the gaps that released sequences have left in shared memory, so that it can be given back; returns the bytes
  // moved. Stored rows stay the same, bit for bit; spans are void.
  virtual int64_t compact() { return 0; }

  // Setting a sequence aside, in a file (save, load) or in this process (snapshot, restore), and taking it up
  // again later, bit for bit, in this cache or another of the same spec and shape, with room for more tokens and
  // sequences or for fewer, as long as this one fits. The bytes are proportional to what is kept.
  //   save  throws std::runtime_error if the file cannot be written whole; there is none then
  //   load  throws std::invalid_argument for a file that is damaged, or that another spec or shape wrote
  // Where memory is short both load and restore throw as add_sequence does; then nothing has changed.
  void save(SequenceId sequence, const std::string& path) const;
  SequenceId load(const std::string& path);
  Snapshot snapshot(SequenceId sequence) const;
  SequenceId restore(const Snapshot& snapshot);
  // The same amid other bytes: what save writes between a file's head and its end. `what` names the bytes in
  // messages.
  virtual void write(Writer& to, SequenceId sequence) const = 0;
  virtual SequenceId read(Reader& from, const std::string& what) = 0;

  // The three parts of a step, so that a harness can time them one by one:
  //   append  stores k and v of every input's n tokens. Throws std::logic_error if some of the n must attend
  //           before others are stored (n = 1 is always fine); step() goes slice by slice then
  //   view    makes everything kept readable; copies only in `read=copy` variants. attend calls it where it
  //           was not called
  //   attend  out = softmax(q k^T / sqrt(head_dim)) v over what is kept, causal inside the n tokens. Models with
  //           another scale, as MLA's, put it into q
  // append throws std::bad_alloc without having changed any sequence.
  virtual void append(int layer, std::span<const StepInput> inputs) = 0;
  virtual void view(int layer, std::span<const StepInput> inputs) = 0;
  virtual void attend(int layer, std::span<const StepInput> inputs) = 0;
  // append + attend with the exact meaning "token t is stored, then attends to all that is kept of tokens <=
  // t": where a retention evicts, tokens go one by one. An input without `out` is stored alone, as far as the
  // retention can do without its attention.
  virtual void step(int layer, std::span<const StepInput> inputs) = 0;

  // Tokens this sequence has been given in `layer`, kept or not.
  virtual int64_t tokens(SequenceId sequence, int layer) const = 0;

  // For those who check: the spans of one head as stored (so before RoPE with positions=cache), in slot
  // order, valid until the next call or change. Rows that are not in memory are brought there.
  virtual std::vector<Span> spans(SequenceId sequence, int layer, int kv_head) = 0;
  // Those of spans() that lie in memory that kernels read, where they lie: nothing is brought or copied.
  virtual std::span<const Span> resident_spans(SequenceId sequence, int layer, int kv_head) = 0;
  // The mean subtracted from every key of spans(), after the codec's rotation; [head_dim], or empty where there is none.
  virtual std::span<const float> removed_mean(SequenceId, int /*layer*/, int /*kv_head*/) const { return {}; }
  // The token held by each row of spans(), in the same order.
  virtual std::vector<int64_t> kept(SequenceId sequence, int layer, int kv_head) const = 0;

  // The slots that the newest attention of a layer read of a sequence, ascending; all where nothing selects, and before
  // the first.
  virtual std::vector<int64_t> read_slots(SequenceId sequence, int layer, int kv_head) const = 0;

  // How many times each kept row lies in what attention reads: 1, or once for every query head with `read=repeat`.
  virtual int repeats() const { return 1; }

  // The name of the attention kernel that runs for this cache, as for example "avx3_zen4/f16"; once it has
  // worked on prompts, of what ran for those, or of both.
  virtual std::string kernel() const = 0;

 protected:
  virtual Memory& memory() const = 0;
};

// Throws std::invalid_argument if caches cannot have this shape, or if the spec's stages do not work together (the
// reason of unsupported_reason()). The memory outlives the cache.
std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory);

}  // namespace kv
