#include "variants/gpu_attention.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace kv {
namespace {

// Cuts one block into arrays of f32: first all wants, then, in the same order, their addresses.
class Carver {
 public:
  void want(int64_t numbers) {
    offset_.push_back(bytes_);
    bytes_ += aligned_for_gpu(static_cast<size_t>(numbers) * sizeof(float));
  }
  size_t bytes() const { return bytes_; }
  void start(std::byte* base) { base_ = base; }
  float* next() { return reinterpret_cast<float*>(base_ + offset_[next_++]); }

 private:
  std::vector<size_t> offset_;
  size_t bytes_ = 0, next_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace

// The slots through which pieces pass, [slots][plane][head][unit], as they come; and, where attention reads a
// copy, the f32 rows of each, [slots][head][K and V][row].
struct GpuAttention::Slots {
  int heads = 1, head_dim = 0;
  std::array<int64_t, kPlanes> plane_bytes{};
  std::byte* room = nullptr;
  float* copies = nullptr;

  int64_t bytes() const { return std::accumulate(plane_bytes.begin(), plane_bytes.end(), int64_t{0}); }
  int64_t copied_numbers() const { return int64_t{2} * kPieceRows * head_dim * heads; }

  std::byte* plane(size_t slot, int plane) const {
    std::byte* at = room + static_cast<int64_t>(slot) * bytes();
    for (int p = 0; p < plane; ++p) at += plane_bytes[p];
    return at;
  }
  cuda::Page encoded(size_t slot, int head) const {
    const auto at = [&](int p) {
      return plane_bytes[p] ? plane(slot, p) + plane_bytes[p] / heads * head : nullptr;
    };
    return {at(kKData), at(kKMeta), at(kVData), at(kVMeta)};
  }
  F32Rows copied(size_t slot, int head) const {
    float* k = copies + static_cast<int64_t>(slot) * copied_numbers() + copied_numbers() / heads * head;
    return {k, k + int64_t{kPieceRows} * head_dim};
  }
};

// Addresses on the GPU.
struct GpuAttention::Placed {
  const cuda::Problem* problems = nullptr;
  const cuda::WorkItem* items[2] = {};
  unsigned* counters = nullptr;
  float* const* mass = nullptr;
  const cuda::CopyJob* copies = nullptr;       // [problems] of the rows in memory
  const cuda::CopyJob* slot_copies = nullptr;  // [slots, heads]
  const float* angles = nullptr;               // where keys are turned
  bool halves = false;
  const float* out = nullptr;
  float* log_sum = nullptr;
  cuda::Partials partials{};
};

GpuAttention::GpuAttention(Memory& memory, const Codec& codec, int head_dim)
    : memory_(memory), gpu_(*memory.gpu()), codec_(codec), head_dim_(head_dim) {}

void GpuAttention::attend(std::span<const HeadQueries> problems, const FarRows* far,
                          const TurnedKeys* turned) {
  if (problems.empty()) return;
  GpuBatch batch = pack(problems, far, codec_.read_copy || turned);
  Slots slots = make_slots(batch, far);
  const Placed at = place(batch, slots, turned);
  run_near(batch, at);
  if (far) run_pieces(batch, at, slots, *far);
  if (!batch.block_queries) gpu_.merge(merging(batch, at), batch.count());
  if (batch.logits > 0) {
    gpu_.add_mass({at.problems, at.log_sum, at.mass, batch.group, batch.most_queries}, batch.count(),
                  batch.most_rows);
  }
  fast_ = batch.block_queries > 0;
  collect(problems, at.out, batch.outputs);
}

GpuBatch GpuAttention::pack(std::span<const HeadQueries> problems, const FarRows* far, bool copies) const {
  const std::vector<int64_t> far_rows = far ? far->rows : std::vector<int64_t>{0};
  GpuBatch batch(problems, codec_, head_dim_, far_rows, static_cast<int>(problems.size() / far_rows.size()),
                 copies);
  // Of a problem, the same queries must meet in the blocks of both lists.
  const bool raw_rows =
      std::any_of(batch.problems.begin(), batch.problems.end(), [](auto& p) { return p.tail_rows > 0; });
  const int queries = gpu_.decode_queries(batch.layout(), batch.most_queries);
  const bool fit = !raw_rows || gpu_.decode_queries(batch.raw, batch.most_queries) == queries;
  batch.cut(fit ? queries : 0, gpu_.info().multiprocessors);
  return batch;
}

GpuAttention::Slots GpuAttention::make_slots(const GpuBatch& batch, const FarRows* far) {
  Slots slots{.heads = batch.heads, .head_dim = head_dim_};
  for (int p = 0; far && p < kPlanes; ++p)
    slots.plane_bytes[p] = far->unit.bytes[p] * (kPieceRows / far->unit.rows) * batch.heads;
  slots.room = fit(slots_, batch.slots * static_cast<size_t>(slots.bytes()));
  return slots;
}

// As f32 pages, `rows` rows of a problem.
static void add_pages(const F32Rows& from, int64_t rows, int head_dim, std::vector<cuda::Page>& to) {
  const auto bytes_at = [&](float* rows_of, int64_t row) {
    return reinterpret_cast<std::byte*>(rows_of + row * head_dim);
  };
  for (int64_t row = 0; row < rows; row += kPieceRows)
    to.push_back({bytes_at(from.k, row), nullptr, bytes_at(from.v, row), nullptr});
}

// What attention reads: the slots that pieces will pass through and the pages that stay, or the copies of
// both.
std::vector<cuda::Page> GpuAttention::pages_of(const GpuBatch& batch, const Slots& slots, int problem) const {
  std::vector<cuda::Page> pages;
  const int head = problem % batch.heads;
  const auto input = static_cast<size_t>(problem / batch.heads);
  for (size_t piece = batch.first_piece[input]; piece < batch.first_piece[input + 1]; ++piece) {
    const size_t slot = piece % batch.slots;
    batch.copies ? add_pages(slots.copied(slot, head), kPieceRows, head_dim_, pages)
                 : pages.push_back(slots.encoded(slot, head));
  }
  const PlacedRows& near = batch.near[static_cast<size_t>(problem)];
  if (batch.copies) {
    add_pages(near.copy, near.all(), head_dim_, pages);
  } else {
    pages.insert(pages.end(), near.pages.begin(), near.pages.end());
  }
  return pages;
}

// Room for the copies, whose addresses go into pages.
void GpuAttention::place_copies(GpuBatch& batch, Slots& slots) {
  if (!batch.copies) return;
  Carver copies;
  copies.want(static_cast<int64_t>(batch.slots) * slots.copied_numbers());
  for (const PlacedRows& near : batch.near) {
    copies.want(int64_t{near.all()} * head_dim_);
    copies.want(int64_t{near.all()} * head_dim_);
  }
  copies.start(fit(copy_, copies.bytes()));
  slots.copies = copies.next();
  for (PlacedRows& near : batch.near) {
    near.copy.k = copies.next();
    near.copy.v = copies.next();
  }
}

// Where the lists of a batch begin in what is uploaded.
struct GpuAttention::Offsets {
  std::vector<size_t> q, pages, near, tail, places;  // [problems]; of places if keys are turned
  size_t problems = 0, mass = 0, items[2] = {}, counters = 0, copies = 0, slot_pages = 0, slot_copies = 0;
};

// Room for all that kernels are to read, and what of it does not depend on addresses in the same room.
GpuAttention::Offsets GpuAttention::upload_lists(GpuBatch& batch, const Slots& slots,
                                                 const TurnedKeys* turned) const {
  Upload& upload = batch.upload;
  const size_t count = batch.problems.size();
  Offsets at;
  at.q = batch.q_at;
  for (size_t i = 0; i < count; ++i) {
    const PlacedRows& near = batch.near[i];
    at.pages.push_back(upload.add(pages_of(batch, slots, static_cast<int>(i))));
    at.near.push_back(upload.add(batch.copies ? near.pages : std::vector<cuda::Page>()));
    at.tail.push_back(upload.add(near.tail));
    if (turned) at.places.push_back(upload.add(turned->places[i]));
  }
  std::vector<cuda::Page> slot_pages;
  for (size_t slot = 0; batch.copies && slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) slot_pages.push_back(slots.encoded(slot, head));
  }
  const size_t blocks = batch.block_queries ? static_cast<size_t>(batch.blocks(batch.most_queries)) : 0;
  at.problems = upload.reserve<cuda::Problem>(count);
  at.mass = upload.add(batch.mass);
  for (int side = 0; side < 2; ++side) at.items[side] = upload.add(batch.items[side]);
  at.counters = upload.reserve<unsigned>(count * blocks);
  at.copies = upload.reserve<cuda::CopyJob>(batch.copies ? count : 0);
  at.slot_pages = upload.add(slot_pages);
  at.slot_copies = upload.reserve<cuda::CopyJob>(slot_pages.size());
  return at;
}

// Room on the GPU for all that the kernels read and write, and the addresses of its parts.
GpuAttention::Placed GpuAttention::place(GpuBatch& batch, Slots& slots, const TurnedKeys* turned) {
  place_copies(batch, slots);
  const Offsets at = upload_lists(batch, slots, turned);
  std::byte* const input = fit(input_, batch.upload.size());
  Carver output;
  output.want(batch.outputs);                                // out
  output.want(int64_t{batch.most_queries} * batch.count());  // log_sum
  output.want(batch.partials);                               // max
  output.want(batch.partials);                               // sum
  output.want(batch.partials * head_dim_);                   // values
  output.want(batch.logits);                                 // logits
  output.start(fit(output_, output.bytes()));
  Placed placed;
  if (turned) {
    placed.angles = angles_on_gpu(*turned);
    placed.halves = turned->halves;
  }
  float* out = output.next();
  placed.out = out;
  placed.log_sum = output.next();
  placed.partials.max = output.next();
  placed.partials.sum = output.next();
  placed.partials.values = output.next();
  float* logits = output.next();
  const auto pages_at = [&](size_t offset) { return reinterpret_cast<const cuda::Page*>(input + offset); };
  std::vector<cuda::CopyJob> copies, slot_copies;
  for (size_t i = 0; i < batch.problems.size(); ++i) {
    cuda::Problem& p = batch.problems[i];
    const PlacedRows& near = batch.near[i];
    const int64_t queries = int64_t{batch.group} * p.n;
    p.q = reinterpret_cast<const float*>(input + at.q[i]);
    p.pages = pages_at(at.pages[i]);
    p.tail = pages_at(at.tail[i]);
    p.out = out;
    p.logits = batch.mass[i] ? logits : nullptr;
    out += queries * head_dim_;
    if (p.logits) logits += queries * rows_of(p);
    if (batch.copies) {
      const auto* places = turned ? reinterpret_cast<const int32_t*>(input + at.places[i]) : nullptr;
      copies.push_back(
          {pages_at(at.near[i]), p.tail, near.rows, near.tail_rows, near.copy.k, near.copy.v, places});
    }
  }
  for (size_t slot = 0; batch.copies && slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) {
      const F32Rows to = slots.copied(slot, head);
      slot_copies.push_back(
          {pages_at(at.slot_pages) + std::ssize(slot_copies), nullptr, kPieceRows, 0, to.k, to.v, nullptr});
    }
  }
  batch.upload.set<cuda::Problem>(at.problems, batch.problems);
  batch.upload.set<cuda::CopyJob>(at.copies, copies);
  batch.upload.set<cuda::CopyJob>(at.slot_copies, slot_copies);
  gpu_.copy(input, batch.upload.data(), batch.upload.size());
  placed.problems = reinterpret_cast<const cuda::Problem*>(input + at.problems);
  placed.mass = reinterpret_cast<float* const*>(input + at.mass);
  placed.counters = reinterpret_cast<unsigned*>(input + at.counters);
  for (int side = 0; side < 2; ++side)
    placed.items[side] = reinterpret_cast<const cuda::WorkItem*>(input + at.items[side]);
  placed.copies = reinterpret_cast<const cuda::CopyJob*>(input + at.copies);
  placed.slot_copies = reinterpret_cast<const cuda::CopyJob*>(input + at.slot_copies);
  return placed;
}

