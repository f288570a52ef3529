// Reads and writes the safetensors format: u64 header length, JSON header, raw little-endian tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/io/mapped_file.h"

namespace kv::io {

// A memory-mapped safetensors file whose header has been checked against the file's size: offsets in range,
// in order of the data, no overlap or hole, dtype and shape agreeing with the byte count.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string dtype;  // the file's own name: "F32", "F16", "BF16", …
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;
    int64_t elements() const;
  };
  // Throws std::invalid_argument: one line with the mistake, its place and what would be right.
  explicit SafetensorsFile(const std::string& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // Throws std::invalid_argument that lists the names there are.
  const Tensor& tensor(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, Tensor> tensors_;
};

// Elements [first, first + n) of an F32, F16 or BF16 tensor as f32. Throws std::invalid_argument for any
// other dtype; a range outside the tensor is a bug.
void read_f32(const SafetensorsFile::Tensor& tensor, int64_t first, int64_t n, float* out);

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;  // written as F32
};
// Written under a temporary name, synced, then renamed, so that a reader never sees half a file. Throws
// std::runtime_error if the disk refuses, and leaves nothing behind then. Two tensors of one name, or values
// that do not fill the shape, are bugs.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace kv::io
