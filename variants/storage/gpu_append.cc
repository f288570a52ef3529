// Uploads rows with the lists that kernels need, in one block, and launches the encoders.
#include "variants/storage/gpu_append.h"

#include <algorithm>
#include <map>

namespace kv {
namespace {

// The layout of pages of `units` units that lie so many bytes apart, for appends.
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

const std::byte* bytes_of(const float* rows) { return reinterpret_cast<const std::byte*>(rows); }

}  // namespace

void GpuAppend::store(std::span<const NewRows> rows) {
  tasks_.clear();  // left by a call that failed
  full_units_.clear();
  evicting_tasks_.clear();
  for (const NewRows& in : rows) {
    in.residual ? store_through_residual(in) : store_slots(in);
    // The f32 rows of all prompts together would take too much memory.
    constexpr size_t kMostTasks = 1 << 14;
    if (&in != &rows.back() && tasks_.size() < kMostTasks) continue;
    in.residual ? encode_raw_and_full() : encode(tasks_, context_.unit, false);
  }
  evict_and_encode();
}

// If the GPU chooses the slots, there is one token.
void GpuAppend::store_slots(const NewRows& in) {
  const int64_t d = context_.head_dim;
  for (int head = 0; head < context_.kv_heads; ++head) {
    Retention& policy = *in.heads[static_cast<size_t>(head)];
    // Only the last of several tokens for one slot may be stored; launches have no order inside.
    std::map<int64_t, int64_t> token_of_slot;
    for (int64_t i = 0; i < in.n; ++i) {
      const int64_t row = (head * in.n + i) * d;
      const int64_t slot = policy.admit({in.k + row, static_cast<size_t>(d)});
      if (slot != Retention::kChosenByTable) {
        token_of_slot[slot] = i;
      } else {
        if (!evicting_tasks_.empty() && evicting_tasks_.back().token != in.first) evict_and_encode();
        evicting_tasks_.push_back({policy.choosing_table()->device(), slot_runs(in, head, policy.slots()),
                                   bytes_of(in.k + row), bytes_of(in.v + row), in.first});
      }
    }
    for (const auto& [slot, i] : token_of_slot) {
      const int64_t row = (head * in.n + i) * d;
      tasks_.push_back({context_.placement.at(in.sequence, in.layer, head, slot), bytes_of(in.k + row),
                        bytes_of(in.v + row)});
    }
  }
}

SlotRuns GpuAppend::slot_runs(const NewRows& in, int head, int64_t slots) const {
  const auto at = [&](int64_t slot) { return context_.placement.at(in.sequence, in.layer, head, slot); };
  SlotRuns runs{std::min(context_.placement.run_units(), slots), {}, {}};
  for (int64_t slot = 0; slot < slots; slot += runs.units) runs.first.push_back(at(slot));
  if (runs.units == 1) return runs;
  const UnitAddress second = at(1);
  for (int p = 0; p < kPlanes; ++p) runs.distance[p] = second.plane[p] - runs.first.front().plane[p];
  return runs;
}

// Rows go to the buffer up to the one that makes a unit older than the residual rows; that unit is encoded
// before the next row takes its place. The heads go in step.
void GpuAppend::store_through_residual(const NewRows& in) {
  const UnitLayout& unit = context_.unit;
  const int64_t d = context_.head_dim;
  ResidualBuffer& residual = *in.residual;
  const RowUnits of = context_.codec.units();
  for (int64_t i = 0; i < in.n; ++i) {
    const int64_t token = in.first + i;
    for (int head = 0; head < context_.kv_heads; ++head) {
      const int64_t row = (head * in.n + i) * d;
      in.heads[static_cast<size_t>(head)]->admit({in.k + row, static_cast<size_t>(d)});
      tasks_.push_back({residual.address(head, token), bytes_of(in.k + row), bytes_of(in.v + row)});
    }
    const int64_t full = of.encoded(token);
    if (of.encoded(token + 1) == full) continue;
    for (int head = 0; head < context_.kv_heads; ++head) {
      const UnitAddress raw = residual.address(head, of.first + full * unit.rows);
      full_units_.push_back({context_.placement.at(in.sequence, in.layer, head, residual.place(full)),
                             raw.plane[kKData], raw.plane[kVData]});
    }
    if (i + 1 < in.n) encode_raw_and_full();
  }
  residual.advance(in.first + in.n);
}

void GpuAppend::encode_raw_and_full() {
  encode(tasks_, ResidualBuffer::layout(context_.head_dim, false), false);
  encode(full_units_, context_.unit, true);
}

void GpuAppend::encode(std::vector<EncodeTask>& tasks, const UnitLayout& unit, bool half) {
  if (tasks.empty()) return;
  const cuda::Layout layout = append_layout(unit, unit.bytes, 1, context_.head_dim);
  const size_t row_bytes = static_cast<size_t>(unit.rows * context_.head_dim) * sizeof(float);
  std::vector<cuda::Page> pages;
  for (const EncodeTask& task : tasks) pages.push_back(page_of(task.to));
  const cuda::AppendJob* jobs = nullptr;
  upload([&](Upload& to) {
    const cuda::Page* const page = to.add(pages);
    const auto rows = [&](const std::byte* at) { return half ? at : to.add(std::span(at, row_bytes)); };
    std::vector<cuda::AppendJob> all;
    for (const EncodeTask& task : tasks)
      all.push_back({.k = rows(task.k),
                     .v = rows(task.v),
                     .pages = page + std::ssize(all),
                     .slots = nullptr,
                     .first = 0,
                     .units = 1});
    jobs = to.add(all);
  });
  // A grid has at most 65535 blocks on its second axis.
  constexpr size_t kMostJobs = 65535;
  for (size_t first = 0; first < tasks.size(); first += kMostJobs)
    gpu_.append({layout, jobs + first, half}, static_cast<int>(std::min(kMostJobs, tasks.size() - first)), 1);
  tasks.clear();
}

// The token's rows go up, its slot and what is in it stay there.
void GpuAppend::evict_and_encode() {
  if (evicting_tasks_.empty()) return;
  const SlotRuns& runs = evicting_tasks_.front().slots;
  const cuda::Layout layout = append_layout(context_.unit, runs.distance, runs.units, context_.head_dim);
  const size_t row_bytes = static_cast<size_t>(context_.head_dim) * sizeof(float);
  std::vector<cuda::ScoredSlots> heads;
  for (const EvictingTask& task : evicting_tasks_) heads.push_back({task.scores.token, task.scores.score});
  const cuda::ScoredSlots* scored = nullptr;
  int32_t* slots = nullptr;
  const cuda::AppendJob* jobs = nullptr;
  upload([&](Upload& to) {
    scored = to.add(heads);
    slots = to.add_zeros<int32_t>(heads.size());
    std::vector<cuda::AppendJob> all;
    for (const EvictingTask& task : evicting_tasks_) {
      std::vector<cuda::Page> pages;
      for (const UnitAddress& first : task.slots.first) pages.push_back(page_of(first));
      all.push_back({.k = to.add(std::span(task.k, row_bytes)),
                     .v = to.add(std::span(task.v, row_bytes)),
                     .pages = to.add(pages),
                     .slots = slots + std::ssize(all),
                     .first = 0,
                     .units = 1});
    }
    jobs = to.add(all);
  });
  const DeviceScores& policy = evicting_tasks_.front().scores;
  const int count = static_cast<int>(heads.size());
  gpu_.choose_slots({.heads = scored,
                     .slot = slots,
                     .budget = policy.budget,
                     .recent = policy.recent,
                     .count = static_cast<int32_t>(evicting_tasks_.front().token),
                     .newest_query = policy.newest_query},
                    count);
  gpu_.append({layout, jobs, false}, count, 1);
  evicting_tasks_.clear();
}

void GpuAppend::upload(const std::function<void(Upload&)>& fill) {
  const Upload all = parts_of<Upload>(context_.memory, input_, fill);
  gpu_.upload(input_.data(), all.data(), all.size());
}

}  // namespace kv
