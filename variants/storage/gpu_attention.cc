// Places a batch in the GPU's memory, runs it, and collects the outputs.
#include "variants/storage/gpu_attention.h"

#include <algorithm>
#include <array>

namespace kv {
// Addresses on the GPU.
struct GpuAttention::Placed : AttentionPlan::Placed {
  float* const* weights = nullptr;
  const cuda::CopyJob* copies = nullptr;       // [problems] of the rows in memory
  const cuda::CopyJob* slot_copies = nullptr;  // [slots, heads]
  const float* angles = nullptr;               // if keys are rotated
  bool half_split = false;
  float* out = nullptr;
  float* logits = nullptr;
};

GpuAttention::GpuAttention(Memory& memory, const Codec& codec, int head_dim)
    : memory_(memory),
      gpu_(*memory.gpu()),
      codec_(codec),
      head_dim_(head_dim),
      pieces_(memory),
      lists_(memory) {}

void GpuAttention::attend(std::span<const HeadQueries> problems, const PieceSource* source,
                          const RotatedKeys* rotated) {
  if (problems.empty()) return;
  try {
    run(problems, source, rotated);
  } catch (...) {
    // Blocks that ran have counted themselves, and others never will; what was sent or brought may be there in part.
    lists_.forget();
    pieces_.forget();
    throw;
  }
}

void GpuAttention::run(std::span<const HeadQueries> problems, const PieceSource* source,
                       const RotatedKeys* rotated) {
  GpuBatch batch = pack(problems, source, codec_.read_copy || rotated);
  PieceSlots slots = source ? pieces_.make_slots(batch, *source, head_dim_) : PieceSlots{};
  const Placed at = place(problems, batch, slots, rotated);
  const auto work = [&] { launch(batch, at, slots, source); };
  if (GpuTime* const time = memory_.gpu_time()) {
    time->us += gpu_.time_us(source ? cuda::Gpu::Timed::kStream : cuda::Gpu::Timed::kGraph, work);
  } else {
    work();
  }
  if (source) pieces_.fetch_next(source->next, slots);
  fast_ = batch.plan.block_queries > 0;
  collect(problems, at.out, batch.outputs);
}

void GpuAttention::launch(const GpuBatch& batch, const Placed& at, const PieceSlots& slots,
                          const PieceSource* source) {
  run_resident(batch, at);
  if (source)
    pieces_.run(*source, slots,
                [&](size_t input, size_t piece) { run_piece(batch, at, slots, input, piece); });
  batch.plan.merge(gpu_, at);
  if (batch.logits == 0) return;
  gpu_.add_attention_weights({at.problems, at.log_sum, at.weights, batch.plan.group, batch.plan.most_queries},
                             batch.count(), batch.most_rows);
}

GpuBatch GpuAttention::pack(std::span<const HeadQueries> problems, const PieceSource* source,
                            bool copies) const {
  const std::vector<int64_t> streamed = source ? source->rows : std::vector<int64_t>{0};
  GpuBatch batch(problems, codec_, head_dim_, streamed, static_cast<int>(problems.size() / streamed.size()),
                 copies);
  batch.cut(gpu_);
  return batch;
}

// Adds `rows` rows of a problem as f32 pages.
static void add_pages(const F32Rows& from, int64_t rows, int head_dim, std::vector<cuda::Page>& to) {
  const auto bytes_at = [&](float* rows_of, int64_t row) {
    return reinterpret_cast<std::byte*>(rows_of + row * head_dim);
  };
  for (int64_t row = 0; row < rows; row += kPieceRows)
    to.push_back({bytes_at(from.k, row), nullptr, bytes_at(from.v, row), nullptr});
}

// Pages that attention reads: the slots that pieces will pass through and the pages that stay, or the copies of both.
std::vector<cuda::Page> GpuAttention::pages_of(const GpuBatch& batch, const PieceSlots& slots,
                                               int problem) const {
  std::vector<cuda::Page> pages;
  const int head = problem % batch.heads;
  const auto input = static_cast<size_t>(problem / batch.heads);
  for (size_t piece = batch.first_piece[input]; piece < batch.first_piece[input + 1]; ++piece) {
    const size_t slot = slots.of(piece);
    batch.copies ? add_pages(slots.copied(slot, head), kPieceRows, head_dim_, pages)
                 : pages.push_back(slots.encoded(slot, head));
  }
  const ResidentRows& resident = batch.resident[static_cast<size_t>(problem)];
  if (batch.copies) {
    add_pages(resident.copy, resident.all(), head_dim_, pages);
  } else {
    pages.insert(pages.end(), resident.pages.begin(), resident.pages.end());
  }
  return pages;
}

// Room for the copies, whose addresses go into pages.
void GpuAttention::place_copies(GpuBatch& batch, PieceSlots& slots) {
  if (!batch.copies) return;
  parts_of<Room>(memory_, copy_, [&](Room& copies) {
    slots.copies = copies.floats(static_cast<int64_t>(batch.slots) * slots.copied_numbers());
    for (ResidentRows& resident : batch.resident) {
      resident.copy.k = copies.floats(int64_t{resident.all()} * head_dim_);
      resident.copy.v = copies.floats(int64_t{resident.all()} * head_dim_);
    }
  });
}

// Room on the GPU for all that the kernels read and write, and the addresses of its parts.
GpuAttention::Placed GpuAttention::place(std::span<const HeadQueries> problems, GpuBatch& batch,
                                         PieceSlots& slots, const RotatedKeys* rotated) {
  Placed placed;
  place_copies(batch, slots);
  place_outputs(batch, placed);
  if (rotated) {
    placed.angles = angles_on_gpu(*rotated);
    placed.half_split = rotated->half_split;
  }
  const std::span<const Span> spans = problems.front().spans;
  lists_.send(spans.empty() ? nullptr : spans.front().k.data, [&](Upload& to) {
    point_problems(problems, batch, placed, to);
    placed.copies = add_lists(batch, slots, rotated, to);
    placed.problems = to.add(batch.plan.problems);
    placed.weights = to.add(batch.weights);
    for (int side = 0; side < 2; ++side) placed.items[side] = to.add(batch.plan.items[side]);
    placed.counters = to.add_zeros<unsigned>(batch.plan.counters());
    if (batch.copies) placed.slot_copies = add_slot_copies(batch, slots, to);
  });
  return placed;
}

void GpuAttention::place_outputs(const GpuBatch& batch, Placed& placed) {
  parts_of<Room>(memory_, output_, [&](Room& output) {
    // Values of several elements are read at once: what stands before them has whole rows.
    placed.out = output.floats(batch.outputs);
    placed.partials.values = output.floats(batch.plan.partials * head_dim_);
    placed.log_sum = output.floats(int64_t{batch.plan.most_queries} * batch.count());
    placed.partials.max = output.floats(batch.plan.partials);
    placed.partials.sum = output.floats(batch.plan.partials);
    placed.logits = output.floats(batch.logits);
  });
}

// The queries, and where the problems read and write these.
void GpuAttention::point_problems(std::span<const HeadQueries> problems, GpuBatch& batch,
                                  const Placed& placed, Upload& to) const {
  float *out = placed.out, *logits = placed.logits;
  for (size_t i = 0; i < problems.size(); ++i) {
    cuda::Problem& p = batch.plan.problems[i];
    const int64_t queries = int64_t{batch.plan.group} * p.n;
    p.q = to.add(std::span(problems[i].q, static_cast<size_t>(queries * head_dim_)));
    p.out = out;
    p.logits = batch.weights[i] ? logits : nullptr;
    out += queries * head_dim_;
    if (p.logits) logits += queries * rows_of(p);
  }
}

// The problems' pages. If attention reads a copy: also the copies of rows in memory to f32, keys rotated where they have
// positions. Returns where these copies are described.
const cuda::CopyJob* GpuAttention::add_lists(GpuBatch& batch, const PieceSlots& slots,
                                             const RotatedKeys* rotated, Upload& to) const {
  std::vector<cuda::CopyJob> copies;
  for (size_t i = 0; i < batch.plan.problems.size(); ++i) {
    cuda::Problem& p = batch.plan.problems[i];
    const ResidentRows& rows = batch.resident[i];
    p.pages = to.add_growing(pages_of(batch, slots, static_cast<int>(i)));
    const cuda::Page* stored = batch.copies ? to.add(rows.pages) : nullptr;
    p.tail = to.add(rows.residual);
    const int32_t* positions = rotated ? to.add(rotated->positions[i]) : nullptr;
    if (batch.copies)
      copies.push_back({stored, p.tail, rows.rows, rows.residual_rows, rows.copy.k, rows.copy.v, positions});
  }
  return to.add(copies);
}

// Copies of each slot's rows to f32, head by head.
const cuda::CopyJob* GpuAttention::add_slot_copies(const GpuBatch& batch, const PieceSlots& slots,
                                                   Upload& to) const {
  std::vector<cuda::Page> pages;
  for (size_t slot = 0; slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) pages.push_back(slots.encoded(slot, head));
  }
  const cuda::Page* const at = to.add(pages);
  std::vector<cuda::CopyJob> jobs;
  for (size_t slot = 0; slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) {
      const F32Rows copy = slots.copied(slot, head);
      jobs.push_back({at + std::ssize(jobs), nullptr, kPieceRows, 0, copy.k, copy.v, nullptr});
    }
  }
  return to.add(jobs);
}

