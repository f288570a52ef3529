// Counts every byte that a cache holds, by kind. The cache cannot report a number of its own: it sees only the
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "variants/core/memory.h"

namespace kv::memory {

class Ledger : public Memory {
 public:
  struct Count {
    int64_t current_bytes = 0;
    int64_t peak_bytes = 0;
    int64_t allocations = 0;
  };

  // `limit_bytes`: larger allocations throw std::bad_alloc, as on a machine of that size. `gpu`: holds rows instead
  // of the host's memory; must outlive the ledger.
  explicit Ledger(int64_t limit_bytes = INT64_MAX, kv::cuda::Gpu* gpu = nullptr)
      : limit_bytes_(limit_bytes), gpu_(gpu) {}
  ~Ledger() override;
  int64_t limit_bytes() const { return limit_bytes_; }

  // Aligned to 64, neither zeroed nor touched. The ledger frees blocks still held when it is destroyed.
  std::byte* allocate(size_t bytes, ByteKind kind) override;
  std::byte* allocate_rows(size_t bytes, ByteKind kind, Tier tier) override;
  kv::cuda::Gpu* gpu() const override { return gpu_; }
  // Records a GPU's times from now on.
  void time_gpu() { times_gpu_ = true; }
  GpuTime* gpu_time() override { return times_gpu_ && gpu_ ? &gpu_time_ : nullptr; }
  // Aborts with a line on stderr for a block that is not held: no figure of such a cache could be trusted.
  void release(std::byte* p) noexcept override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void count_disk(int64_t bytes) noexcept override;
  void count_disk_read(int64_t bytes, double seconds) noexcept override;
  void count_disk_wait(double seconds) noexcept override;
  void count_call(double seconds) noexcept override;
  void count_codes(int64_t values, int64_t bytes) noexcept override;

  Count payload() const { return at(ByteKind::kPayload); }
  Count metadata() const { return at(ByteKind::kMetadata); }
  Count workspace() const { return at(ByteKind::kWorkspace); }
  // Bytes of all kinds in a GPU's memory.
  Count device() const;
  // Bytes in files, apart from all memory; `allocations` counts growths.
  Count disk() const;
  // Reads from files since the ledger began.
  struct DiskReads {
    int64_t bytes = 0, requests = 0;
    double seconds = 0.0;  // all requests together
    double waited = 0.0;   // the part during which attention waited
  };
  DiskReads disk_reads() const;
  // Calls of users' functions since the ledger began.
  struct Calls {
    int64_t count = 0;
    double seconds = 0.0;
    int64_t coded_values = 0, code_bytes = 0;
  };
  Calls calls() const;
  // Payload and metadata by tier; bytes without a tier count as hot.
  TierBytes tiers() const;
  // The tier of the payload or metadata at this address; none for workspace and for blocks not held.
  std::optional<Tier> tier_at(const std::byte* p) const;
  int64_t copied_bytes() const;
  // Since the ledger began.
  int64_t peak_total_bytes() const;
  // Restarts the kinds' peaks and the copy count from the bytes held now.
  void reset_peaks();

  // Checks that the sum of the kinds equals the allocator's outstanding bytes. Throws std::logic_error with both
  // figures if not.
  void assert_balanced() const;

 private:
  enum class Place { kHost, kPinned, kGpu };
  struct Live {
    size_t bytes;
    ByteKind kind;
    Place place;
    Tier tier;
  };
  std::byte* allocate(size_t bytes, ByteKind kind, Place place, Tier tier);
  Count at(ByteKind kind) const;
  // The allocation routine: the only writer of allocator_bytes_, unaware of kinds.
  std::byte* take(size_t bytes, Place place);
  void give_back(std::byte* p, size_t bytes, Place place) noexcept;

  mutable std::mutex mutex_;
  std::map<const std::byte*, Live> live_;
  Count counts_[3];
  Count disk_, device_;
  DiskReads disk_reads_;
  Calls calls_;
  int64_t warm_bytes_ = 0;  // payload and metadata
  int64_t copied_bytes_ = 0;
  int64_t allocator_bytes_ = 0;  // only take and give_back write it
  int64_t peak_total_bytes_ = 0;
  int64_t limit_bytes_;
  kv::cuda::Gpu* gpu_;
  bool times_gpu_ = false;
  GpuTime gpu_time_;
};

}  // namespace kv::memory
