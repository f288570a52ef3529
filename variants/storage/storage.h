// A storage: the host's memory and the CPU's kernels (host_storage.h), or a GPU's memory and its kernels (gpu_storage.h). A
// cache knows this page alone.
//
// It stores rows, attends to them and reads them back. It asks the retention for a token's slot, and the placement for a
// slot's bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "variants/core/codec.h"
#include "variants/core/memory.h"
#include "variants/core/placement.h"
#include "variants/core/retention.h"
#include "variants/core/snapshot.h"
#include "variants/placement/placement.h"
#include "variants/storage/residual_buffer.h"
#include "variants/storage/rotated_rows.h"

namespace kv {

// The parts of a cache that a storage works with; they outlive it.
struct StorageContext {
  Memory& memory;
  const Codec& codec;
  const UnitLayout& unit;
  int kv_heads, head_dim;
  Placement& placement;
  RotatedRows* rotated;  // positions=cache; else null
};

// The new tokens of one sequence's layer, or of those of its heads that the placement has as a layer.
struct NewRows {
  int sequence, layer;                                // the placement's numbers
  int64_t first, n;                                   // tokens [first, first + n) of the sequence
  const float* k;                                     // [kv_heads, n, head_dim]
  const float* v;                                     // [kv_heads, n, head_dim]
  std::span<const std::unique_ptr<Retention>> heads;  // [kv_heads]
  ResidualBuffer* residual;                           // null where rows are encoded one by one
};

// The rows of a step that lie where kernels do not read: they come in pieces, before those of the spans.
struct StreamedRows {
  int layer, next_layer;       // the one that attends after it, in this step or the next
  std::vector<int> sequences;  // [inputs]
  std::vector<int64_t> rows;   // [inputs] the first so many of each kv head; whole pieces
};

class Storage {
 public:
  virtual ~Storage() = default;

  // Stores each head's rows in the slots that its policy chooses, of all sequences of a step's layer. The placement
  // has reserved the units.
  virtual void store(std::span<const NewRows> rows) = 0;

  // Makes each view, one head's rows in slot order, show the rows that attention reads: decoded if the codec has read=copy,
  // keys rotated if the spec has positions=cache. heads[i] knows the tokens of view i. The views are valid until the next
  // call.
  virtual void view(std::span<std::span<const Span>> views, std::span<const Retention* const> heads) = 0;

  // kv::attend() over spans that view() has shown. The problems of an input, one a kv head, follow one
  // another. `streamed`: null if all rows are in the spans.
  virtual void attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) = 0;

  // `scored` [problems]: the policies that observe attention weights, or null. accumulate_weights() gives their problems a
  // place to add the weights to; once attention has run, observe_weights() tells each policy the sums, unless attention has
  // added them to the policy's own scores.
  virtual void accumulate_weights(std::span<HeadQueries> problems, std::span<Retention* const> scored) = 0;
  virtual void observe_weights(std::span<const HeadQueries> problems, std::span<Retention* const> scored) = 0;

  // The same spans over bytes that the host can read, until the next call.
  virtual std::vector<Span> read_back(std::vector<Span> spans) = 0;

  // Stored bytes to a file or a snapshot, and from there.
  virtual void write_rows(Writer& to, const std::byte* rows, size_t bytes) = 0;
  virtual void read_rows(Reader& from, std::byte* rows, size_t bytes) = 0;

  // The attention kernels that have run, for example "avx3_zen4/f16".
  virtual std::string kernel() const = 0;
};

// The storage of the context's memory.
std::unique_ptr<Storage> make_storage(const StorageContext& context);

// Why rows of this head_dim cannot be kept in the memory of `gpu` (null: the host's), or empty if they can.
std::string unstorable_reason(const cuda::Gpu* gpu, int head_dim);

// Why attention over rows in the memory of `gpu` (null: the host's) lacks terms of a model's softmax (HeadQueries), or empty
// if it lacks none.
std::string unattendable_reason(const cuda::Gpu* gpu, bool sink_logits, bool soft_caps);

}  // namespace kv
