#include "variants/placement/file_requests.h"

#include <unistd.h>

#include <cerrno>
#include <deque>
#include <stdexcept>
#include <vector>

#ifdef KVLAB_HAS_URING
#include <liburing.h>
#endif

namespace kv {
namespace {

struct Request {
  int64_t tag, offset, left;
  std::byte* to;

  void advance(int64_t bytes) {
    offset += bytes;
    to += bytes;
    left -= bytes;
  }
};

FileRequests::Done read_rest(int fd, Request& request) {
  while (request.left > 0) {
    const ssize_t bytes = pread(fd, request.to, static_cast<size_t>(request.left), request.offset);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return {.tag = request.tag, .error = bytes < 0 ? errno : 0, .cut = bytes == 0};
    request.advance(bytes);
  }
  return {.tag = request.tag, .error = 0, .cut = false};
}

class PlainReads : public FileRequests {
 public:
  explicit PlainReads(int fd) : fd_(fd) {}

  void submit(int64_t tag, int64_t offset, int64_t bytes, std::byte* to) override {
    queue_.push_back({tag, offset, bytes, to});
  }
  Done wait() override {
    Request request = queue_.front();
    queue_.pop_front();
    return read_rest(fd_, request);
  }

 private:
  const int fd_;
  std::deque<Request> queue_;
};

#ifdef KVLAB_HAS_URING
class UringReads : public FileRequests {
 public:
  UringReads(int fd, bool direct, int most_in_flight)
      : fd_(fd),
        direct_(direct),
        works_(io_uring_queue_init(static_cast<unsigned>(most_in_flight), &ring_, 0) == 0),
        requests_(static_cast<size_t>(most_in_flight)) {
    for (Request& request : requests_) free_.push_back(&request);
  }
  ~UringReads() override {
    if (works_) io_uring_queue_exit(&ring_);
  }
  UringReads(const UringReads&) = delete;
  UringReads& operator=(const UringReads&) = delete;
  bool works() const { return works_; }

  void submit(int64_t tag, int64_t offset, int64_t bytes, std::byte* to) override {
    Request* request = free_.back();
    free_.pop_back();
    *request = {tag, offset, bytes, to};
    submit(request);
  }

  // A request that the ring refuses is read without it: that succeeds, or says why not.
  Done wait() override {
    while (refused_.empty()) {
      io_uring_cqe* entry = nullptr;
      const int error = -io_uring_wait_cqe(&ring_, &entry);
      if (error == EINTR || error == EAGAIN) continue;
      if (error != 0) throw std::logic_error("io_uring lost requests that are in flight");
      auto* request = static_cast<Request*>(io_uring_cqe_get_data(entry));
      const int bytes = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (bytes <= 0) {
        refused_.push_back(request);
        break;
      }
      request->advance(bytes);
      if (request->left == 0) return over(request, {.tag = request->tag, .error = 0, .cut = false});
      submit(request);
    }
    Request* request = refused_.front();
    refused_.pop_front();
    return over(request, read_rest(fd_, *request));
  }

 private:
  void submit(Request* request) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // there is one: the last was taken at once
    io_uring_prep_read(entry, fd_, request->to, static_cast<unsigned>(request->left),
                       static_cast<uint64_t>(request->offset));
    if (!direct_) entry->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(entry, request);
    int submitted;
    do {
      submitted = io_uring_submit(&ring_);
    } while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
    if (submitted < 0) throw std::logic_error("io_uring takes no requests");
  }
  Done over(Request* request, Done done) {
    free_.push_back(request);
    return done;
  }

  const int fd_;
  const bool direct_;
  io_uring ring_;
  const bool works_;
  std::vector<Request> requests_;
  std::vector<Request*> free_;
  std::deque<Request*> refused_;
};
#endif

}  // namespace

std::unique_ptr<FileRequests> FileRequests::of(int fd, [[maybe_unused]] bool direct,
                                               [[maybe_unused]] int most_in_flight) {
#ifdef KVLAB_HAS_URING
  auto ring = std::make_unique<UringReads>(fd, direct, most_in_flight);
  if (ring->works()) return ring;
#endif
  return std::make_unique<PlainReads>(fd);
}

}  // namespace kv