// They go there once, and again where more positions are in use.
const float* GpuAttention::angles_on_gpu(const RotatedKeys& rotated) {
  const size_t count = rotated.angles.size();
  std::byte* const there = fit(angles_, count * sizeof(float));
  if (angles_there_ < count) gpu_.copy(there, rotated.angles.data(), count * sizeof(float));
  angles_there_ = count;
  return reinterpret_cast<const float*>(there);
}

cuda::CopyParams GpuAttention::copying(const GpuBatch& batch, const Placed& at,
                                       const cuda::CopyJob* jobs) const {
  return {batch.encoded, batch.raw, jobs, at.angles, at.half_split};
}

// The work that needs no piece. The first piece, if there is any, is on its way meanwhile.
void GpuAttention::run_resident(const GpuBatch& batch, const Placed& at) {
  int32_t most_rows = 0;
  for (const ResidentRows& resident : batch.resident) most_rows = std::max(most_rows, resident.all());
  if (batch.copies && most_rows > 0) gpu_.copy_rows(copying(batch, at, at.copies), batch.count(), most_rows);
  const AttentionPlan& plan = batch.plan;
  const auto heads = static_cast<size_t>(batch.heads), most_splits = static_cast<size_t>(plan.most_splits);
  if (plan.block_queries) {
    plan.decode(gpu_, at, batch.resident_items);
    return plan.decode_tails(gpu_, at);
  }
  if (batch.slots == 0) return plan.attend_simple(gpu_, at, {0, plan.problems.size()}, {0, most_splits});
  for (size_t input = 0; input < batch.streamed_rows.size(); ++input) {
    const size_t first = batch.first_piece[input + 1] - batch.first_piece[input];
    plan.attend_simple(gpu_, at, {input * heads, heads}, {first, most_splits - first});
  }
}

void GpuAttention::run_piece(const GpuBatch& batch, const Placed& at, const PieceSlots& slots, size_t input,
                             size_t piece) {
  const auto heads = static_cast<size_t>(batch.heads);
  if (batch.copies) {
    const cuda::CopyJob* jobs = at.slot_copies + slots.of(piece) * heads;
    gpu_.copy_rows(copying(batch, at, jobs), batch.heads, kPieceRows);
  }
  if (batch.plan.block_queries) return batch.plan.decode(gpu_, at, batch.piece_items[piece]);
  batch.plan.attend_simple(gpu_, at, {input * heads, heads}, {piece - batch.first_piece[input], 1});
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
