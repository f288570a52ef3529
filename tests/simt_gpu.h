// kernels/cuda/gpu.h over the shim: "device memory" is the CPU's, and every launch runs to its end.
#pragma once

#include "kernels/cuda/append.h"
#include "kernels/cuda/attend_simple.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/evict.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/mass.h"
#include "kernels/cuda/merge.h"

namespace kv::test {

class SimtGpu : public cuda::Gpu {
 public:
  explicit SimtGpu(unsigned seed = 1) : seed_(seed) {}
  int64_t pinned_bytes = 0;  // asked for in all
  int64_t choices = 0;       // slots that it chose

  cuda::GpuInfo info() const override { return {.name = "shim", .multiprocessors = 1}; }
  std::byte* allocate(size_t bytes) override {
    return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  void release(std::byte* p) noexcept override { std::free(p); }
  std::byte* allocate_pinned(size_t bytes) override {
    pinned_bytes += static_cast<int64_t>(bytes);
    return allocate(bytes);
  }
  void release_pinned(std::byte* p) noexcept override { std::free(p); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void synchronize() override {}

  void append(const cuda::AppendParams& params, int jobs, int most_units) override {
    launch({cuda::append_blocks(params.layout, most_units), jobs}, cuda::kAppendWarps, 0,
           [&] { cuda::append_rows(params); });
  }
  void attend_simple(const cuda::AttendParams& params, int problems, int most_splits,
                     int most_queries) override {
    launch({most_splits, problems, blocks(most_queries, cuda::kAttendWarps)}, cuda::kAttendWarps, 0,
           [&] { cuda::attend_simple(params); });
  }
  int decode_queries(const cuda::Layout& layout, int queries) const override {
    return find(layout, queries).queries;
  }
  void decode(const cuda::DecodeParams& params, int items) override {
    const cuda::Instance found = find(params.layout, params.merge.most_queries);
    if (!found.kernel) throw std::logic_error("no decode kernel fits these rows");
    launch({items, blocks(params.merge.most_queries, found.queries)}, cuda::kDecodeWarps,
           static_cast<size_t>(found.shared_bytes), [&] { found.kernel(params); });
  }
  void merge(const cuda::MergeParams& params, int problems) override {
    launch({blocks(params.most_queries, cuda::kMergeQueries), problems}, cuda::kMergeWarps, 0,
           [&] { cuda::merge_splits(params); });
  }
  void add_mass(const cuda::MassParams& params, int problems, int most_rows) override {
    const int threads = cuda::kAttendWarps * simt::kWarp;
    launch({(most_rows + threads - 1) / threads, problems}, cuda::kAttendWarps, 0,
           [&] { cuda::add_mass(params); });
  }
  void choose_slots(const cuda::EvictParams& params, int heads) override {
    choices += heads;
    launch({heads}, cuda::kEvictWarps, cuda::kEvictSharedBytes, [&] { cuda::choose_slot(params); });
  }

 private:
  static int blocks(int queries, int of) { return (queries + of - 1) / of; }
  static cuda::Instance find(const cuda::Layout& layout, int queries) {
    cuda::Instance found{};
    const auto look_in = [&](auto list) {
      if (!found.kernel) found = cuda::find_instance(list, layout, queries);
    };
    look_in(cuda::PlainCodecs());
    look_in(cuda::Fp8Codecs());
    look_in(cuda::BlockCodecs());
    look_in(cuda::TokenCodecs());
    look_in(cuda::SymmetricCodecs());
    look_in(cuda::KiviCodecs());
    return found;
  }
  void launch(simt::Dim grid, int warps, size_t shared_bytes, const std::function<void()>& kernel) {
    simt::Machine::run(
        {.grid = grid, .threads = warps * simt::kWarp, .shared_bytes = shared_bytes, .seed = seed_++},
        kernel);
  }

  unsigned seed_;
};

}  // namespace kv::test
