#include "variants/storage/resident_lists.h"

#include <algorithm>

#include "kernels/cuda/gpu.h"

namespace kv {

ResidentLists::Lists& ResidentLists::of(const void* rows) {
  constexpr size_t kMost = 128;
  auto at = std::ranges::find(all_, rows, &Lists::rows);
  if (at == all_.end()) at = all_.size() < kMost ? all_.emplace(all_.end()) : std::prev(all_.end());
  at->rows = rows;
  all_.splice(all_.begin(), all_, at);
  return all_.front();
}

// Changes near each other go in one copy.
void ResidentLists::send(const void* rows, const std::function<void(Upload&)>& fill) {
  Lists& to = of(rows);
  const size_t room = to.block.size();
  const Upload upload = parts_of<Upload>(memory_, to.block, fill);
  if (to.block.size() != room) to.sent.clear();
  constexpr size_t kChunk = 256, kNear = 4096;
  const size_t size = upload.size(), known = std::min(size, to.sent.size());
  const auto differs = [&](size_t at) {
    const size_t bytes = std::min(kChunk, size - at);
    return at + bytes > known || std::memcmp(upload.data() + at, to.sent.data() + at, bytes) != 0;
  };
  for (size_t first = 0; first < size; first += kChunk) {
    if (!differs(first)) continue;
    size_t end = first + kChunk;
    for (size_t at = end; at < std::min(size, end + kNear); at += kChunk) {
      if (differs(at)) end = at + kChunk;
    }
    end = std::min(end, size);
    memory_.gpu()->upload(to.block.data() + first, upload.data() + first, end - first);
    first = end - kChunk;
  }
  to.sent.assign(upload.data(), upload.data() + size);
}

}  // namespace kv