// They go there once, and again where more places are in use.
const float* GpuAttention::angles_on_gpu(const TurnedKeys& turned) {
  const size_t count = turned.angles.size();
  std::byte* const there = fit(angles_, count * sizeof(float));
  if (angles_there_ < count) gpu_.copy(there, turned.angles.data(), count * sizeof(float));
  angles_there_ = count;
  return reinterpret_cast<const float*>(there);
}

cuda::CopyParams GpuAttention::copying(const GpuBatch& batch, const Placed& at,
                                       const cuda::CopyJob* jobs) const {
  return {batch.encoded, batch.raw, jobs, at.angles, at.halves};
}

cuda::MergeParams GpuAttention::merging(const GpuBatch& batch, const Placed& at) const {
  return {at.problems, at.partials, batch.group, head_dim_, at.log_sum, batch.most_queries};
}

void GpuAttention::decode(const GpuBatch& batch, const Placed& at, bool tail, const ItemRange& items) {
  if (items.count == 0) return;
  gpu_.decode({tail ? batch.raw : batch.layout(), at.items[tail] + items.first, merging(batch, at),
               at.counters, tail},
              static_cast<int>(items.count));
}

void GpuAttention::attend_simple(const GpuBatch& batch, const Placed& at, const ItemRange& problems,
                                 const ItemRange& splits) {
  if (splits.count == 0) return;
  gpu_.attend_simple({batch.layout(), batch.raw, at.problems + problems.first, at.partials, batch.group,
                      kPieceRows, static_cast<int32_t>(splits.first)},
                     static_cast<int>(problems.count), static_cast<int>(splits.count), batch.most_queries);
}

