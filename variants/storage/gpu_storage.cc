// The storage's functions, by launches and copies.
#include "variants/storage/gpu_storage.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/gpu.h"
#include "kernels/format/encoding.h"
#include "variants/core/scratch.h"
#include "variants/core/slot_table.h"

namespace kv {
namespace {

int64_t rows_of(const HeadQueries& p) { return p.visible + p.n - 1; }

}  // namespace

GpuStorage::GpuStorage(const StorageContext& context)
    : context_(context),
      gpu_(*context.memory.gpu()),
      append_(context),
      attention_(context.memory, context.codec, context.head_dim) {}

std::string GpuStorage::unsupported_reason(int head_dim) {
  if (head_dim > cuda::kMaxGpuHeadDim) {
    return "head_dim " + std::to_string(head_dim) + " is more than the " +
           std::to_string(cuda::kMaxGpuHeadDim) + " that the GPU's kernels take";
  }
  return "";
}

// The kernels decode and rotate themselves, so here only the cache positions of the rows are found.
void GpuStorage::view(std::span<std::span<const Span>>, std::span<const Retention* const> heads) {
  if (!context_.rotated) return;
  rotated_keys_.positions.clear();
  int64_t longest = 0;
  for (const Retention* head : heads) {
    rotated_keys_.positions.push_back(RotatedRows::positions(*head));
    longest = std::max(longest, head->slots());
  }
  rotated_keys_.angles = context_.rotated->angles_of(longest);
  rotated_keys_.half_split = context_.rotated->half_split();
}

void GpuStorage::attend(std::span<const HeadQueries> problems, const StreamedRows* streamed) {
  for (const HeadQueries& p : problems) {
    const std::string reason = unattendable_reason(&gpu_, p.sink_logits, p.score_cap != 0.0f);
    if (!reason.empty()) throw std::invalid_argument(reason);
  }
  if (!streamed) return attention_.attend(problems, nullptr, context_.rotated ? &rotated_keys_ : nullptr);
  const auto pieces_of = [&](int layer) {
    LayerPieces pieces{.key = {layer, streamed->sequences, {}}, .visit = {}};
    for (const int sequence : streamed->sequences)
      pieces.key.moves.push_back(context_.placement.moves(sequence, layer));
    pieces.visit = [this, layer, streamed](const PieceRange& range, const PieceVisitor& visit) {
      context_.placement.stream(layer, streamed->sequences, visit, nullptr, range);
    };
    return pieces;
  };
  const PieceSource source{context_.unit, streamed->rows, pieces_of(streamed->layer),
                           pieces_of(streamed->next_layer)};
  attention_.attend(problems, &source, nullptr);
}

// Scores that a device keeps are added to where they are; the others get zeroed room.
void GpuStorage::accumulate_weights(std::span<HeadQueries> problems, std::span<Retention* const> scored) {
  int64_t rows = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (!scored[i]) continue;
    if (const SlotTable* table = scored[i]->choosing_table()) {
      problems[i].attention_weights = table->scores();
    } else {
      rows += rows_of(problems[i]);
    }
  }
  if (rows == 0) return;
  float* next = zeroed_weights(rows);
  for (size_t i = 0; i < problems.size(); ++i) {
    if (!scored[i] || problems[i].attention_weights) continue;
    problems[i].attention_weights = next;
    next += rows_of(problems[i]);
  }
}

void GpuStorage::observe_weights(std::span<const HeadQueries> problems, std::span<Retention* const> scored) {
  for (size_t i = 0; i < problems.size(); ++i) {
    if (!scored[i] || scored[i]->choosing_table()) continue;
    scored[i]->observe(weights_on_host(problems[i].attention_weights, scored[i]->slots()));
  }
}

float* GpuStorage::zeroed_weights(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  float* host = reinterpret_cast<float*>(fit(context_.memory, host_weights_, bytes));
  std::fill_n(host, count, 0.0f);
  if (weights_.size() < bytes) weights_ = Block::of_rows(context_.memory, bytes, ByteKind::kWorkspace);
  gpu_.copy(weights_.data(), host, bytes);
  return reinterpret_cast<float*>(weights_.data());
}

std::span<const float> GpuStorage::weights_on_host(const float* weights, int64_t count) {
  const auto size = static_cast<size_t>(count);
  float* host = reinterpret_cast<float*>(fit(context_.memory, host_weights_, size * sizeof(float)));
  gpu_.copy(host, weights, size * sizeof(float));
  return {host, size};
}

std::vector<Span> GpuStorage::read_back(std::vector<Span> spans) {
  struct Part {
    const std::byte** at;
    int64_t bytes;
  };
  std::vector<Part> parts;
  int64_t bytes = 0;
  for (Span& span : spans) {
    for (Side* side : {&span.k, &span.v}) {
      // The last unit ends where its own bytes do, not a stride further.
      const int64_t before = (span.rows + side->encoding.group - 1) / side->encoding.group - 1;
      const int64_t data = unit_data_bytes(side->encoding, context_.head_dim);
      const int64_t meta = unit_meta_bytes(side->encoding, context_.head_dim);
      parts.push_back({&side->data, before * side->stride + data});
      bytes += parts.back().bytes;
      if (!side->meta) continue;
      parts.push_back({&side->meta, before * side->meta_stride + meta});
      bytes += parts.back().bytes;
    }
  }
  read_.resize(static_cast<size_t>(bytes));
  std::byte* to = read_.data();
  for (const Part& part : parts) {
    gpu_.copy(to, *part.at, static_cast<size_t>(part.bytes));
    *part.at = to;
    to += part.bytes;
  }
  return spans;
}

void GpuStorage::write_rows(Writer& to, const std::byte* rows, size_t bytes) {
  staged_.resize(bytes);
  gpu_.copy(staged_.data(), rows, bytes);
  to.write(staged_.data(), bytes);
}

void GpuStorage::read_rows(Reader& from, std::byte* rows, size_t bytes) {
  staged_.resize(bytes);
  from.read(staged_.data(), bytes);
  gpu_.copy(rows, staged_.data(), bytes);
}

// For example "cuda90_decode/f16" or "cuda90_simple/f16". Results contain these words.
std::string GpuStorage::kernel() const {
  const cuda::GpuInfo info = gpu_.info();
  const std::string name = "cuda" + std::to_string(info.major) + std::to_string(info.minor) +
                           (attention_.fast() ? "_decode/" : "_simple/");
  if (context_.rotated) return name + "f32 of rotated copy";
  if (context_.codec.read_copy) return name + "f32 of decoded copy";
  return name + encodings_name(context_.codec.k, context_.codec.v);
}

}  // namespace kv
