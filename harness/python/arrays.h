// Arrays of Python as the cache takes them: read where they lie, through the buffer protocol or DLPack, never copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kv::python {

// The dimension that a call decides: the tokens of a step.
inline constexpr int64_t kAnyTokens = -1;

// One argument that has to be an array: what messages call it, and its shape, as in
// {{"kv_heads", 8}, {"n", kAnyTokens}, {"head_dim", 128}}.
struct Wanted {
  struct Dimension {
    const char* name;
    int64_t size;
  };
  const char* name;
  std::vector<Dimension> shape;
};

// An f32 array in C order on the CPU. Keeps Python's object alive.
class Array {
 public:
  // Throws nb::type_error for what is no array or not of f32, and std::invalid_argument for a wrong shape or layout, for one in
  // a GPU's memory, and for a read-only one if it has to be `writable`: each with one line.
  Array(nanobind::handle object, const Wanted& wanted, bool writable = false);

  float* data() const { return data_; }
  int64_t tokens() const { return tokens_; }  // the size of the dimension that was kAnyTokens

 private:
  nanobind::ndarray<nanobind::ro> read_;
  nanobind::ndarray<> written_;
  float* data_ = nullptr;
  int64_t tokens_ = 0;
};

// A new NumPy array of f32, not set.
nanobind::ndarray<nanobind::numpy, float> new_array(const std::vector<size_t>& shape);

}  // namespace kv::python
