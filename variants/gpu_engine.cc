#include "variants/gpu_engine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cuda/plan.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};
constexpr int32_t kSimpleSplitRows = 512;

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

int32_t unit_rows_of(const Encoding& k, const Encoding& v) { return std::max<int32_t>(k.group, v.group); }

// A span's side as pages see it: `unit_rows` rows of it are one unit, of one or several of its own.
cuda::SideLayout side_layout(const Side& side, int32_t unit_rows) {
  const int32_t inner = unit_rows / side.encoding.group;
  const auto stride = static_cast<int32_t>(side.stride), meta_stride = static_cast<int32_t>(side.meta_stride);
  return {side.encoding, stride, meta_stride, stride * inner, meta_stride * inner};
}

cuda::Layout layout_of(const Span& span, int head_dim) {
  const int32_t unit = unit_rows_of(span.k.encoding, span.v.encoding);
  return {.k = side_layout(span.k, unit),
          .v = side_layout(span.v, unit),
          .head_dim = head_dim,
          .unit_rows = unit,
          .page_units = 1};
}

// The page that begins at `unit` of the span.
cuda::Page page_at(const Span& span, const cuda::Layout& layout, int64_t unit) {
  const auto at = [&](const std::byte* base, int64_t stride) {
    return base ? const_cast<std::byte*>(base) + unit * stride : nullptr;
  };
  return {at(span.k.data, layout.k.data_stride), at(span.k.meta, layout.k.meta_stride),
          at(span.v.data, layout.v.data_stride), at(span.v.meta, layout.v.meta_stride)};
}

// As appends see pages of `units` units that lie so many bytes apart.
cuda::Layout append_layout(const UnitLayout& unit, const std::array<int64_t, kPlanes>& distance,
                           int64_t units, int head_dim) {
  const auto side = [&](const Encoding& e, int data, int meta) {
    return cuda::SideLayout{e, static_cast<int32_t>(unit.stride[data]),
                            static_cast<int32_t>(unit.stride[meta]), static_cast<int32_t>(distance[data]),
                            static_cast<int32_t>(distance[meta])};
  };
  return {.k = side(unit.k, kKData, kKMeta),
          .v = side(unit.v, kVData, kVMeta),
          .head_dim = head_dim,
          .unit_rows = static_cast<int32_t>(unit.rows),
          .page_units = static_cast<int32_t>(units)};
}

cuda::Page page_of(const UnitAddress& at) {
  return {at.plane[kKData], at.plane[kKMeta], at.plane[kVData], at.plane[kVMeta]};
}

int64_t rows_of(std::span<const Span> spans) {
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  return rows;
}

