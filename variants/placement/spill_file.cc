// Slots are reserved on the disk before they are needed; a slot given back becomes a hole.
#include "variants/placement/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace kv {
namespace {

// A file without a name; where the file system has none such, one whose name is gone at once. -1 on failure.
int open_nameless(const std::string& folder, int flags) {
  const int fd = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = folder + "/kvlab-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

std::string SpillFile::folder(const std::string& dir) {
  if (!dir.empty()) return dir;
  const char* standard = std::getenv("TMPDIR");
  return standard && *standard ? standard : "/tmp";
}

int SpillFile::open_in(const std::string& folder, bool direct) {
  const int fd = open_nameless(folder, direct ? O_DIRECT : 0);
  if (fd >= 0) return fd;
  if (direct && errno == EINVAL) {
    throw std::runtime_error("the file system of '" + folder +
                             "' has no O_DIRECT; give io=buffered or another dir");
  }
  throw std::runtime_error("cannot make a temporary file in '" + folder + "': " + std::strerror(errno));
}

std::string SpillFile::refuses(const std::string& folder, bool direct) {
  try {
    close(open_in(folder, direct));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

SpillFile::SpillFile(Memory& memory, const std::string& folder, bool direct, int64_t slot_bytes,
                     double link_gbps)
    : memory_(memory),
      folder_(folder),
      slot_bytes_(slot_bytes),
      direct_(direct),
      fd_(open_in(folder, direct)),
      link_gbps_(link_gbps) {}

SpillFile::~SpillFile() {
  memory_.count_disk(-slot_bytes_ * (slots_ - std::ssize(holes_)));
  close(fd_);
}

std::string SpillFile::error_of(const std::string& what, int error) const {
  return what + " in '" + folder_ + "': " + std::strerror(error);
}

std::runtime_error SpillFile::read_error(int error) const {
  if (error != 0) return std::runtime_error(error_of("cannot read rows from the file", error));
  return std::runtime_error("the file in '" + folder_ + "' is shorter than what was written to it");
}

void SpillFile::prepare(int64_t slots) {
  const auto before = prepared_.size();
  try {
    while (std::ssize(prepared_) < slots) allocate_slot();
  } catch (...) {
    while (prepared_.size() > before) {
      const int64_t slot = prepared_.back();
      prepared_.pop_back();
      give_back(slot);
    }
    throw;
  }
}

void SpillFile::allocate_slot() {
  holes_.reserve(static_cast<size_t>(slots_) + 1);  // so that giving back cannot fail
  prepared_.reserve(prepared_.size() + 1);
  const int64_t slot = holes_.empty() ? slots_ : holes_.back();
  const int error = posix_fallocate(fd_, slot * slot_bytes_, slot_bytes_);
  // A file system that cannot reserve reports a full disk when the slot is written.
  if (error != 0 && error != EINVAL && error != EOPNOTSUPP) {
    throw DiskError(error_of("no room for " + std::to_string(slot_bytes_) + " more bytes", error));
  }
  if (holes_.empty()) {
    ++slots_;
  } else {
    holes_.pop_back();
  }
  prepared_.push_back(slot);
  memory_.count_disk(slot_bytes_);
}

int64_t SpillFile::take() {
  prepare(1);
  const int64_t slot = prepared_.back();
  prepared_.pop_back();
  return slot;
}

void SpillFile::give_back(int64_t slot) noexcept {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, slot * slot_bytes_, slot_bytes_);
  holes_.push_back(slot);
  memory_.count_disk(-slot_bytes_);
}

void SpillFile::write(int64_t slot, const std::byte* from) {
  for (int64_t done = 0; done < slot_bytes_;) {
    const ssize_t n =
        pwrite(fd_, from + done, static_cast<size_t>(slot_bytes_ - done), slot * slot_bytes_ + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw DiskError(error_of("cannot write rows to the file", errno));
    done += n;
  }
}

// A token bucket of one request: each takes the link for its own bytes at the stated rate.
void SpillFile::hold_back(Clock::time_point asked, int64_t bytes) const {
  if (link_gbps_ == 0) return;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / (link_gbps_ * 1e9));
  Clock::time_point arrival;
  {
    const std::lock_guard lock(link_);
    arrival = link_free_ = std::max(link_free_, asked) + std::chrono::duration_cast<Clock::duration>(takes);
  }
  std::this_thread::sleep_until(arrival);
}

}  // namespace kv
