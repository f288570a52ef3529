// Reads of a file, several in flight at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kv {

// By io_uring if the project was built with liburing and the kernel allows it; else one pread after the other, in the
// thread that waits. For one thread.
class FileRequests {
 public:
  struct Done {
    int64_t tag;
    int error;  // errno; 0 if all bytes are there
    bool cut;   // the file ended before them
  };

  // `direct`: the file was opened with O_DIRECT. Reads through the page cache may be copies of memory, which others than
  // the submitting thread then make.
  static std::unique_ptr<FileRequests> of(int fd, bool direct, int most_in_flight);

  virtual ~FileRequests() = default;
  // No more than `most_in_flight` at once; `tag` names the request when it is done. For O_DIRECT all are aligned.
  virtual void submit(int64_t tag, int64_t offset, int64_t bytes, std::byte* to) = 0;
  // Waits for any one of those in flight, of which there has to be one.
  virtual Done wait() = 0;
};

}  // namespace kv
