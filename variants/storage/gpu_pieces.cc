// The order of copies of pieces, and the launches that wait for them.
#include "variants/storage/gpu_pieces.h"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "variants/core/scratch.h"

namespace kv {

using Queue = cuda::Gpu::Queue;

int64_t PieceSlots::bytes() const {
  return std::accumulate(plane_bytes.begin(), plane_bytes.end(), int64_t{0});
}

std::byte* PieceSlots::plane(size_t slot, int plane) const {
  std::byte* at = room + static_cast<int64_t>(slot) * bytes();
  for (auto p = kPieceOrder.begin(); *p != plane; ++p) at += plane_bytes[*p];
  return at;
}

cuda::Page PieceSlots::encoded(size_t slot, int head) const {
  const auto at = [&](int p) {
    return plane_bytes[p] ? plane(slot, p) + plane_bytes[p] / heads * head : nullptr;
  };
  return {at(kKData), at(kKMeta), at(kVData), at(kVMeta)};
}

F32Rows PieceSlots::copied(size_t slot, int head) const {
  float* k = copies + static_cast<int64_t>(slot) * copied_numbers() + copied_numbers() / heads * head;
  return {k, k + int64_t{kPieceRows} * head_dim};
}

PieceSlots GpuPieces::make_slots(const GpuBatch& batch, const PieceSource& source, int head_dim) {
  PieceSlots slots{.heads = batch.heads, .head_dim = head_dim, .count = batch.slots};
  for (int p = 0; p < kPlanes; ++p)
    slots.plane_bytes[p] = source.unit.bytes[p] * (kPieceRows / source.unit.rows) * batch.heads;
  const std::byte* const before = room_.data();
  const size_t bytes = batch.slots * static_cast<size_t>(slots.bytes()), had = room_.size();
  slots.room = fit_on_gpu(memory_, room_, bytes);
  const bool same = room_.data() == before && room_.size() == had && slots.count == ahead_slots_.count &&
                    slots.plane_bytes == ahead_slots_.plane_bytes;
  if (!same || source.layer.key != ahead_) ahead_inputs_.clear();
  if (!ahead_inputs_.empty()) slots.first = ahead_slots_.first;
  return slots;
}

void GpuPieces::run(const PieceSource& source, const PieceSlots& slots, const Read& read) {
  run_ = 0;
  const auto read_next = [&](size_t input) {
    read(input, run_);
    done_[run_ % done_.size()] = gpu_.mark(Queue::kMain);
    ++run_;
  };
  for (const size_t input : ahead_inputs_) read_next(input);
  const auto first = static_cast<int64_t>(std::exchange(ahead_inputs_, {}).size());
  source.layer.visit({.first = first}, [&](size_t input, const Piece& from) {
    overwrite(slots, run_);
    fetch(slots, run_, from);
    gpu_.wait(Queue::kMain, copied_);
    read_next(input);
  });
}

// Copies wait until a slot's last piece, before it is to be this one's, has been read.
void GpuPieces::overwrite(const PieceSlots& slots, size_t piece) {
  if (piece >= slots.count) gpu_.wait(Queue::kPrefetch, done_[piece % done_.size()]);
}

// The source of the piece before is given up when this visit returns: so late that copies follow each other without a
// gap.
void GpuPieces::fetch(const PieceSlots& slots, size_t piece, const Piece& from) {
  // Planes that lie side by side come in one copy.
  const size_t together = from.one_block ? kPlanes : 2;
  for (size_t first = 0; first < kPlanes; first += together) {
    int64_t bytes = 0;
    Plane p = kPieceOrder[first];  // or the first that has bytes: f32 has no scales
    for (size_t i = first + together; i-- > first;) {
      if (slots.plane_bytes[kPieceOrder[i]] > 0) p = kPieceOrder[i];
      bytes += slots.plane_bytes[kPieceOrder[i]];
    }
    if (bytes > 0) gpu_.prefetch(slots.plane(slots.of(piece), p), from.base[p], static_cast<size_t>(bytes));
  }
  if (piece > 0) gpu_.wait(copied_);
  copied_ = gpu_.mark(Queue::kPrefetch);
}

// They follow the pieces of the layer that ran, slot after slot. A file that cannot be read is reported when its layer runs.
void GpuPieces::fetch_next(const LayerPieces& next, const PieceSlots& slots) {
  if (run_ > 0) gpu_.wait(copied_);  // the reader of a file has its buffers back
  ahead_ = next.key;
  ahead_slots_ = slots;
  ahead_slots_.first = slots.of(run_);
  overwrite(slots, run_ + kPrefetchedPieces - 1);
  try {
    next.visit({.first = 0, .count = kPrefetchedPieces}, [&](size_t input, const Piece& from) {
      fetch(slots, run_ + ahead_inputs_.size(), from);
      ahead_inputs_.push_back(input);
    });
  } catch (const std::runtime_error&) {
    ahead_inputs_.clear();
  }
  gpu_.wait(copied_);
}

}  // namespace kv
