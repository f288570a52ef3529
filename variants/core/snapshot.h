// A sequence as bytes: in process (Snapshot) or in a file.
//
// The owners of the state decide its bytes: cache, Retention and ResidualBuffer write their own part, in the order in which
// they read it back. This page only carries the bytes, and keeps files whole.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "variants/core/memory.h"

namespace kv {

class Writer {
 public:
  virtual ~Writer() = default;
  virtual void write(const std::byte* data, size_t bytes) = 0;

  template <class T>
  void put(std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T>, "padding would make equal states differ");
    if (!values.empty()) write(reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  }
  template <class T>
  void put(T value) {
    put(std::span<const T>(&value, 1));
  }
  void put_text(std::string_view text);
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Exactly `bytes`. Fewer left is a bug (std::logic_error), since files are checked first.
  virtual void read(std::byte* data, size_t bytes) = 0;
  virtual bool at_end() const { return true; }  // false where a file is known to hold more

  template <class T>
  void get(std::span<T> values) {
    static_assert(std::is_arithmetic_v<T>);
    if (!values.empty()) read(reinterpret_cast<std::byte*>(values.data()), values.size_bytes());
  }
  template <class T>
  T get() {
    T value;
    get(std::span<T>(&value, 1));
    return value;
  }
  // Throws std::invalid_argument for a text of more than `most` bytes.
  std::string get_text(size_t most);
};

// A sequence that is set aside in memory, counted as payload. Lives no longer than its Memory.
class Snapshot {
 public:
  // Calls `write` twice: to learn the size, then to fill.
  Snapshot(Memory& memory, const std::function<void(Writer&)>& write);
  void read(const std::function<void(Reader&)>& read) const;
  size_t bytes() const { return block_.size(); }

 private:
  Block block_;
};

// The first eight bytes of a file, and its name in messages.
struct FileKind {
  std::string_view magic, what;
};
inline constexpr FileKind kSequenceFile{"kvlabseq", "a saved sequence"};

// Files: the kind's eight bytes, a u32 version, the bytes, and the CRC-32C of all that; little-endian.
//
// write_file appears under `path` whole or not at all: it is written under another name, synced and renamed.
// Throws DiskError with the system's reason (a full disk, no such folder) and leaves no file behind.
void write_file(const std::string& path, const std::function<void(Writer&)>& write,
                const FileKind& kind = kSequenceFile);
// Checks the whole file before the first byte is handed out. Throws std::invalid_argument if it cannot be
// opened, is no such file, is of another version, or is not as it was written.
void read_file(const std::string& path, const std::function<void(Reader&)>& read,
               const FileKind& kind = kSequenceFile);

}  // namespace kv