// Cuts one block into arrays of f32: first all wants, then, in the same order, their addresses.
class Carver {
 public:
  void want(int64_t numbers) {
    offset_.push_back(bytes_);
    bytes_ += aligned(static_cast<size_t>(numbers) * sizeof(float));
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

// What goes to the GPU in one copy. Places are known before the address is.
class GpuEngine::Upload {
 public:
  template <class T>
  size_t add(std::span<const T> values) {
    const size_t at = bytes_.size();
    bytes_.resize(at + aligned(values.size_bytes()));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  // As add(), for values that will be given by set().
  template <class T>
  size_t reserve(size_t count) {
    const size_t at = bytes_.size();
    bytes_.resize(at + aligned(count * sizeof(T)));
    return at;
  }
  template <class T>
  void set(size_t at, std::span<const T> values) {
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
  }
  size_t size() const { return bytes_.size(); }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

// The problems of one attend: their arrays' places in the upload, and the room for what kernels make of them.
struct GpuEngine::Batch {
  Upload upload;
  cuda::Layout layout{}, tail{};
  std::vector<size_t> q_at, pages_at, tail_at;  // [problems]
  std::vector<cuda::Problem> problems;
  std::vector<float*> mass;              // [problems] null where it is not asked for
  std::vector<cuda::WorkItem> items[2];  // of the pages and of the tails, where decode runs
  int32_t group = 1, most_queries = 0, most_splits = 0, most_rows = 0;
  int64_t outputs = 0, logits = 0, partials = 0;  // of all problems together
  int32_t block_queries = 0;                      // of the fast kernel; 0 where the plain one runs
  // On the GPU, once there is room.
  const cuda::Problem* device_problems = nullptr;
  const cuda::WorkItem* device_items[2] = {};
  unsigned* counters = nullptr;
  float* const* mass_pointers = nullptr;
  float *out = nullptr, *log_sum = nullptr;
  cuda::Partials room{};

  int count() const { return static_cast<int>(problems.size()); }
  int32_t blocks(int32_t queries) const { return (queries + block_queries - 1) / block_queries; }
  void add(const HeadQueries& p, const Encoding& k, const Encoding& v);
  void cut(int multiprocessors);
};

GpuEngine::GpuEngine(Memory& memory, const Codec& codec, int head_dim)
    : memory_(memory), gpu_(*memory.gpu()), codec_(codec), head_dim_(head_dim) {}

std::string GpuEngine::unsupported_reason(const Codec& codec, int head_dim) {
  if (head_dim > cuda::kMaxHeadDim) {
    return "head_dim " + std::to_string(head_dim) + " is more than the " + std::to_string(cuda::kMaxHeadDim) +
           " that the GPU's kernels take";
  }
  return codec.read_copy ? "read=copy is the CPU's alone: the GPU's kernels read encoded rows" : "";
}

std::byte* GpuEngine::fit(Block& block, size_t bytes) {
  if (block.size() < bytes) {
    block = Block();
    block = Block::of_rows(memory_, aligned(bytes + bytes / 8), ByteKind::kWorkspace);
  }
  return block.data();
}

void GpuEngine::encode(const UnitLayout& unit, std::span<const EncodeTask> tasks) {
  launch_append(unit, tasks, false);
}

void GpuEngine::encode_from_tail(const UnitLayout& unit, std::span<const EncodeTask> tasks) {
  launch_append(unit, tasks, true);
}

void GpuEngine::launch_append(const UnitLayout& unit, std::span<const EncodeTask> tasks, bool half) {
  if (tasks.empty()) return;
  const cuda::Layout layout = append_layout(unit, unit.bytes, 1, head_dim_);
  Upload upload;
  const size_t row_bytes = static_cast<size_t>(unit.rows * head_dim_) * sizeof(float);
  std::vector<cuda::Page> pages;
  std::vector<size_t> rows_at;
  for (const EncodeTask& task : tasks) {
    pages.push_back(page_of(task.to));
    if (half) continue;
    rows_at.push_back(upload.add(std::span(task.k, row_bytes)));
    rows_at.push_back(upload.add(std::span(task.v, row_bytes)));
  }
  const size_t pages_at = upload.add(std::span<const cuda::Page>(pages));
  const size_t jobs_at = upload.reserve<cuda::AppendJob>(tasks.size());
  const std::byte* base = fit(input_, upload.size());
  std::vector<cuda::AppendJob> jobs;
  for (size_t i = 0; i < tasks.size(); ++i) {
    jobs.push_back({.k = half ? tasks[i].k : base + rows_at[2 * i],
                    .v = half ? tasks[i].v : base + rows_at[2 * i + 1],
                    .pages = reinterpret_cast<const cuda::Page*>(base + pages_at) + i,
                    .slots = nullptr,
                    .first = 0,
                    .units = 1});
  }
  upload.set(jobs_at, std::span<const cuda::AppendJob>(jobs));
  gpu_.copy(input_.data(), upload.data(), upload.size());
  // A grid has at most 65535 blocks on its second axis.
  constexpr size_t kMostJobs = 65535;
  for (size_t first = 0; first < jobs.size(); first += kMostJobs) {
    gpu_.append({layout, reinterpret_cast<const cuda::AppendJob*>(base + jobs_at) + first, half},
                static_cast<int>(std::min(kMostJobs, jobs.size() - first)), 1);
  }
  gpu_.synchronize();
}

// The token's rows go up, its slot and what is in it stay there.
void GpuEngine::evict_and_encode(const UnitLayout& unit, int64_t token, std::span<const EvictingTask> tasks) {
  if (tasks.empty()) return;
  const SlotRuns& runs = tasks.front().slots;
  const cuda::Layout layout = append_layout(unit, runs.distance, runs.units, head_dim_);
  Upload upload;
  const size_t row_bytes = static_cast<size_t>(head_dim_) * sizeof(float);
  std::vector<size_t> k_at, v_at, pages_at;
  std::vector<cuda::ScoredSlots> heads;
  for (const EvictingTask& task : tasks) {
    std::vector<cuda::Page> pages;
    for (const UnitAddress& first : task.slots.first) pages.push_back(page_of(first));
    k_at.push_back(upload.add(std::span(task.k, row_bytes)));
    v_at.push_back(upload.add(std::span(task.v, row_bytes)));
    pages_at.push_back(upload.add(std::span<const cuda::Page>(pages)));
    heads.push_back({task.state.token, task.state.score});
  }
  const size_t heads_at = upload.add(std::span<const cuda::ScoredSlots>(heads));
  const size_t slots_at = upload.reserve<int32_t>(tasks.size());
  const size_t jobs_at = upload.reserve<cuda::AppendJob>(tasks.size());
  std::byte* const base = fit(input_, upload.size());
  int32_t* const slots = reinterpret_cast<int32_t*>(base + slots_at);
  std::vector<cuda::AppendJob> jobs;
  for (size_t i = 0; i < tasks.size(); ++i) {
    jobs.push_back({.k = base + k_at[i],
                    .v = base + v_at[i],
                    .pages = reinterpret_cast<const cuda::Page*>(base + pages_at[i]),
                    .slots = slots + i,
                    .first = 0,
                    .units = 1});
  }
  upload.set(jobs_at, std::span<const cuda::AppendJob>(jobs));
  gpu_.copy(base, upload.data(), upload.size());
  const GpuState& policy = tasks.front().state;
  const int count = static_cast<int>(tasks.size());
  gpu_.choose_slots({.heads = reinterpret_cast<const cuda::ScoredSlots*>(base + heads_at),
                     .slot = slots,
                     .budget = policy.budget,
                     .recent = policy.recent,
                     .count = static_cast<int32_t>(token),
                     .newest_query = policy.newest_query},
                    count);
  gpu_.append({layout, reinterpret_cast<const cuda::AppendJob*>(base + jobs_at), false}, count, 1);
  gpu_.synchronize();
}

// A problem's encoded rows are equal pages, and its raw ones, if there are any, pages of one unit's rows.
void GpuEngine::Batch::add(const HeadQueries& p, const Encoding& k, const Encoding& v) {
  const auto border = std::find_if(p.spans.begin(), p.spans.end(), [&](const Span& span) {
    return span.k.encoding != k || span.v.encoding != v;
  });
  const std::span<const Span> encoded(p.spans.begin(), border), raw(border, p.spans.end());
  std::vector<cuda::Page> pages, tail_pages;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (i + 1 < encoded.size() && encoded[i].rows != int64_t{layout.page_units} * layout.unit_rows) {
      throw std::logic_error("spans of unequal rows cannot be pages");
    }
    pages.push_back(page_at(encoded[i], layout, 0));
  }
  for (const Span& span : raw) {
    for (int64_t row = 0; row < span.rows; row += tail.page_units)
      tail_pages.push_back(page_at(span, tail, row));
  }
  const int64_t queries = int64_t{p.group} * p.n, numbers = queries * layout.head_dim;
  q_at.push_back(upload.add(std::span(p.q, static_cast<size_t>(numbers))));
  pages_at.push_back(upload.add(std::span<const cuda::Page>(pages)));
  tail_at.push_back(upload.add(std::span<const cuda::Page>(tail_pages)));
  problems.push_back({.q = nullptr,
                      .out = nullptr,
                      .pages = nullptr,
                      .tail = nullptr,
                      .rows = static_cast<int32_t>(rows_of(encoded)),
                      .tail_rows = static_cast<int32_t>(rows_of(raw)),
                      .n = static_cast<int32_t>(p.n),
                      .visible = static_cast<int32_t>(p.visible),
                      .splits = 0,
                      .first_partial = 0,
                      .logits = nullptr});
  const int32_t all = rows_of(problems.back());
  mass.push_back(p.mass);
  outputs += numbers;
  if (p.mass) logits += queries * all;
  most_queries = std::max(most_queries, static_cast<int32_t>(queries));
  most_rows = std::max(most_rows, all);
}

void GpuEngine::Batch::cut(int multiprocessors) {
  int64_t read = 0;
  for (const cuda::Problem& p : problems) {
    if (block_queries) read += int64_t{rows_of(p)} * blocks(group * p.n);
  }
  const int32_t each = cuda::item_rows(read, multiprocessors);
  for (int32_t i = 0; i < count(); ++i) {
    cuda::Problem& p = problems[static_cast<size_t>(i)];
    if (block_queries) {
      p.splits = cuda::cut_rows(i, p.rows, each, 0, items[0]);
      p.splits = cuda::cut_rows(i, p.tail_rows, each, p.splits, items[1]);
    } else {
      p.splits = (rows_of(p) + kSimpleSplitRows - 1) / kSimpleSplitRows;
    }
    p.first_partial = partials;
    partials += int64_t{p.splits} * group * p.n;
    most_splits = std::max(most_splits, p.splits);
  }
}

// The pages' rows are those of the longest first span: where a list has several spans, all but the last are
// that long.
GpuEngine::Batch GpuEngine::pack(std::span<const HeadQueries> problems) const {
  Batch batch;
  const Side raw{.stride = 2 * int64_t{head_dim_}, .encoding = kRaw};
  batch.tail = layout_of({.k = raw, .v = raw}, head_dim_);
  batch.tail.page_units = static_cast<int32_t>(codec_.unit_rows());
  batch.layout = batch.tail;
  batch.group = problems.front().group;
  int64_t page_rows = 0;
  for (const HeadQueries& p : problems) {
    const Span& first = p.spans.front();
    if (first.k.encoding != codec_.k || first.v.encoding != codec_.v || first.rows <= page_rows) continue;
    page_rows = first.rows;
    batch.layout = layout_of(first, head_dim_);
    batch.layout.page_units =
        static_cast<int32_t>((page_rows + batch.layout.unit_rows - 1) / batch.layout.unit_rows);
  }
  for (const HeadQueries& p : problems) batch.add(p, codec_.k, codec_.v);
  // Of a problem, the same queries must meet in the blocks of both lists.
  const bool raw_rows =
      std::any_of(batch.problems.begin(), batch.problems.end(), [](auto& p) { return p.tail_rows > 0; });
  const int queries = gpu_.decode_queries(batch.layout, batch.most_queries);
  if (!raw_rows || gpu_.decode_queries(batch.tail, batch.most_queries) == queries) {
    batch.block_queries = queries;
  }
  batch.cut(gpu_.info().multiprocessors);
  return batch;
}

// Room on the GPU for all that the kernels read and write, and the addresses of its parts.
void GpuEngine::place(Batch& batch) {
  const size_t count = batch.problems.size();
  const size_t problems_at = batch.upload.reserve<cuda::Problem>(count);
  const size_t mass_at = batch.upload.reserve<float*>(count);
  const size_t items_at[2] = {batch.upload.add(std::span<const cuda::WorkItem>(batch.items[0])),
                              batch.upload.add(std::span<const cuda::WorkItem>(batch.items[1]))};
  const size_t blocks = batch.block_queries ? static_cast<size_t>(batch.blocks(batch.most_queries)) : 0;
  const size_t counters_at = batch.upload.reserve<unsigned>(count * blocks);
  std::byte* const input = fit(input_, batch.upload.size());
  Carver output;
  output.want(batch.outputs);                                             // out
  output.want(int64_t{batch.most_queries} * std::ssize(batch.problems));  // log_sum
  output.want(batch.partials);                                            // max
  output.want(batch.partials);                                            // sum
  output.want(batch.partials * head_dim_);                                // values
  output.want(batch.logits);                                              // logits
  output.start(fit(output_, output.bytes()));
  batch.out = output.next();
  batch.log_sum = output.next();
  batch.room = {output.next(), output.next(), output.next()};
  float* logits = output.next();
  float* out = batch.out;
  for (size_t i = 0; i < count; ++i) {
    cuda::Problem& p = batch.problems[i];
    const int64_t queries = int64_t{batch.group} * p.n;
    p.q = reinterpret_cast<const float*>(input + batch.q_at[i]);
    p.pages = reinterpret_cast<const cuda::Page*>(input + batch.pages_at[i]);
    p.tail = reinterpret_cast<const cuda::Page*>(input + batch.tail_at[i]);
    p.out = out;
    p.logits = batch.mass[i] ? logits : nullptr;
    out += queries * head_dim_;
    if (p.logits) logits += queries * rows_of(p);
  }
  batch.upload.set(problems_at, std::span<const cuda::Problem>(batch.problems));
  batch.upload.set(mass_at, std::span<float* const>(batch.mass));
  gpu_.copy(input, batch.upload.data(), batch.upload.size());
  batch.device_problems = reinterpret_cast<const cuda::Problem*>(input + problems_at);
  batch.mass_pointers = reinterpret_cast<float* const*>(input + mass_at);
  batch.counters = reinterpret_cast<unsigned*>(input + counters_at);
  for (int side = 0; side < 2; ++side) {
    batch.device_items[side] = reinterpret_cast<const cuda::WorkItem*>(input + items_at[side]);
  }
}

void GpuEngine::run(const Batch& batch) {
  const cuda::MergeParams merge{batch.device_problems, batch.room,        batch.group, head_dim_,
                                batch.log_sum,         batch.most_queries};
  if (!batch.block_queries) {
    gpu_.attend_simple(
        {batch.layout, batch.tail, batch.device_problems, batch.room, batch.group, kSimpleSplitRows},
        batch.count(), batch.most_splits, batch.most_queries);
    return gpu_.merge(merge, batch.count());
  }
  for (int side = 0; side < 2; ++side) {
    if (batch.items[side].empty()) continue;
    gpu_.decode(
        {side ? batch.tail : batch.layout, batch.device_items[side], merge, batch.counters, side == 1},
        static_cast<int>(batch.items[side].size()));
  }
}

void GpuEngine::attend(std::span<const HeadQueries> problems) {
  if (problems.empty()) return;
  Batch batch = pack(problems);
  place(batch);
  run(batch);
  if (batch.logits > 0) {
    gpu_.add_mass(
        {batch.device_problems, batch.log_sum, batch.mass_pointers, batch.group, batch.most_queries},
        batch.count(), batch.most_rows);
  }
  fast_ = batch.block_queries > 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    const cuda::Problem& p = batch.problems[i];
    gpu_.copy(problems[i].out, p.out, static_cast<size_t>(batch.group * p.n * head_dim_) * sizeof(float));
  }
}

std::string GpuEngine::kernel() const {
  const cuda::GpuInfo info = gpu_.info();
  return "cuda" + std::to_string(info.major) + std::to_string(info.minor) + (fast_ ? "_decode" : "_simple");
}

std::vector<Span> GpuEngine::look(std::span<const Span> spans) {
  std::vector<Span> copies(spans.begin(), spans.end());
  struct Part {
    const std::byte** at;
    int64_t bytes;
  };
  std::vector<Part> parts;
  int64_t bytes = 0;
  for (Span& span : copies) {
    for (Side* side : {&span.k, &span.v}) {
      // The last unit ends where its own bytes do, not a stride further.
      const int64_t before = (span.rows + side->encoding.group - 1) / side->encoding.group - 1;
      parts.push_back({&side->data, before * side->stride + unit_data_bytes(side->encoding, head_dim_)});
      bytes += parts.back().bytes;
      if (!side->meta) continue;
      parts.push_back({&side->meta, before * side->meta_stride + unit_meta_bytes(side->encoding, head_dim_)});
      bytes += parts.back().bytes;
    }
  }
  looked_.resize(static_cast<size_t>(bytes));
  std::byte* to = looked_.data();
  for (const Part& part : parts) {
    gpu_.copy(to, *part.at, static_cast<size_t>(part.bytes));
    *part.at = to;
    to += part.bytes;
  }
  return copies;
}

}  // namespace kv
