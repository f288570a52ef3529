// kernels/cuda/gpu.h over the shim: "device memory" is the CPU's.
//
// Both queues are adversarial: work runs only when a caller waits for it, and copies of kPrefetch run either as late or as early
// as the waits allow. A missing wait therefore changes the results in one of the two.
#pragma once

#include <deque>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::test {

class SimtGpu : public cuda::Gpu {
 public:
  enum class Late { kPrefetch, kMain, kBoth };

  explicit SimtGpu(unsigned seed = 1, Late late = Late::kBoth) : seed_(seed), late_(late) {}
  int64_t pinned_bytes = 0;  // total of allocations
  int64_t choices = 0;       // slots chosen
  int64_t copies_ahead = 0;
  int64_t uploads = 0, uploaded_bytes = 0, appends = 0;
  int64_t skipped_wait = -1;  // for tests of the tests: the n-th wait of a queue that is left out
  int64_t waits = 0;
  bool host_waits = true;
  int64_t failing_copy = -1;  // the n-th copy ahead throws
  simt::Launch settings{};    // of every launch, besides its size; a seed of 0 changes from launch to launch
  int most_shared_bytes = 227 << 10;  // an H100's

  cuda::GpuInfo info() const override {
    return {.name = "shim", .multiprocessors = 8, .l2_bytes = 1 << 12, .free_bytes = size_t{1} << 32};
  }
  cuda::ItemCosts item_costs() const override { return {.begin_us = 0.0}; }  // short rows are split as well
  std::byte* allocate(size_t bytes, Place place) override {
    refuse_in_graph();
    if (place == Place::kPinned) pinned_bytes += static_cast<int64_t>(bytes);
    return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  void release(std::byte* p, Place) noexcept override {
    finish();
    std::free(p);
  }
  void copy(void* to, const void* from, size_t bytes) override {
    refuse_in_graph();
    main_.run_to(main_.end());
    std::memcpy(to, from, bytes);
  }
  void upload(void* to, const void* from, size_t bytes) override {
    refuse_in_graph();
    ++uploads;
    uploaded_bytes += static_cast<int64_t>(bytes);
    const auto* first = static_cast<const std::byte*>(from);
    give(Queue::kMain, [to, staged = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  }
  void synchronize() override {
    refuse_in_graph();
    finish();
  }

  void prefetch(void* to, const void* from, size_t bytes) override {
    refuse_in_graph();
    if (copies_ahead++ == failing_copy) throw std::runtime_error("a copy failed");
    give(Queue::kPrefetch, [=] { std::memcpy(to, from, bytes); });
  }
  Mark mark(Queue queue) override {
    marks_.push_back({queue, of(queue).end()});
    return std::ssize(marks_) - 1;
  }
  void wait(Queue queue, Mark mark) override {
    refuse_in_graph();
    if (waits++ == skipped_wait) return;
    give(queue, [this, mark] { run_to(mark); });
  }
  void wait(Mark mark) override {
    refuse_in_graph();
    if (host_waits) run_to(mark);
  }

  // A launch takes a microsecond. A graph may have launches alone, as in CUDA.
  double time_us(Timed as, const std::function<void()>& work) override {
    const int64_t before = launches_;
    {
      recording_ = as == Timed::kGraph;
      const std::shared_ptr<void> ends(nullptr, [this](void*) { recording_ = false; });
      work();
    }
    main_.run_to(main_.end());
    return static_cast<double>(launches_ - before);
  }
  int sm_mhz() override { return 1000 + static_cast<int>(launches_ % 2); }

  void append(const cuda::AppendParams& params, int jobs, int most_units) override;
  void copy_rows(const cuda::CopyParams& params, int jobs, int most_rows) override;
  void attend_simple(const cuda::AttendParams& params, int problems, int most_splits,
                     int most_queries) override;
  cuda::Instance decode_instance(const cuda::Layout& layout, int queries) const override;
  void decode(const cuda::DecodeParams& params, int items) override;
  void merge(const cuda::MergeParams& params, int problems) override;
  void add_attention_weights(const cuda::AttentionWeightsParams& params, int problems,
                             int most_rows) override;
  void choose_slots(const cuda::EvictParams& params, int heads) override;
  void read_all(const cuda::ReadParams& params, int blocks) override;

 private:
  void refuse_in_graph() const {
    if (recording_) throw std::logic_error("a graph takes launches alone");
  }
  struct Work {
    std::deque<std::function<void()>> given;
    int64_t done = 0;  // and removed from `given`
    int64_t end() const { return done + std::ssize(given); }
    void run_to(int64_t end) {
      while (done < end) {
        const std::function<void()> next = std::move(given.front());
        given.pop_front();
        ++done;
        next();
      }
    }
  };
  Work& of(Queue queue) { return queue == Queue::kMain ? main_ : ahead_; }
  void give(Queue queue, std::function<void()> work) {
    of(queue).given.push_back(std::move(work));
    const bool late = late_ == Late::kBoth || (late_ == Late::kMain) == (queue == Queue::kMain);
    if (!late) of(queue).run_to(of(queue).end());
  }
  void run_to(Mark mark) {
    const auto [queue, end] = marks_[static_cast<size_t>(mark)];
    of(queue).run_to(end);
  }
  void finish() {
    for (Work* work : {&main_, &ahead_}) work->run_to(work->end());
  }

  void launch(simt::Dim grid, int warps, size_t shared_bytes, const std::function<void()>& kernel) {
    ++launches_;
    simt::Launch how = settings;
    how.grid = grid;
    how.threads = warps * simt::kWarp;
    how.shared_bytes = shared_bytes;
    if (how.seed == 0) how.seed = seed_++;
    give(Queue::kMain, [=] { simt::Machine::run(how, kernel); });
  }

  unsigned seed_;
  int64_t launches_ = 0;
  bool recording_ = false;
  const Late late_;
  Work main_, ahead_;
  struct Given {
    Queue queue;
    int64_t end;
  };
  std::vector<Given> marks_;
};

}  // namespace kv::test
