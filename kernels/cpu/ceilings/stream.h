// A plain read of memory: the ceiling of attention's bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kv::cpu {

// Adds up all of `bytes` (a multiple of 4096, 64-byte aligned) as 32-bit words on all threads, each thread
// over its own range in several streams at once, since one stream alone does not keep memory busy. Returns
// the sum, so that the reads cannot be left out.
uint64_t read_all(const std::byte* data, size_t bytes);

// Consecutive bytes, at any address.
struct ByteRange {
  const std::byte* data;
  size_t bytes;
};

// The ranges in `threads` parts that follow one another, of about as many bytes each; none is cut.
std::vector<std::span<const ByteRange>> share_out(std::span<const ByteRange> ranges, size_t threads);

// Orders in which a range is read: its four quarters side by side, or one line after another with lines asked for in advance.
// Which is faster depends on the machine and on the place of the bytes.
enum class ReadOrder { kQuarters, kLines };
inline constexpr ReadOrder kReadOrders[] = {ReadOrder::kQuarters, ReadOrder::kLines};

// Adds up ranges, each as little-endian 32-bit words, the last one filled up with zeros; a part on each thread.
uint64_t read_ranges(std::span<const std::span<const ByteRange>> parts,
                     ReadOrder order = ReadOrder::kQuarters);

}  // namespace kv::cpu