// All that needs no piece. Where there are any, their first is on its way meanwhile.
void GpuAttention::run_near(const GpuBatch& batch, const Placed& at) {
  int32_t most_rows = 0;
  for (const PlacedRows& near : batch.near) most_rows = std::max(most_rows, near.all());
  if (batch.copies && most_rows > 0) gpu_.copy_rows(copying(batch, at, at.copies), batch.count(), most_rows);
  if (batch.block_queries) {
    decode(batch, at, false, batch.near_items);
    decode(batch, at, true, {0, batch.items[1].size()});
    return;
  }
  const auto heads = static_cast<size_t>(batch.heads), most_splits = static_cast<size_t>(batch.most_splits);
  if (batch.slots == 0) return attend_simple(batch, at, {0, batch.problems.size()}, {0, most_splits});
  for (size_t input = 0; input < batch.far_rows.size(); ++input) {
    const size_t first = batch.first_piece[input + 1] - batch.first_piece[input];
    attend_simple(batch, at, {input * heads, heads}, {first, most_splits - first});
  }
}

// A piece's slot is overwritten when all that read the one before it is done, and where a piece came from is
// given up when it has been copied: one visit later, so that copies follow each other without a gap.
void GpuAttention::run_pieces(const GpuBatch& batch, const Placed& at, const Slots& slots,
                              const FarRows& far) {
  using Queue = cuda::Gpu::Queue;
  std::array<cuda::Gpu::Mark, kPiecesAhead + 1> done{};  // what read the newest pieces
  cuda::Gpu::Mark copied = 0;
  size_t piece = 0;
  far.visit([&](size_t input, const Piece& from) {
    const size_t slot = piece % batch.slots;
    if (piece >= batch.slots) gpu_.wait(Queue::kAhead, done[piece % done.size()]);
    for (int p = 0; p < kPlanes; ++p) {
      const auto bytes = static_cast<size_t>(slots.plane_bytes[p]);
      if (bytes > 0) gpu_.copy_ahead(slots.plane(slot, p), from.base[p], bytes);
    }
    if (piece > 0) gpu_.wait(copied);
    copied = gpu_.mark(Queue::kAhead);
    gpu_.wait(Queue::kMain, copied);
    run_piece(batch, at, input, piece);
    done[piece % done.size()] = gpu_.mark(Queue::kMain);
    ++piece;
  });
}

void GpuAttention::run_piece(const GpuBatch& batch, const Placed& at, size_t input, size_t piece) {
  const auto heads = static_cast<size_t>(batch.heads);
  if (batch.copies) {
    const cuda::CopyJob* jobs = at.slot_copies + piece % batch.slots * heads;
    gpu_.copy_rows(copying(batch, at, jobs), batch.heads, kPieceRows);
  }
  if (batch.block_queries) return decode(batch, at, false, batch.piece_items[piece]);
  attend_simple(batch, at, {input * heads, heads}, {piece - batch.first_piece[input], 1});
}

void GpuAttention::collect(std::span<const HeadQueries> problems, const float* from, int64_t numbers) {
  collected_.resize(static_cast<size_t>(numbers));
  gpu_.copy(collected_.data(), from, collected_.size() * sizeof(float));
  const float* next = collected_.data();
  for (const HeadQueries& p : problems) {
    const int64_t own = p.group * p.n * head_dim_;
    std::copy_n(next, own, p.out);
    next += own;
  }
}

std::byte* GpuAttention::fit(Block& block, size_t bytes) { return fit_on_gpu(memory_, block, bytes); }

}  // namespace kv
