// Places a batch in the GPU's memory, runs it, and collects the outputs.
#include "variants/storage/gpu_attention.h"

#include <algorithm>
#include <array>

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
  const std::span<const Span> spans = problems.front().spans;
  const Placed at = place(batch, slots, rotated, spans.empty() ? nullptr : spans.front().k.data);
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
  Carver copies;
  copies.want(static_cast<int64_t>(batch.slots) * slots.copied_numbers());
  for (const ResidentRows& resident : batch.resident) {
    copies.want(int64_t{resident.all()} * head_dim_);
    copies.want(int64_t{resident.all()} * head_dim_);
  }
  copies.start(fit(copy_, copies.bytes()));
  slots.copies = copies.next();
  for (ResidentRows& resident : batch.resident) {
    resident.copy.k = copies.next();
    resident.copy.v = copies.next();
  }
}

// Offsets of a batch's lists in the upload.
struct GpuAttention::Offsets {
  std::vector<size_t> q, pages, resident, residual,
      positions;  // [problems]; of positions if keys are rotated
  size_t problems = 0, weights = 0, items[2] = {}, counters = 0, copies = 0, slot_pages = 0, slot_copies = 0;
};

// Room for all that kernels are to read, and what of it does not depend on addresses in the same room.
GpuAttention::Offsets GpuAttention::upload_lists(GpuBatch& batch, const PieceSlots& slots,
                                                 const RotatedKeys* rotated) const {
  Upload& upload = batch.upload;
  const size_t count = batch.plan.problems.size();
  Offsets at;
  at.q = batch.q_at;
  for (size_t i = 0; i < count; ++i) {
    const ResidentRows& resident = batch.resident[i];
    at.pages.push_back(upload.add_growing(pages_of(batch, slots, static_cast<int>(i))));
    at.resident.push_back(upload.add(batch.copies ? resident.pages : std::vector<cuda::Page>()));
    at.residual.push_back(upload.add(resident.residual));
    if (rotated) at.positions.push_back(upload.add(rotated->positions[i]));
  }
  std::vector<cuda::Page> slot_pages;
  for (size_t slot = 0; batch.copies && slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) slot_pages.push_back(slots.encoded(slot, head));
  }
  at.problems = upload.reserve<cuda::Problem>(count);
  at.weights = upload.add(batch.weights);
  for (int side = 0; side < 2; ++side) at.items[side] = upload.add(batch.plan.items[side]);
  at.counters = upload.reserve<unsigned>(batch.plan.counters());
  at.copies = upload.reserve<cuda::CopyJob>(batch.copies ? count : 0);
  at.slot_pages = upload.add(slot_pages);
  at.slot_copies = upload.reserve<cuda::CopyJob>(slot_pages.size());
  return at;
}

// Room on the GPU for all that the kernels read and write, and the addresses of its parts.
GpuAttention::Placed GpuAttention::place(GpuBatch& batch, PieceSlots& slots, const RotatedKeys* rotated,
                                         const void* rows) {
  place_copies(batch, slots);
  const Offsets at = upload_lists(batch, slots, rotated);
  ResidentLists::Lists& lists = lists_.of(rows, batch.upload.size());
  std::byte* const input = lists.block.data();
  Placed placed;
  place_inputs(at, input, placed);
  place_outputs(batch, placed);
  if (rotated) {
    placed.angles = angles_on_gpu(*rotated);
    placed.half_split = rotated->half_split;
  }
  point_problems(batch, at, input, placed);
  if (batch.copies) {
    batch.upload.set<cuda::CopyJob>(at.copies, resident_copies(batch, at, input));
    batch.upload.set<cuda::CopyJob>(at.slot_copies, slot_copies(batch, slots, at, input));
  }
  lists_.send(batch.upload, lists);
  return placed;
}

