#include "variants/gpu_engine.h"

#include <algorithm>

#include "kernels/encoding.h"

namespace kv {
namespace {

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

}  // namespace

GpuEngine::GpuEngine(Memory& memory, const Codec& codec, int head_dim)
    : memory_(memory), gpu_(*memory.gpu()), head_dim_(head_dim), attention_(memory, codec, head_dim) {}

std::string GpuEngine::unsupported_reason(int head_dim) {
  if (head_dim > cuda::kMaxHeadDim) {
    return "head_dim " + std::to_string(head_dim) + " is more than the " + std::to_string(cuda::kMaxHeadDim) +
           " that the GPU's kernels take";
  }
  return "";
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
  const std::byte* base = fit(upload.size());
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
  std::byte* const base = fit(upload.size());
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

std::string GpuEngine::kernel() const {
  const cuda::GpuInfo info = gpu_.info();
  return "cuda" + std::to_string(info.major) + std::to_string(info.minor) +
         (attention_.fast() ? "_decode" : "_simple");
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
