// Writers and readers over memory and files; a file is checked whole before it is read.
#include "variants/core/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "variants/core/checksum.h"
#include "variants/core/place.h"

namespace kv {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr uint32_t kVersion = 2;
constexpr size_t kBufferBytes = 1 << 20;

struct Counter : Writer {
  size_t bytes = 0;
  void write(const std::byte*, size_t n) override { bytes += n; }
};

struct MemoryWriter : Writer {
  explicit MemoryWriter(std::byte* p) : to(p) {}
  std::byte* to;
  void write(const std::byte* data, size_t n) override { to = std::copy_n(data, n, to); }
};

struct MemoryReader : Reader {
  explicit MemoryReader(std::span<const std::byte> bytes) : left(bytes) {}
  std::span<const std::byte> left;
  void read(std::byte* data, size_t n) override {
    if (n > left.size()) throw std::logic_error("a snapshot is read past its end");
    std::copy_n(left.data(), n, data);
    left = left.subspan(n);
  }
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A file that is there once it is finished.
class FileWriter : public Writer {
 public:
  explicit FileWriter(const std::string& path) : file_(path) { buffer_.reserve(kBufferBytes); }

  void write(const std::byte* data, size_t n) override {
    crc_ = extend_crc32c(crc_, data, n);
    while (n > 0) {
      const size_t take = std::min(n, kBufferBytes - buffer_.size());
      buffer_.insert(buffer_.end(), data, data + take);
      if (buffer_.size() == kBufferBytes) flush();
      data += take;
      n -= take;
    }
  }

  void finish() {
    put(crc_);
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

  NewFile file_;
  std::vector<std::byte> buffer_;
  uint32_t crc_ = 0;
};

class FileReader : public Reader {
 public:
  FileReader(const std::string& path, const FileKind& kind)
      : path_(path), kind_(kind), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status;
    if (fd_.get() < 0 || fstat(fd_.get(), &status) != 0) refuse(std::strerror(errno));
    bytes_ = status.st_size;
    buffer_.resize(std::clamp<size_t>(static_cast<size_t>(bytes_), 1, kBufferBytes));
  }

  // Reads all of the file once, then starts again behind the header.
  void check() {
    std::array<char, kMagicBytes> magic{};
    const int64_t header = static_cast<int64_t>(magic.size() + sizeof(kVersion));
    const int64_t body = bytes_ - header - static_cast<int64_t>(sizeof(uint32_t));
    if (body < 0) refuse("it is too short to be " + std::string(kind_.what));
    uint32_t crc = 0;
    std::vector<std::byte> piece(buffer_.size());
    for (int64_t left = header + body; left > 0;) {
      const size_t n = std::min(static_cast<size_t>(left), piece.size());
      read(piece.data(), n);
      crc = extend_crc32c(crc, piece.data(), n);
      left -= static_cast<int64_t>(n);
    }
    const auto stored = get<uint32_t>();
    rewind();
    left_ = bytes_;
    get(std::span<char>(magic));
    if (std::string_view(magic.data(), magic.size()) != kind_.magic)
      refuse("it is not " + std::string(kind_.what));
    if (crc != stored) refuse("it is damaged or cut short (its checksum does not match)");
    const auto version = get<uint32_t>();
    if (version != kVersion) {
      refuse("its format is version " + std::to_string(version) + "; this program reads version " +
             std::to_string(kVersion));
    }
  }

  bool at_end() const override { return left_ == static_cast<int64_t>(sizeof(uint32_t)); }

  void read(std::byte* data, size_t n) override {
    left_ -= static_cast<int64_t>(n);
    while (n > 0) {
      if (at_ == end_) refill();
      const size_t take = std::min(n, end_ - at_);
      std::copy_n(buffer_.data() + at_, take, data);
      at_ += take;
      data += take;
      n -= take;
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument("cannot load '" + path_ + "': " + why);
  }

  void rewind() {
    lseek(fd_.get(), 0, SEEK_SET);
    at_ = end_ = 0;
  }

  void refill() {
    ssize_t n;
    do {
      n = ::read(fd_.get(), buffer_.data(), buffer_.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) refuse(std::strerror(errno));
    if (n == 0) refuse("it became shorter while it was read");
    at_ = 0;
    end_ = static_cast<size_t>(n);
  }

  std::string path_;
  FileKind kind_;
  Descriptor fd_;
  int64_t bytes_ = 0;
  std::vector<std::byte> buffer_;  // no larger than the file
  size_t at_ = 0, end_ = 0;
  int64_t left_ = 0;  // bytes to the end of the file, once it is checked
};

size_t size_of(const std::function<void(Writer&)>& write) {
  Counter counter;
  write(counter);
  return counter.bytes;
}

}  // namespace

void Writer::put_text(std::string_view text) {
  put(static_cast<uint64_t>(text.size()));
  put(std::span<const char>(text));
}

std::string Reader::get_text(size_t most) {
  const auto bytes = get<uint64_t>();
  if (bytes > most)
    throw std::invalid_argument("its first text would have " + std::to_string(bytes) + " bytes");
  std::string text(bytes, '\0');
  get(std::span<char>(text));
  return text;
}

Snapshot::Snapshot(Memory& memory, const std::function<void(Writer&)>& write)
    : block_(memory, size_of(write), ByteKind::kPayload) {
  MemoryWriter writer(block_.data());
  write(writer);
}

void Snapshot::read(const std::function<void(Reader&)>& read) const {
  MemoryReader reader({block_.data(), block_.size()});
  read(reader);
}

void write_file(const std::string& path, const std::function<void(Writer&)>& write, const FileKind& kind) {
  FileWriter writer(path);
  writer.put(std::span<const char>(kind.magic));
  writer.put(kVersion);
  write(writer);
  writer.finish();
}

void read_file(const std::string& path, const std::function<void(Reader&)>& read, const FileKind& kind) {
  FileReader reader(path, kind);
  reader.check();
  read(reader);
}

}  // namespace kv
