// The source of all bytes of caches. The harness's ledger implements this, so a variant cannot misreport its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

namespace kv {

namespace cuda {
class Gpu;
}

// A pool of blocks is used up. `in_use` of its blocks hold rows; the append that was refused needs `needed`.
class OutOfBlocks : public std::bad_alloc {
 public:
  OutOfBlocks(int64_t pool, int64_t in_use, int64_t needed)
      : text_(std::make_shared<std::string>(
            "out of blocks: the pool has " + std::to_string(pool) + ", " + std::to_string(in_use) +
            " in use, and " + std::to_string(needed) + " more are needed; release a sequence or give pool=" +
            std::to_string(in_use + needed) + " or more")) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // shared, since copying an exception must not throw
};

// The system refuses to write rows to a file, as where the disk is full: what, where and the system's reason.
struct DiskError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ByteKind {
  kPayload,    // encoded K and V
  kMetadata,   // scales, zero points, block tables, scores
  kWorkspace,  // transient: partial results, decoded copies
};

// Places for rows: the memory that kernels work in, or a second pool of the host's memory.
enum class Tier { kHot, kWarm };

// Bytes by where they lie: in these two, and in files.
struct TierBytes {
  int64_t hot = 0, warm = 0, disk = 0;
  friend bool operator==(const TierBytes&, const TierBytes&) = default;
};

// Time that a GPU has taken for attention, by its own clock.
struct GpuTime {
  double us = 0.0;
};

class Memory {
 public:
  virtual ~Memory() = default;
  // `bytes` (> 0) aligned to 64. Throws std::bad_alloc; nothing is counted then.
  virtual std::byte* allocate(size_t bytes, ByteKind kind) = 0;
  virtual void release(std::byte* p) noexcept = 0;
  // The same for bytes that only kernels touch: in a GPU's memory where there is one or, in the warm tier, in
  // host memory that the GPU copies from by itself.
  virtual std::byte* allocate_rows(size_t bytes, ByteKind kind, Tier /*tier*/) {
    return allocate(bytes, kind);
  }
  // Whose memory that is; null where rows are the host's.
  virtual cuda::Gpu* gpu() const { return nullptr; }
  // The sum of that time; null if it is not wanted, since asking takes time.
  virtual GpuTime* gpu_time() { return nullptr; }
  // True if kernels read rows of this tier where they lie. Otherwise rows come to the kernels in pieces.
  bool is_read_in_place(Tier tier) const { return tier == Tier::kHot || !gpu(); }
  // memcpy that is charged to the cache: growth and slicing copy through here.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // A placement's file has grown (or, negative, shrunk) by these bytes on its disk.
  virtual void count_disk(int64_t bytes) noexcept = 0;
  // One request has read these bytes of it, in so many seconds. From any thread.
  virtual void count_disk_read(int64_t bytes, double seconds) noexcept = 0;
  // A user's function has run for so many seconds. From any thread.
  virtual void count_call(double /*seconds*/) noexcept {}
  // A user's codec has encoded so many values to codes of so many bytes.
  virtual void count_codes(int64_t /*values*/, int64_t /*bytes*/) noexcept {}
  // Attention has stood still for so many seconds until such a request was done.
  virtual void count_disk_wait(double seconds) noexcept = 0;
};

// Owns one block of a Memory. Movable; empty when default-made or made with no bytes.
class Block {
 public:
  Block() = default;
  Block(Memory& memory, size_t bytes, ByteKind kind)
      : memory_(&memory), data_(bytes ? memory.allocate(bytes, kind) : nullptr), bytes_(bytes) {}
  // A block of what only kernels touch.
  static Block of_rows(Memory& memory, size_t bytes, ByteKind kind, Tier tier = Tier::kHot) {
    Block block;
    block.memory_ = &memory;
    block.data_ = bytes ? memory.allocate_rows(bytes, kind, tier) : nullptr;
    block.bytes_ = bytes;
    return block;
  }
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block(std::move(other)).swap(*this);
    return *this;
  }
  ~Block() {
    if (data_) memory_->release(data_);
  }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  void swap(Block& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kv