void GpuAttention::place_inputs(const Offsets& at, const std::byte* input, Placed& placed) const {
  placed.problems = reinterpret_cast<const cuda::Problem*>(input + at.problems);
  placed.weights = reinterpret_cast<float* const*>(input + at.weights);
  placed.counters = reinterpret_cast<unsigned*>(const_cast<std::byte*>(input) + at.counters);
  for (int side = 0; side < 2; ++side)
    placed.items[side] = reinterpret_cast<const cuda::WorkItem*>(input + at.items[side]);
  placed.copies = reinterpret_cast<const cuda::CopyJob*>(input + at.copies);
  placed.slot_copies = reinterpret_cast<const cuda::CopyJob*>(input + at.slot_copies);
}

void GpuAttention::place_outputs(const GpuBatch& batch, Placed& placed) {
  Carver output;
  // Values of several elements are read at once: what stands before them has whole rows.
  output.want(batch.outputs);                                     // out
  output.want(batch.plan.partials * head_dim_);                   // values
  output.want(int64_t{batch.plan.most_queries} * batch.count());  // log_sum
  output.want(batch.plan.partials);                               // max
  output.want(batch.plan.partials);                               // sum
  output.want(batch.logits);                                      // logits
  output.start(fit(output_, output.bytes()));
  placed.out = output.next();
  placed.partials.values = output.next();
  placed.log_sum = output.next();
  placed.partials.max = output.next();
  placed.partials.sum = output.next();
  placed.logits = output.next();
}

// The problems with the addresses of what they read and write, into the upload.
void GpuAttention::point_problems(GpuBatch& batch, const Offsets& at, const std::byte* input,
                                  const Placed& placed) const {
  float* out = placed.out;
  float* logits = placed.logits;
  for (size_t i = 0; i < batch.plan.problems.size(); ++i) {
    cuda::Problem& p = batch.plan.problems[i];
    const int64_t queries = int64_t{batch.plan.group} * p.n;
    p.q = reinterpret_cast<const float*>(input + at.q[i]);
    p.pages = reinterpret_cast<const cuda::Page*>(input + at.pages[i]);
    p.tail = reinterpret_cast<const cuda::Page*>(input + at.residual[i]);
    p.out = out;
    p.logits = batch.weights[i] ? logits : nullptr;
    out += queries * head_dim_;
    if (p.logits) logits += queries * rows_of(p);
  }
  batch.upload.set<cuda::Problem>(at.problems, batch.plan.problems);
}

// Each problem's rows in memory to f32, keys rotated where they have positions.
std::vector<cuda::CopyJob> GpuAttention::resident_copies(const GpuBatch& batch, const Offsets& at,
                                                         const std::byte* input) const {
  std::vector<cuda::CopyJob> jobs;
  for (size_t i = 0; i < batch.plan.problems.size(); ++i) {
    const ResidentRows& rows = batch.resident[i];
    const auto* pages = reinterpret_cast<const cuda::Page*>(input + at.resident[i]);
    const auto* positions =
        at.positions.empty() ? nullptr : reinterpret_cast<const int32_t*>(input + at.positions[i]);
    jobs.push_back({pages, batch.plan.problems[i].tail, rows.rows, rows.residual_rows, rows.copy.k,
                    rows.copy.v, positions});
  }
  return jobs;
}

// Each slot's rows to f32, head by head.
std::vector<cuda::CopyJob> GpuAttention::slot_copies(const GpuBatch& batch, const PieceSlots& slots,
                                                     const Offsets& at, const std::byte* input) const {
  const auto* pages = reinterpret_cast<const cuda::Page*>(input + at.slot_pages);
  std::vector<cuda::CopyJob> jobs;
  for (size_t slot = 0; slot < batch.slots; ++slot) {
    for (int head = 0; head < batch.heads; ++head) {
      const F32Rows to = slots.copied(slot, head);
      jobs.push_back({pages + std::ssize(jobs), nullptr, kPieceRows, 0, to.k, to.v, nullptr});
    }
  }
  return jobs;
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
