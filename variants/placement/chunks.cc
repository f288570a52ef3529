// Chunks that forks share are copied by the first of them that writes.
#include "variants/placement/chunks.h"

#include <algorithm>
#include <utility>

namespace kv {

void ChunksPlacement::open(int sequence) {
  if (static_cast<size_t>(sequence) >= lists_.size()) lists_.resize(static_cast<size_t>(sequence) + 1);
  lists_[sequence].resize(static_cast<size_t>(context_.layers));
}

void ChunksPlacement::fork(int from, int to, const std::vector<int64_t>&) {
  for (int layer = 0; layer < context_.layers; ++layer) list(to, layer) = list(from, layer);
}

void ChunksPlacement::reserve(int layer, std::span<const Growth> growths) {
  struct NewChunk {
    ChunkList* list;
    int64_t index;
    int64_t used;  // units to copy from the shared chunk that it replaces; 0 for a chunk at the end
    std::shared_ptr<Chunk> chunk;
  };
  std::vector<NewChunk> fresh;  // all are made before anything changes
  for (const Growth& g : growths) {
    ChunkList& chunks = list(g.sequence, layer);
    for (int64_t c = g.first / chunk_units_; c * chunk_units_ < g.units; ++c) {
      const bool exists = c < std::ssize(chunks);
      if (exists && chunks[c].use_count() == 1) continue;
      const int64_t used = exists ? std::min(chunk_units_, g.used - c * chunk_units_) : 0;
      fresh.push_back({&chunks, c, used, make_chunk()});
      make_room(*fresh.back().chunk, c, g);
    }
    chunks.reserve(static_cast<size_t>((g.units + chunk_units_ - 1) / chunk_units_));
  }
  for (NewChunk& n : fresh) {
    if (n.index == std::ssize(*n.list)) {
      n.list->push_back(std::move(n.chunk));
      continue;
    }
    n.chunk->planes.copy_from((*n.list)[n.index]->planes, n.used);
    (*n.list)[n.index] = std::move(n.chunk);
    note_move();
  }
}

void ChunksPlacement::trim(int sequence, int layer, int64_t, int64_t units) {
  ChunkList& chunks = list(sequence, layer);
  const auto needed = static_cast<size_t>((units + chunk_units_ - 1) / chunk_units_);
  if (needed >= chunks.size()) return;
  chunks.resize(needed);
  note_move();
}

UnitAddress ChunksPlacement::at(int sequence, int layer, int head, int64_t unit) {
  return list(sequence, layer)[unit / chunk_units_]->planes.at(head, unit % chunk_units_);
}

void ChunksPlacement::spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) {
  const ChunkList& chunks = list(sequence, layer);
  for (int64_t row = from; row < rows;) {
    const int64_t first = row % chunk_rows(), end = std::min(chunk_rows(), first + rows - row);
    chunks[row / chunk_rows()]->planes.spans(head, first, end, out);
    row += end - first;
  }
}

// A block that sequences share is a chunk of every layer.
SharedBlock ChunksPlacement::hold(int sequence, int64_t block) {
  ChunkList column;
  for (int layer = 0; layer < context_.layers; ++layer)
    column.push_back(list(sequence, layer)[static_cast<size_t>(block)]);
  return std::make_shared<const ChunkList>(std::move(column));
}

void ChunksPlacement::adopt(int sequence, std::span<const SharedBlock> blocks) {
  for (const SharedBlock& block : blocks) {
    const auto& column = *static_cast<const ChunkList*>(block.get());
    for (int layer = 0; layer < context_.layers; ++layer)
      list(sequence, layer).push_back(column[static_cast<size_t>(layer)]);
  }
}

int64_t ChunksPlacement::bytes(const PlacementContext& context, int64_t chunk_rows, int64_t used) {
  const int64_t chunk_units = chunk_rows / context.unit.rows;
  return planes_bytes(context, (used + chunk_units - 1) / chunk_units * chunk_units);
}

}  // namespace kv
